"""How long may an answer take? Idle between two pieces of content, and in total.

Only content moves the idle clock: comments never reach us, and empty deltas do not count
(``specs/reliability.md`` 4.2).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from gateway.core.errors import DeadlineExceeded, UpstreamIdleTimeout, UpstreamTimeout
from gateway.core.events import Event
from gateway.core.exchange import Backend, Exchange
from gateway.policy.deliver.begin import is_content


class Clocks:
    """A backend whose whole exchange, and each silence in it, is bounded. Times are seconds."""

    def __init__(self, inner: Backend, idle: float, total: float) -> None:
        self._inner = inner
        self._idle = idle
        self._total = total

    @asynccontextmanager
    async def open(self, exchange: Exchange) -> AsyncIterator[AsyncIterator[Event]]:
        """Raises ``UpstreamTimeout`` before the first event, then ``DeadlineExceeded`` or ``UpstreamIdleTimeout``."""
        deadline = asyncio.get_running_loop().time() + self._total
        async with AsyncExitStack() as stack:
            try:
                async with asyncio.timeout_at(deadline):
                    events = await stack.enter_async_context(self._inner.open(exchange))
            except TimeoutError:
                raise UpstreamTimeout(
                    f"the model's server did not answer within {self._total:g} s, the total its policy allows"
                ) from None
            yield Timed(events, self._idle, deadline, self._total)


class Timed:
    """Events under two clocks."""

    __slots__ = ("_deadline", "_events", "_heard", "_idle", "_loop", "_total")

    def __init__(self, events: AsyncIterator[Event], idle: float, deadline: float, total: float) -> None:
        self._events = events
        self._idle = idle
        self._deadline = deadline
        self._total = total
        self._loop = asyncio.get_running_loop()
        self._heard = self._loop.time()

    def __aiter__(self) -> Timed:
        return self

    async def __anext__(self) -> Event:
        until = min(self._heard + self._idle, self._deadline)
        try:
            async with asyncio.timeout_at(until):
                event = await self._events.__anext__()
        except TimeoutError:
            if until == self._deadline:
                raise _late(self._total) from None
            raise UpstreamIdleTimeout(f"the model's server was silent for {self._idle:g} s") from None
        if is_content(event):
            self._heard = self._loop.time()
        return event


def _late(total: float) -> DeadlineExceeded:
    return DeadlineExceeded(f"the call took longer than {total:g} s, the total its policy allows")
