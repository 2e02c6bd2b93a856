"""Limits the idle time between two pieces of content, and the total time of an exchange.

Comments and empty deltas do not restart the idle timeout (``docs/spec/reliability.md`` 4.2). Both timeouts are one
deadline. When it is due and content has arrived meanwhile, the deadline is postponed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any

from gateway.core.errors import DeadlineExceeded, GatewayError, UpstreamIdleTimeout, UpstreamTimeout
from gateway.core.exchange import Backend, Events, Exchange
from gateway.core.text_splice import TextSource, TextSplice, text_source
from gateway.policy.deliver.deadline import Deadline, SharedTimer
from gateway.policy.deliver.layer import Layer, LayerStream
from gateway.telemetry.attempts import AttemptObserver
from metatemplate.values.events import Delta, Event, is_content

WHOLE = 0.9
"""The share of the total time that an exchange must have, so that its total timeout is a failure of its target. Earlier
turns or parts of the same call may have used the time."""


class Timeouts(Layer):
    """A backend that limits the idle time and the total time of each exchange, both in seconds."""

    def __init__(self, inner: Backend, idle: float, total: float, observer: AttemptObserver) -> None:
        """``observer``: called for an attempt that a timeout ends before the answer has begun."""
        super().__init__(inner)
        self.idle = idle
        self.total = total
        self.observer = observer
        self.timer = SharedTimer()

    def open(self, exchange: Exchange) -> AbstractAsyncContextManager[Events]:
        """Open the exchange with its timeouts. An answer that is not streamed has no idle timeout.

        A timeout raises ``UpstreamTimeout`` before the first event, and ``DeadlineExceeded`` or ``UpstreamIdleTimeout``
        after the first event. An exchange that begins late in its call (``WHOLE``) always raises ``DeadlineExceeded``
        at the end of the total time. A fallback model has only the rest of the requested model's total time.
        """
        return _TimedStream(self._inner.open(exchange), exchange, self)


class _TimedStream(LayerStream):
    """One exchange with its idle timeout and its total timeout."""

    __slots__ = (
        "_content_at",
        "_deadline",
        "_end",
        "_exchange",
        "_idle",
        "_left_at",
        "_loop",
        "_source",
        "_splice",
        "_started",
        "_timeouts",
        "_total",
    )

    def __init__(self, inner: AbstractAsyncContextManager[Events], exchange: Exchange, timeouts: Timeouts) -> None:
        self._inner = inner
        self._exchange = exchange
        self._timeouts = timeouts
        self._idle = timeouts.idle if exchange.stream else None
        self._total = timeouts.total if exchange.total is None else exchange.total
        self._loop = loop = asyncio.get_running_loop()
        self._started = started = loop.time()
        self._end = started + self._total if exchange.deadline is None else exchange.deadline
        """The loop time at which the total time ends."""
        self._content_at: float | None = None
        """The loop time of the last content, or None before the answer has begun. The time spent waiting for a slow
        client is added, so that this time does not count as idle time of the upstream."""
        self._left_at = 0.0
        """The loop time at which the caller stopped waiting for events. 0 while the caller waits."""
        self._splice: TextSplice | None = None
        """The splice while text is forwarded directly, else None. Its ``moments`` can be compared with loop times."""

    async def __aenter__(self) -> Events:
        first = self._end if self._idle is None else min(self._end, self._started + self._idle)
        self._deadline = deadline = Deadline(self._timeouts.timer, self._loop, first, self._check)
        try:
            events = await self._inner.__aenter__()
        except BaseException as error:
            deadline.stop()
            try:
                deadline.translate(error)
            except GatewayError as expired:
                attempts = self._exchange.attempts
                if attempts.open:
                    self._timeouts.observer.failed(self._exchange, attempts.target, expired)
                raise
            raise
        if self._idle is None:
            return events
        self._content_at = self._left_at = self._loop.time()
        self._events = events
        self._source = text_source(events)
        return self

    def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Coroutine[Any, Any, bool | None]:
        self._deadline.stop()
        closing = self._inner.__aexit__(kind, error, trace)
        return closing if self._deadline.error is None else self._close_expired(closing, error)

    async def _close_expired(self, closing: Coroutine[Any, Any, bool | None], error: BaseException | None) -> None:
        try:
            await closing
        finally:  # also if the closing is cancelled
            self._deadline.translate(error)

    async def next_batch(self) -> Sequence[Event]:
        """Return the next events. See ``Events.next_batch``."""
        self._resume()
        try:
            batch = await self._events.next_batch()
        except asyncio.CancelledError as error:
            self._deadline.translate(error)  # here, so that the layers around this layer also see the timeout error
            raise
        self._left_at = now = self._loop.time()
        for event in batch:
            if (type(event) is Delta and event.text) or is_content(event):
                self._content_at = now
                break
        return batch

    @property
    def text_source(self) -> TextSource | None:
        """This object, because the timeouts also apply to forwarded text. None if the upstream's is None."""
        return None if self._source is None else self

    async def forward_text(self, splice: TextSplice) -> None:
        """Forward text directly to the client, with the same timeouts. See ``TextSource.forward_text``."""
        assert self._source is not None
        self._resume()
        self._splice = splice
        try:
            await self._source.forward_text(splice)
        finally:
            self._splice = None
        self._left_at = self._loop.time()
        if splice.moments:
            self._content_at = splice.moments[-1]

    def _resume(self) -> None:
        """Note that the caller waits for events again, and add the time in between to ``_content_at``."""
        if self._content_at is not None and self._left_at:
            self._content_at += self._loop.time() - self._left_at
        self._left_at = 0.0

    def _check(self) -> UpstreamTimeout | float:
        """Return the error if a timeout has passed, else the loop time of the next check."""
        now, content_at, idle = self._loop.time(), self._content_at, self._idle
        if self._splice is not None and self._splice.moments:
            content_at = self._splice.moments[-1]
        if now >= self._end:
            return self._total_error()
        if idle is None:
            return self._end
        if self._left_at or content_at is None:
            return min(now + idle, self._end)
        if now >= content_at + idle:
            return UpstreamIdleTimeout(f"the model's server sent no content for {idle:g} s (delivery.timeout.idle)")
        return min(content_at + idle, self._end)

    def _total_error(self) -> UpstreamTimeout:
        allowed = f"{self._total:g} s (delivery.timeout.total)"
        late = self._exchange.deadline is not None and self._end - self._started < WHOLE * self._total
        if self._content_at is None and not late:
            return UpstreamTimeout(
                f"the model's server did not answer within {allowed}; check the server, or allow more time"
            )
        return DeadlineExceeded(f"the call took longer than {allowed}")
