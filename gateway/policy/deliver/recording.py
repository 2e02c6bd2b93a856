"""Recording: a layer that collects the events of a call with their times. ``recorder.py`` writes them to a file."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace

from gateway.core.exchange import Events, Exchange, RecordedExchange
from gateway.policy.deliver.layer import Layer, LayerStream
from gateway.wire.inlined_file import without_files
from metatemplate.values.events import Delta, Event, delta_size

MAX_RECORDED = 4 * 1024 * 1024
"""The maximum size of a recorded answer, in characters as counted by ``delta_size``. Later events are not recorded."""


class Recording(Layer):
    """A backend that collects the events of ``inner``, if the call is recorded."""

    def open(self, exchange: Exchange) -> AbstractAsyncContextManager[Events]:
        """Open the exchange at ``inner``, and collect its events if the call is recorded. See ``Backend.open``."""
        inner = self._inner.open(exchange)
        recorded = exchange.attempts.recorded
        return inner if recorded is None else _RecordedStream(inner, exchange, recorded)


class _RecordedStream(LayerStream):
    """Passes on the events of one exchange unchanged, and stores each event with the seconds since the opening."""

    __slots__ = ("_exchange", "_moments", "_recorded", "_room", "_started")

    def __init__(
        self, inner: AbstractAsyncContextManager[Events], exchange: Exchange, recorded: list[RecordedExchange]
    ) -> None:
        super().__init__(inner)
        self._exchange = exchange
        if exchange.messages:  # the contents of files are not recorded, and not kept until the end of the call
            self._exchange = replace(exchange, messages=without_files(exchange.messages), rendered=None)
        self._recorded = recorded
        self._room = MAX_RECORDED
        self._moments: list[tuple[float, Event]] = []

    async def __aenter__(self) -> Events:
        self._started = time.monotonic()
        self._recorded.append(RecordedExchange(self._exchange, time.time(), self._moments))
        return await super().__aenter__()

    async def next_batch(self) -> Sequence[Event]:
        """Return the next events, and record them. See ``Events.next_batch``."""
        batch = await self._events.next_batch()
        moment = round(time.monotonic() - self._started, 6)
        for event in batch:
            self._room -= delta_size(event) if isinstance(event, Delta) else 0
            if self._room >= 0:
                self._moments.append((moment, event))
        return batch
