"""Failover: after a failed attempt another target is tried. The load balancer and the retry policy decide which.

One loop makes all attempts of a call, because the attempts share one limit. The loop ends when a target has accepted
the request. With a ``FirstTokenGate`` around the target, the loop ends when the answer has begun.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any

from gateway.core.errors import GatewayError, drop_tracebacks
from gateway.core.exchange import Events, Exchange
from gateway.policy.deliver.load_balancer import RoundRobin
from gateway.policy.deliver.retry import RetryPolicy, RetryState


class Failover:
    """A backend that tries the replicas of a model until one answers."""

    def __init__(
        self,
        balancer: RoundRobin,
        retry: RetryPolicy,
        observe: Callable[[str, str], None] = lambda target, outcome: None,
    ) -> None:
        """``observe`` is called after each attempt with the target's label and ``ok`` or an error code."""
        self.balancer = balancer
        self.retry = retry
        self.observe = observe

    def open(self, exchange: Exchange) -> AbstractAsyncContextManager[Events]:
        """Opens the first replica that answers. Raises the last failure if no replica answers."""
        return _FailoverStream(self, exchange)


class _FailoverStream:
    """A context manager for one exchange; entering makes the attempts."""

    __slots__ = ("_exchange", "_failover", "_opened")

    def __init__(self, failover: Failover, exchange: Exchange) -> None:
        self._failover = failover
        self._exchange = exchange

    async def __aenter__(self) -> Events:
        failover, exchange = self._failover, self._exchange
        replicas = failover.balancer.order()
        replica, state = replicas[0], None
        while True:
            exchange.attempts.begin(replica.label, retry=state is not None)
            try:
                opened = replica.backend.open(exchange)
                events = await opened.__aenter__()
            except GatewayError as error:
                failover.observe(replica.label, error.code)
                state = state or RetryState(failover.retry, len(replicas))
                pause = state.pause_after(error)
                if pause is None:
                    raise
                drop_tracebacks(error)
            else:
                failover.observe(replica.label, "ok")
                self._opened = opened
                return events
            if pause:
                await asyncio.sleep(pause)
            replica = replicas[state.position % len(replicas)]

    def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Coroutine[Any, Any, bool | None]:
        return self._opened.__aexit__(kind, error, trace)
