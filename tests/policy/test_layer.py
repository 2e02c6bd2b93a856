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
from tests.policy.responses import OBSERVER, leave_after, read_response
from tests.recording_backend import RecordingBackend


class Shout(Layer):
    """A layer that changes text to upper case."""

    def open(self, exchange: Exchange) -> AbstractAsyncContextManager[Events]:
        return ShoutStream(self._inner.open(exchange))


class ShoutStream(LayerStream):
    async def next_batch(self) -> Sequence[Event]:
        batch = await self._events.next_batch()
        return [replace(event, text=event.text.upper()) if isinstance(event, Delta) else event for event in batch]


def test_a_layer_works_at_any_place_in_the_stack() -> None:
    inner = RecordingBackend(["a", "b", {"finish": "stop"}])
    assert read_response(Shout(Timeouts(FirstTokenGate(inner, 1), 1, 1, OBSERVER))).texts == {0: "AB"}
    assert read_response(Timeouts(FirstTokenGate(Shout(inner), 1), 1, 1, OBSERVER)).texts == {0: "AB"}


def test_a_layer_without_methods_forwards_all_events() -> None:
    inner = RecordingBackend(["a", "b", {"finish": "stop"}])
    assert read_response(Layer(inner)).events == read_response(inner).events
    leave_after(Layer(inner), 1)
    assert (inner.active, inner.left_early) == (0, 1)
