"""The scripted backend with a record of its exchanges and how they ended."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from gateway.backend.scripted import Script, ScriptedBackend
from gateway.core.errors import GatewayError
from gateway.core.exchange import Events, Exchange
from metatemplate.values.events import Event


class RecordingBackend(ScriptedBackend):
    """``exchanges``: those received; ``active``: number open; ``left_early``: number left before the script's end."""

    def __init__(self, *scripts: Script, label: str = "scripted/0") -> None:
        super().__init__(*scripts, label=label)
        self.exchanges: list[Exchange] = []
        self.active = 0
        self.left_early = 0

    @asynccontextmanager
    async def open(self, exchange: Exchange) -> AsyncIterator[Events]:
        self.exchanges.append(exchange)
        async with super().open(exchange) as events:
            recording = RecordingEvents(events)
            self.active += 1
            try:
                yield recording
            finally:
                self.active -= 1
                self.left_early += not recording.ended


class RecordingEvents:
    """The events of a script; ``ended``: their end was reached."""

    exhausted = False

    def __init__(self, events: Events) -> None:
        self._events = events
        self.ended = False

    async def next_batch(self) -> Sequence[Event]:
        try:
            batch = await self._events.next_batch()
        except GatewayError:
            self.ended = True
            raise
        self.ended = not batch
        return batch
