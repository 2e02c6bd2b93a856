"""Delivery layers: backends that add one behaviour to another backend.

``layer``             base classes of a layer
``recording``         records the events of a call
``storage``           the stores of cached answers and of recordings
``cache``             answers a repeated request from a store
``coalescing``        makes one call of equal requests at the same time
``shared_limits``     the attempts and the total time of several exchanges of one call
``split_calls``       sends one call for each choice, if an engine cannot return several choices in one call
``timeouts``          limits the idle time and the total time
``failover``          tries the next target after a failure
``load_balancer``     the order in which targets are tried
``circuit_breaker``   avoids a target that fails often
``health_check``      avoids a target whose health checks fail
``retry``             decides which failed attempts are repeated
``retry_budget``      limits the retries of a model to a share of its calls
``first_token_gate``  waits for the first content
``deadline``          limits the time of a task
"""
