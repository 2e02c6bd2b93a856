"""A delivery layer needs only the methods that it changes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace

from gateway.core.events import Delta, Event
from gateway.core.exchange import Events, Exchange
from gateway.policy.deliver.first_token_gate import FirstTokenGate
from gateway.policy.deliver.layer import Layer, LayerStream
from gateway.policy.deliver.timeouts import Timeouts
from tests.policy.asking import ask, leave_after
from tests.recording_backend import RecordingBackend


class Shout(Layer):
    """Text in capitals."""

    def open(self, exchange: Exchange) -> AbstractAsyncContextManager[Events]:
        return ShoutStream(self._inner.open(exchange))


class ShoutStream(LayerStream):
    async def next_batch(self) -> Sequence[Event]:
        batch = await self._events.next_batch()
        return [replace(event, text=event.text.upper()) if isinstance(event, Delta) else event for event in batch]


def test_a_layer_stands_anywhere_in_the_stack() -> None:
    inner = RecordingBackend(["a", "b", {"finish": "stop"}])
    assert ask(Shout(Timeouts(FirstTokenGate(inner, 1), 1, 1))).texts == {0: "AB"}
    assert ask(Timeouts(FirstTokenGate(Shout(inner), 1), 1, 1)).texts == {0: "AB"}


def test_a_layer_that_changes_nothing_passes_everything_on() -> None:
    inner = RecordingBackend(["a", "b", {"finish": "stop"}])
    assert ask(Layer(inner)).events == ask(inner).events
    leave_after(Layer(inner), 1)
    assert (inner.active, inner.left_early) == (0, 1)
