"""First-token gate: opening an exchange waits until its answer has begun (``docs/spec/reliability.md`` 4.3).

Until then nothing has been sent to the client. So a failure can be retried, or sent with its real HTTP status.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

from gateway.core.errors import UpstreamInvalidResponse, UpstreamTimeout
from gateway.core.exchange import Backend, Events, Exchange
from gateway.core.text_splice import TextSource, text_source
from gateway.policy.deliver.deadline import Deadline, SharedTimer
from gateway.policy.deliver.layer import Layer, LayerStream
from metatemplate.values.events import Delta, Event, is_content

MAX_HELD = 64
"""The maximum number of events that the gate holds back. Then the exchange is open even if no content has arrived."""


class FirstTokenGate(Layer):
    """A backend that opens an exchange only when its first content has arrived."""

    def __init__(self, inner: Backend, first_token: float) -> None:
        super().__init__(inner)
        self.seconds = first_token
        self.timer = SharedTimer()
        self.message = f"the model's server sent no content within {first_token:g} s (delivery.timeout.first_token)"

    def open(self, exchange: Exchange) -> GatedStream:
        """Open an exchange. Raises ``UpstreamTimeout`` if a stream has no content within ``first_token`` seconds.

        For an answer that is not streamed, only the total time limit applies.
        """
        return GatedStream(self._inner.open(exchange), self if exchange.stream else None)

    def deadline(self) -> Deadline:
        """Begin the time limit of one exchange, in the task that opens it."""
        loop = asyncio.get_running_loop()
        return Deadline(self.timer, loop, loop.time() + self.seconds, lambda: UpstreamTimeout(self.message))


class GatedStream(LayerStream):
    """The events of one exchange: first the events that the gate has held back, then all other events, unchanged."""

    __slots__ = ("_gate", "_held")

    def __init__(self, inner: AbstractAsyncContextManager[Events], gate: FirstTokenGate | None) -> None:
        """``gate``: has the time limit; None for an exchange without one."""
        self._inner = inner
        self._gate = gate
        self._held: Sequence[Event] = ()

    async def __aenter__(self) -> Events:
        deadline = None if self._gate is None else self._gate.deadline()
        try:
            self._events = events = await self._inner.__aenter__()
            try:
                self._held = held = await events.next_batch()
                for event in held:  # usually the first batch already has text
                    if type(event) is Delta and event.text:
                        return self
                self._held = await _until_content(held, events)
                return self
            except BaseException as error:
                await self._inner.__aexit__(type(error), error, error.__traceback__)
                raise
        except BaseException as error:
            if deadline is not None:
                deadline.translate(error)
            raise
        finally:
            if deadline is not None:
                deadline.stop()

    @property
    def exhausted(self) -> bool:
        """Return whether no events are left. See ``Events.exhausted``."""
        return self._events.exhausted and not self._held

    def next_batch(self) -> Coroutine[Any, Any, Sequence[Event]]:
        """Return the next events. See ``Events.next_batch``.

        If no events are held back, the upstream's coroutine is returned, to save one coroutine per batch.
        """
        return self._take_held() if self._held else self._events.next_batch()

    @property
    def text_source(self) -> TextSource | None:
        """The object that forwards the text of the upstream, past the gate."""
        return text_source(self._events)

    async def _take_held(self) -> Sequence[Event]:
        held, self._held = self._held, ()
        return held


async def _until_content(batch: Sequence[Event], events: Events) -> Sequence[Event]:
    """Return all events up to the first batch with content, beginning with the events of ``batch``."""
    held: Sequence[Event] = ()
    while batch:
        held = [*held, *batch] if held else batch
        if any(map(is_content, batch)) or len(held) >= MAX_HELD:
            return held
        batch = await events.next_batch()
    raise UpstreamInvalidResponse("the model's server answered with an empty stream")
