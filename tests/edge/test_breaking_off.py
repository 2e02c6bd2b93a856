"""A stream that broke off is still being told of: who may disturb that, and what if it goes wrong?"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway.core.errors import ServerDraining, UpstreamDisconnected
from gateway.core.events import Delta, Event
from gateway.core.exchange import Events, Exchange
from gateway.core.text_splice import TextSplice
from gateway.edge.app import App
from gateway.edge.cancellation import ClientGone
from gateway.edge.http_request import HttpRequest
from gateway.server.runtime import Runtime

CONFIG = "models: {m: {template: chatml-tools, targets: [{speaks: scripted, script: s.yaml}]}}\n"
TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
LONG = '<tool_call>{"name": "add", "arguments": {"a": "' + "x" * 100_000
"""Held to its end, and so long that it is read beside the loop: others come to their turn."""

Then = Callable[[HttpRequest], object]


class Spoken(HttpRequest):
    """A request, and all that was said to it."""

    def __init__(self, *, ends: bool = True) -> None:
        """``ends``: False for a connection that fails when it is told of the end."""
        super().__init__("POST", "/v1/chat/completions", {b"host": b"localhost", b"content-type": b"application/json"})
        message = {"role": "user", "content": "hi"}
        self.buffered_body = json.dumps({"model": "m", "stream": True, "messages": [message], "tools": [TOOL]}).encode()
        self.heads: list[int] = []
        self.said = b""
        self.abandoned = False
        self._ends = ends

    async def body(self, limit: int) -> bytes:
        raise AssertionError("it was there at once")

    def reply(self, status: int, headers: bytes, body: bytes) -> None:
        self.start(status, headers)
        self.end(body)

    def start(self, status: int, headers: bytes) -> None:
        self.status = status
        self.heads.append(status)

    async def write(self, frames: bytes, seconds: float) -> None:
        self.said += frames

    def end(self, last: bytes = b"") -> None:
        if not self._ends:
            raise OSError("the connection has failed")
        self.said += last
        self.complete = True

    def abort(self) -> None:
        self.abandoned = True

    @property
    def bodies(self) -> list[dict[str, Any]]:
        events = self.said.decode().removesuffix("data: [DONE]\n\n").split("\n\n")
        return [json.loads(event.removeprefix("data: ")) for event in events if event]

    @property
    def content(self) -> str:
        deltas = [choice["delta"] for body in self.bodies for choice in body.get("choices", ())]
        return "".join(delta.get("content") or "" for delta in deltas)

    @property
    def code(self) -> str | None:
        error = self.bodies[-1].get("error")
        return None if error is None else str(error["code"])


class Breaks:
    """A backend that says something and breaks off; as it is closed, something else is about to happen."""

    exhausted = False

    def __init__(self, batches: Sequence[Sequence[Event]], then: Callable[[], object]) -> None:
        self._left = list(batches)
        self._then = then

    @asynccontextmanager
    async def open(self, exchange: Exchange) -> AsyncIterator[Events]:
        try:
            yield self
        finally:
            asyncio.get_running_loop().call_soon(self._then)

    async def next_batch(self) -> Sequence[Event]:
        if not self._left:
            raise UpstreamDisconnected("gone")
        return self._left.pop(0)

    async def forward_text(self, splice: TextSplice) -> None:
        pass


def tell(folder: Path, asked: Spoken, batches: Sequence[Sequence[Event]], then: Then = lambda asked: None) -> list[str]:
    """Serve one request; the outcomes that were recorded."""
    (folder / "gateway.yaml").write_text(CONFIG)
    (folder / "s.yaml").write_text("[never asked]")

    async def run() -> list[str]:
        runtime = Runtime(folder / "gateway.yaml", {})
        runtime.open(runtime.load())
        stack = runtime.state.stack
        route = replace(stack.routes["m"], backend=Breaks(batches, lambda: then(asked)))
        runtime.state.stack = replace(stack, routes={"m": route})
        try:
            asked.task = asyncio.create_task(App(runtime.state)(asked))
            await asyncio.wait([asked.task], timeout=30)
            assert asked.task.done()
        finally:
            await runtime.stop()
        families = [one for one in runtime.metrics.snapshot().collect() if one.name == "gateway_requests"]
        return [sample.labels["outcome"] for one in families for sample in one.samples if sample.value == 1]

    return asyncio.run(run())


WHO: dict[str, Then] = {
    "nobody": lambda asked: None,
    "the client leaves": lambda asked: asked.cancel(ClientGone()),
    "the process leaves": lambda asked: asked.cancel(ServerDraining("")),
}


@pytest.mark.parametrize("who", WHO)
def test_held_text_that_takes_long_to_read_is_told_whoever_leaves_meanwhile(tmp_path: Path, who: str) -> None:
    asked = Spoken()
    outcomes = tell(tmp_path, asked, [[Delta(0, "I add.")], [Delta(0, LONG)]], WHO[who])
    assert (outcomes, asked.heads, asked.code) == (["upstream_disconnected"], [200], "upstream_disconnected")
    assert asked.content == "I add." + LONG


def test_a_call_that_is_killed_while_it_tells_has_failed_as_it_had(tmp_path: Path) -> None:
    def kill(asked: HttpRequest) -> None:
        assert asked.task is not None
        asked.task.cancel()

    asked = Spoken()
    outcomes = tell(tmp_path, asked, [[Delta(0, "I add.")], [Delta(0, LONG)]], kill)
    assert (outcomes, asked.heads, asked.abandoned) == (["upstream_disconnected"], [200], True)
    assert asked.task is not None
    assert asked.task.cancelled()


def test_held_text_that_cannot_be_told_does_not_hide_the_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    odd = Delta(0, "im", fields={"odd": object()})  # no JSON, and held behind half a stop
    asked = Spoken()
    outcomes = tell(tmp_path, asked, [[Delta(0, "I add.")], [Delta(0, "<|"), odd]])
    assert (outcomes, asked.heads, asked.code) == (["upstream_disconnected"], [200], "upstream_disconnected")
    assert asked.content == "I add."
    assert f"{asked.request_id}: the held text of its stream is lost" in caplog.text


def test_a_second_head_is_never_written_into_an_answer(tmp_path: Path) -> None:
    asked = Spoken(ends=False)
    tell(tmp_path, asked, [[Delta(0, "I add.")]])
    assert (asked.heads, asked.abandoned) == ([200], True)
    assert asked.content == "I add."


def test_errors_of_a_request_that_was_told_nothing_are_told(tmp_path: Path) -> None:
    asked = Spoken()
    tell(tmp_path, asked, [])
    assert (asked.heads, json.loads(asked.said)["error"]["code"]) == (
        [UpstreamDisconnected.status],
        "upstream_disconnected",
    )
