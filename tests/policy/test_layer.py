"""A delivery layer needs only the methods that it changes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path

from gateway.core.exchange import Events, Exchange
from gateway.policy.deliver.first_token_gate import FirstTokenGate
from gateway.policy.deliver.layer import Layer, LayerStream
from gateway.policy.deliver.timeouts import Timeouts
from metatemplate.values.events import Delta, Event
from tests.policy.responses import OBSERVER, read_response
from tests.support.recording_backend import RecordingBackend
from tests.support.serving import Gateway, gateway
from tests.support.upstream.reply import TEXT
from tests.support.upstream.server import FaultyUpstream


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


def streamed_text(served: Gateway) -> str:
    """The text of a streamed answer of model ``m``."""
    lines = served.chat("m", stream=True).text.splitlines()
    chunks = [json.loads(line.removeprefix("data: ")) for line in lines if line and line != "data: [DONE]"]
    return "".join([choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"]])


def test_a_layer_that_changes_text_gets_every_event_of_a_stream(tmp_path: Path) -> None:
    """Text is not forwarded past a layer that defines nothing but ``next_batch``."""
    with FaultyUpstream() as up:
        target = f'{{speaks: completions, url: "{up.url("pause-resume", k=1, ms=50)}", model: m}}'
        with gateway(tmp_path, f"models: {{m: {{template: chatml, targets: [{target}]}}}}\n") as served:
            assert streamed_text(served) == TEXT
            stack = served.runtime.state.stack
            route = stack.routes["m"]
            assert route.backend is not None
            served.runtime.state.stack = replace(stack, routes={"m": replace(route, backend=Shout(route.backend))})
            assert streamed_text(served) == TEXT.upper()
