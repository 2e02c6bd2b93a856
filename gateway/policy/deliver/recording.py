"""Recording: a layer that notes the events of a call with their times, for ``recorder.py``."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager

from gateway.core.completion import delta_size
from gateway.core.events import Delta, Event
from gateway.core.exchange import Events, Exchange, RecordedExchange
from gateway.core.text_splice import TextSplice
from gateway.policy.deliver.layer import Layer, LayerStream

MAX_RECORDED = 4 * 1024 * 1024
"""Characters of one answer whose events are recorded, as ``delta_size`` counts; the others are not recorded."""


class Recording(Layer):
    """A backend that notes the events of ``inner``, for calls that are recorded."""

    def open(self, exchange: Exchange) -> AbstractAsyncContextManager[Events]:
        """See ``Backend``."""
        inner = self._inner.open(exchange)
        recorded = exchange.attempts.recorded
        return inner if recorded is None else _RecordedStream(inner, exchange, recorded)


class _RecordedStream(LayerStream):
    """The unchanged events of one exchange, each noted with the seconds since the exchange was opened."""

    __slots__ = ("_exchange", "_moments", "_recorded", "_room", "_started")

    def __init__(
        self, inner: AbstractAsyncContextManager[Events], exchange: Exchange, recorded: list[RecordedExchange]
    ) -> None:
        super().__init__(inner)
        self._exchange = exchange
        self._recorded = recorded
        self._room = MAX_RECORDED
        self._moments: list[tuple[float, Event]] = []

    async def __aenter__(self) -> Events:
        self._started = time.monotonic()
        self._recorded.append(RecordedExchange(self._exchange, time.time(), self._moments))
        return await super().__aenter__()

    async def next_batch(self) -> Sequence[Event]:
        """See ``Events``."""
        batch = await self._events.next_batch()
        moment = time.monotonic() - self._started
        for event in batch:
            self._room -= delta_size(event) if isinstance(event, Delta) else 0
            if self._room >= 0:
                self._moments.append((moment, event))
        return batch

    async def forward_text(self, splice: TextSplice) -> None:
        """Returns at once, so that all text passes ``next_batch``."""
