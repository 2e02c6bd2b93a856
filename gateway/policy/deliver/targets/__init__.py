"""The choice of a target, and what follows a failure.

``failover``         tries the next target after a failure
``load_balancer``    the order in which targets are tried
``circuit_breaker``  avoids a target that fails often
``health_check``     avoids a target whose health checks fail
``retry``            decides which failed attempts are repeated
``retry_budget``     limits the retries of a model to a share of its calls
"""
