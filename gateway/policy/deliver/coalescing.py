"""Coalescing: equal requests at the same time make one call.

The first request makes the call. The others wait for its complete answer. If the call fails, or its client leaves, each
of them makes a call of its own. Only requests whose answers are deterministic wait for each other.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace

from gateway.config.snapshot import ModelSpec
from gateway.core.events import Begun, Event
from gateway.core.exchange import Backend, Events, Exchange
from gateway.policy.deliver.cache import KeptEvents, cache_key, replay, target_identity
from gateway.policy.deliver.layer import Layer


class Coalescing(Layer):
    """A backend that opens ``inner`` once for equal requests at the same time."""

    def __init__(self, inner: Backend, model: ModelSpec, observe: Callable[[str], None] = lambda result: None) -> None:
        """``observe``: called with ``hit`` for each request that gets the answer of another one."""
        super().__init__(inner)
        self._targets = target_identity(model)
        self._total = model.policy.delivery.total
        self._observe = observe
        self._calls: dict[bytes, tuple[Exchange, asyncio.Future[Sequence[Event]]]] = {}
        """Cache key → the first request under way, and its events. No events: it has no complete answer."""

    def open(self, exchange: Exchange) -> AbstractAsyncContextManager[Events]:
        """Open the exchange, or wait for the answer to an equal request. See ``Backend.open``."""
        params = exchange.params
        if params.get("temperature") != 0 and params.get("seed") is None:
            return self._inner.open(exchange)
        return self._open(exchange)

    @asynccontextmanager
    async def _open(self, exchange: Exchange) -> AsyncIterator[Events]:
        key = cache_key(exchange, self._targets)
        first = self._calls.get(key)
        async with self._lead(exchange, key) if first is None else self._follow(exchange, *first) as events:
            yield events

    @asynccontextmanager
    async def _lead(self, exchange: Exchange, key: bytes) -> AsyncIterator[Events]:
        """Open ``inner``, and give the answer to the requests that wait."""
        answer: asyncio.Future[Sequence[Event]] = asyncio.get_running_loop().create_future()
        self._calls[key] = exchange, answer
        try:
            async with self._inner.open(exchange) as events:
                kept = KeptEvents(events)
                yield kept
            answer.set_result(kept.answer(exchange))
        finally:
            del self._calls[key]
            if not answer.done():
                answer.set_result(())

    @asynccontextmanager
    async def _follow(
        self, exchange: Exchange, first: Exchange, answer: asyncio.Future[Sequence[Event]]
    ) -> AsyncIterator[Events]:
        """Wait for the answer to the first request. If there is none, open ``inner``."""
        now = asyncio.get_running_loop().time()
        end = now + self._total if exchange.deadline is None else exchange.deadline
        await asyncio.wait([answer], timeout=end - now)
        if answer.done() and (events := answer.result()):
            self._observe("hit")
            noted = _with_notice(events, f"coalesced: {first.request_id}")
            yield replay(exchange, noted, first.attempts.cache_age)
            return
        async with self._inner.open(replace(exchange, deadline=end)) as own:
            yield own


def _with_notice(events: Sequence[Event], notice: str) -> list[Event]:
    """Return the events with a notice in the first ``Begun``."""
    begun = next(event for event in events if isinstance(event, Begun))
    noted = replace(begun, notices=(*begun.notices, notice))
    return [noted if event is begun else event for event in events]
