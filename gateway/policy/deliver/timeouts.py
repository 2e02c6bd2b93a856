"""How long may an answer take? Idle between two pieces of content, and in total.

Only content moves the idle clock: comments never reach us, and empty deltas do not count
(``specs/reliability.md`` 4.2). A clock is set anew only when it was looked at in vain:
a batch of events costs a look at the time, a whole answer none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from types import TracebackType

from gateway.core.errors import DeadlineExceeded, UpstreamIdleTimeout, UpstreamTimeout
from gateway.core.events import Delta, Event
from gateway.core.exchange import Backend, Events, Exchange
from gateway.core.text_splice import TextSplice
from gateway.policy.deliver.deadline import Deadline
from gateway.policy.deliver.first_token_gate import is_content


class Timeouts:
    """A backend whose whole exchange, and each silence in it, is bounded. Times are seconds."""

    def __init__(self, inner: Backend, idle: float, total: float) -> None:
        self._inner = inner
        self._idle = idle
        self._total = total

    def open(self, exchange: Exchange) -> AbstractAsyncContextManager[Events]:
        """Raises ``UpstreamTimeout`` before the first event, then ``DeadlineExceeded`` or ``UpstreamIdleTimeout``.

        A whole answer has no silences: only the total bounds it.
        """
        idle = self._idle if exchange.stream else None
        return _Clocked(self._inner.open(exchange), idle, self._total, exchange.deadline)


class _Clocked(Deadline):
    """One exchange under its clock, and the events in which the clock hears content."""

    __slots__ = ("_deadline", "_events", "_heard", "_idle", "_inner", "_left", "_passage", "_total")

    def __init__(
        self,
        inner: AbstractAsyncContextManager[Events],
        idle: float | None,
        total: float,
        deadline: float | None,
    ) -> None:
        # Written out: the base's own would cost as much as all of this.
        self._loop = loop = asyncio.get_running_loop()
        self._owner = asyncio.current_task(loop)
        self._up = None
        self._inner = inner
        self._deadline = deadline if deadline is not None else loop.time() + total
        self._idle = idle
        self._total = total
        self._heard: float | None = None
        """When content was last heard; None before the answer has begun. Time when nobody listens moves it on."""
        self._left = 0.0
        """Since when nobody listens, because the client has not taken what there was; 0: somebody does."""
        self._passage: TextSplice | None = None
        """Text goes on without coming through here; its moments are in the loop's time, which is monotonic."""

    async def __aenter__(self) -> Events:
        # One timer for both clocks: it may ring too early, never too late, and then sets itself anew.
        soon = self._deadline if self._idle is None else min(self._deadline, self._loop.time() + self._idle)
        self._timer = self._loop.call_at(soon, self.look)
        try:
            events = await self._inner.__aenter__()
        except BaseException as error:
            self.stop()
            self.convert(error)
            raise
        if self._idle is None:
            return events
        self._heard = self._left = self._loop.time()
        self._events = events
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        try:
            await self._inner.__aexit__(kind, error, trace)
        finally:  # cancelled once more while it closes, too
            if self._up is not None:
                self.convert(error)

    @property
    def exhausted(self) -> bool:
        """See ``Events``."""
        return self._events.exhausted

    async def next_batch(self) -> Sequence[Event]:
        """See ``Events``."""
        self._listen()
        try:
            batch = await self._events.next_batch()
        except asyncio.CancelledError as error:
            self.convert(error)  # here, so that whoever holds text back hears of it as of any failure
            raise
        self._left = now = self._loop.time()
        for event in batch:
            if (type(event) is Delta and event.text) or is_content(event):
                self._heard = now
                break
        return batch

    async def forward_text(self, passage: TextSplice) -> None:
        """See ``Events``."""
        self._listen()
        self._passage = passage
        try:
            await self._events.forward_text(passage)
        finally:
            self._passage = None
        self._left = self._loop.time()
        if passage.moments:
            self._heard = passage.moments[-1]

    def _listen(self) -> None:
        """An engine is not silent while nobody listens."""
        if self._heard is not None and self._left:
            self._heard += self._loop.time() - self._left
        self._left = 0.0

    def look(self) -> None:
        """See ``Deadline``: is time really up, or has content come since?"""
        now, heard = self._loop.time(), self._heard
        if self._passage is not None and self._passage.moments:
            heard = self._passage.moments[-1]
        if now >= self._deadline:
            self.ring(self._late())
        elif self._idle is None:
            self.set(self._deadline)
        elif self._left or heard is None:
            self._reset(now + self._idle)
        elif now >= heard + self._idle:
            self.ring(UpstreamIdleTimeout(f"the model's server was silent for {self._idle:g} s"))
        else:
            self._reset(heard + self._idle)

    def _reset(self, when: float) -> None:
        self.set(min(when, self._deadline))

    def _late(self) -> UpstreamTimeout:
        allowed = f"{self._total:g} s, the total its policy allows"
        if self._heard is None:
            return UpstreamTimeout(f"the model's server did not answer within {allowed}")
        return DeadlineExceeded(f"the call took longer than {allowed}")
