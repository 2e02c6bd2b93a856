"""Failover: tries the next target after a failed attempt. The load balancer and the retry policy choose the target.

One loop makes all attempts of an exchange, because the attempts share one limit and the retry budget of the requested
model. The target's circuit breaker counts each attempt when it fails or when its answer ends. The loop ends when a
target has accepted the request. If a ``FirstTokenGate`` wraps the target, the loop ends when the answer has begun.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from gateway.core.errors import GatewayError, UpstreamError, UpstreamTimeout, drop_tracebacks
from gateway.core.exchange import Events, Exchange
from gateway.policy.deliver.deadline import is_timeout
from gateway.policy.deliver.targets.load_balancer import LoadBalancer
from gateway.policy.deliver.targets.retry import RetryPolicy, RetryState
from gateway.policy.deliver.targets.retry_budget import RetryBudget
from gateway.telemetry.attempts import AttemptObserver


@dataclass(frozen=True, slots=True)
class Failover:
    """A backend that tries the replicas of a model until one replica answers."""

    balancer: LoadBalancer
    retry: RetryPolicy
    budget: RetryBudget
    observer: AttemptObserver

    def open(self, exchange: Exchange) -> AbstractAsyncContextManager[Events]:
        """Open the first replica that answers. Raises the last failure if no replica answers."""
        return _FailoverStream(self, exchange)


class _FailoverStream:
    """A context manager for one exchange. Entering makes the attempts."""

    __slots__ = ("_exchange", "_failover", "_opened", "_probe", "_replica")

    def __init__(self, failover: Failover, exchange: Exchange) -> None:
        self._failover = failover
        self._exchange = exchange

    async def __aenter__(self) -> Events:
        failover, exchange = self._failover, self._exchange
        log = exchange.attempts
        budget = log.retry_budget = log.retry_budget or failover.budget
        is_fallback = budget is not failover.budget
        if not is_fallback:
            failover.budget.count_call()
        replicas = failover.balancer.order(exchange)
        replica, state = replicas[0], None
        while True:
            log.begin(replica.label, retry=is_fallback or state is not None)
            breaker = replica.breaker
            probe = breaker.begin()
            try:
                opened = replica.backend.open(exchange)
                events = await opened.__aenter__()
            except GatewayError as error:
                breaker.end(error, probe=probe)
                failover.observer.failed(exchange, replica.label, error)
                attempts = exchange.max_attempts or failover.retry.attempts
                state = state or RetryState(failover.retry, attempts, len(replicas))
                pause = state.pause_after(error)
                if pause is None:
                    raise
                if not budget.take():
                    error.retried = True
                    raise
                log.stale += state.repeats_stale
                drop_tracebacks(error)
            except BaseException as error:  # the client has left, or the call's time is over
                timed_out = state is None and is_timeout(error)  # a later attempt had only the rest of the time
                breaker.end(UpstreamTimeout("no answer in time") if timed_out else error, probe=probe)
                raise
            else:
                failover.observer.answered(exchange, replica.label)
                if probe:
                    breaker.probe_answered()
                self._opened, self._replica, self._probe = opened, replica, probe
                return events
            if pause:
                await asyncio.sleep(pause)
            replica = replicas[state.position % len(replicas)]

    def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Coroutine[Any, Any, bool | None]:
        self._replica.breaker.end(error, probe=self._probe)
        if isinstance(error, UpstreamError):
            self._failover.observer.broke_off(self._exchange, self._replica.label, error)
        return self._opened.__aexit__(kind, error, trace)
