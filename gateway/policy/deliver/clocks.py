"""How long may an answer take? Idle between two pieces of content, and in total.

Only content moves the idle clock: comments never reach us, and empty deltas do not count
(``specs/reliability.md`` 4.2). One timer a call, set anew only when it fires: an event costs a
look at the clock.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from types import TracebackType

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

    def open(self, exchange: Exchange) -> AbstractAsyncContextManager[AsyncIterator[Event]]:
        """Raises ``UpstreamTimeout`` before the first event, then ``DeadlineExceeded`` or ``UpstreamIdleTimeout``.

        A whole answer has no silences: only the total bounds it.
        """
        idle = self._idle if exchange.stream else None
        return _Clocked(self._inner.open(exchange), idle, self._total, exchange.deadline)


class _Clocked:
    """One exchange under its clocks.

    When time is up, the task that owns the exchange is cancelled, wherever it waits; on its way out through
    here the cancellation becomes an error, as ``asyncio.timeout`` does it.
    """

    __slots__ = ("_deadline", "_heard", "_idle", "_inner", "_loop", "_owner", "_timer", "_total", "_up")

    def __init__(
        self,
        inner: AbstractAsyncContextManager[AsyncIterator[Event]],
        idle: float | None,
        total: float,
        deadline: float | None,
    ) -> None:
        self._inner = inner
        self._deadline = deadline if deadline is not None else asyncio.get_running_loop().time() + total
        self._idle = idle
        self._total = total
        self._heard: float | None = None
        """When content was last heard; None before the answer has begun."""
        self._up: UpstreamTimeout | None = None
        """The error that the owner was cancelled for."""

    async def __aenter__(self) -> AsyncIterator[Event]:
        self._loop = asyncio.get_running_loop()
        owner = asyncio.current_task()
        assert owner is not None
        self._owner = owner
        self._timer = self._loop.call_at(self._deadline, self._look)
        try:
            events = await self._inner.__aenter__()
        except BaseException as error:
            self._timer.cancel()
            self._convert(error)
            raise
        if self._idle is None:
            return events
        self._heard = self._loop.time()
        self._set(self._heard + self._idle)
        return _Heard(events, self)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        await self._inner.__aexit__(kind, error, trace)
        self._convert(error)

    def heard(self) -> None:
        """Content has come."""
        self._heard = self._loop.time()

    def _look(self) -> None:
        """The timer has fired: is time really up, or has content come since?"""
        now = self._loop.time()
        if now >= self._deadline:
            self._up = self._late()
            self._owner.cancel()
        elif self._idle is not None and self._heard is not None:
            if now >= self._heard + self._idle:
                self._up = UpstreamIdleTimeout(f"the model's server was silent for {self._idle:g} s")
                self._owner.cancel()
            else:
                self._set(self._heard + self._idle)
        else:
            self._set(self._deadline)

    def _set(self, when: float) -> None:
        self._timer.cancel()
        self._timer = self._loop.call_at(min(when, self._deadline), self._look)

    def _late(self) -> UpstreamTimeout:
        allowed = f"{self._total:g} s, the total its policy allows"
        if self._heard is None:
            return UpstreamTimeout(f"the model's server did not answer within {allowed}")
        return DeadlineExceeded(f"the call took longer than {allowed}")

    def _convert(self, error: BaseException | None) -> None:
        if self._up is not None and isinstance(error, asyncio.CancelledError) and self._owner.uncancel() <= 0:
            raise self._up from None


class _Heard:
    """Events whose content is heard by the clock."""

    __slots__ = ("_clock", "_events")

    def __init__(self, events: AsyncIterator[Event], clock: _Clocked) -> None:
        self._events = events
        self._clock = clock

    def __aiter__(self) -> _Heard:
        return self

    async def __anext__(self) -> Event:
        event = await self._events.__anext__()
        if is_content(event):
            self._clock.heard()
        return event
