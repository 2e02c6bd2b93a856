"""Delivery layers: backends around backends.

``layer``             base of a layer
``split_calls``       one call for each choice, where an engine cannot take several
``timeouts``          idle and total time
``failover``          the next target after a failure
``load_balancer``     order of the targets
``retry``             which failures are repeated
``first_token_gate``  waits for the first content
``deadline``          time limit of a task
"""
