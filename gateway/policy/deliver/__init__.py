"""Delivery layers: backends that add one behaviour to another backend.

``layer``             base classes of a layer
``recording``         notes the events of a call
``storage``           kept answers and recordings in memory and in files
``cache``             sends a kept answer to the same request
``split_calls``       one call for each choice, where an engine cannot make several in one call
``timeouts``          idle and total time
``failover``          the next target after a failure
``load_balancer``     the order in which targets are tried
``circuit_breaker``   avoids a target that fails often
``health_check``      avoids a target that does not answer its health path
``retry``             which failed attempts are repeated
``retry_budget``      limits the retries of a model to a share of its calls
``first_token_gate``  waits for the first content
``deadline``          time limit of a task
"""
