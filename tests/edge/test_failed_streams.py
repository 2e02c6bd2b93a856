"""Error responses of failed streams: cancellations and failures while they are sent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway.calls.endpoints.cancellation import ClientGone
from gateway.core.errors import ServerDraining, UpstreamDisconnected
from gateway.core.exchange import Events, Exchange
from gateway.edge.app import App
from gateway.edge.http_request import HttpRequest
from gateway.server.reload import ConfigLoader
from gateway.server.runtime import Runtime
from metatemplate.values.events import Delta, Event

CONFIG = "models: {m: {template: chatml-tools, targets: [{speaks: scripted, script: s.yaml}]}}\n"
TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
LONG = '<tool_call>{"name": "add", "arguments": {"a": "' + "x" * 100_000
"""Text that is held to its end, and is parsed in a thread because it is long."""

Then = Callable[[HttpRequest], object]


class RecordedRequest(HttpRequest):
    """A request that records its response."""

    def __init__(self, *, ends: bool = True) -> None:
        """``ends``: False for a connection that fails in ``end``."""
        super().__init__("POST", "/v1/chat/completions", {b"host": b"localhost", b"content-type": b"application/json"})
        message = {"role": "user", "content": "hi"}
        self.buffered_body = json.dumps({"model": "m", "stream": True, "messages": [message], "tools": [TOOL]}).encode()
        self.heads: list[int] = []
        self.sent = b""
        self.abandoned = False
        self._ends = ends

    async def body(self, limit: int) -> bytes:
        raise AssertionError("the body is buffered")

    def reply(self, status: int, headers: bytes, body: bytes) -> None:
        self.start(status, headers)
        self.end(body)

    def start(self, status: int, headers: bytes) -> None:
        self.status = status
        self.heads.append(status)

    async def write(self, frames: bytes, seconds: float) -> None:
        self.sent += frames

    def end(self, last: bytes = b"") -> None:
        if not self._ends:
            raise OSError("the connection has failed")
        self.sent += last
        self.complete = True

    def abort(self) -> None:
        self.abandoned = True

    @property
    def bodies(self) -> list[dict[str, Any]]:
        events = self.sent.decode().removesuffix("data: [DONE]\n\n").split("\n\n")
        return [json.loads(event.removeprefix("data: ")) for event in events if event]

    @property
    def content(self) -> str:
        deltas = [choice["delta"] for body in self.bodies for choice in body.get("choices", ())]
        return "".join(delta.get("content") or "" for delta in deltas)

    @property
    def code(self) -> str | None:
        error = self.bodies[-1].get("error")
        return None if error is None else str(error["code"])


class FailingBackend:
    """A backend that sends batches and then fails; ``then`` is called soon after it is closed."""

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


def serve(
    folder: Path, request: RecordedRequest, batches: Sequence[Sequence[Event]], then: Then = lambda request: None
) -> list[str]:
    """Serve one request; returns the recorded outcomes."""
    (folder / "gateway.yaml").write_text(CONFIG)
    (folder / "s.yaml").write_text("[never called]")

    async def run() -> list[str]:
        loader = ConfigLoader(folder / "gateway.yaml", {})
        runtime = Runtime(loader)
        runtime.open(loader.load())
        stack = runtime.state.stack
        route = replace(stack.routes["m"], backend=FailingBackend(batches, lambda: then(request)))
        runtime.state.stack = replace(stack, routes={"m": route})
        try:
            request.task = asyncio.create_task(App(runtime.state)(request))
            await asyncio.wait([request.task], timeout=30)
            assert request.task.done()
        finally:
            await runtime.stop()
        families = [one for one in runtime.metrics.snapshot().collect() if one.name == "gateway_requests"]
        return [sample.labels["outcome"] for one in families for sample in one.samples if sample.value == 1]

    return asyncio.run(run())


CANCELLATIONS: dict[str, Then] = {
    "no cancellation": lambda request: None,
    "the client disconnects": lambda request: request.cancel(ClientGone()),
    "the server drains": lambda request: request.cancel(ServerDraining("")),
}


@pytest.mark.parametrize("case", CANCELLATIONS)
def test_held_text_is_sent_if_the_call_is_cancelled_meanwhile(tmp_path: Path, case: str) -> None:
    request = RecordedRequest()
    outcomes = serve(tmp_path, request, [[Delta(0, "I add.")], [Delta(0, LONG)]], CANCELLATIONS[case])
    assert (outcomes, request.heads, request.code) == (["upstream_disconnected"], [200], "upstream_disconnected")
    assert request.content == "I add." + LONG


def test_a_call_cancelled_while_it_reports_a_failure_keeps_its_outcome(tmp_path: Path) -> None:
    def kill(request: HttpRequest) -> None:
        assert request.task is not None
        request.task.cancel()

    request = RecordedRequest()
    outcomes = serve(tmp_path, request, [[Delta(0, "I add.")], [Delta(0, LONG)]], kill)
    assert (outcomes, request.heads, request.abandoned) == (["upstream_disconnected"], [200], True)
    assert request.task is not None
    assert request.task.cancelled()


def test_held_text_that_cannot_be_sent_does_not_hide_the_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    odd = Delta(0, "im", fields={"odd": object()})  # not JSON, and held after half a stop
    request = RecordedRequest()
    outcomes = serve(tmp_path, request, [[Delta(0, "I add.")], [Delta(0, "<|"), odd]])
    assert (outcomes, request.heads, request.code) == (["upstream_disconnected"], [200], "upstream_disconnected")
    assert request.content == "I add."
    assert f"request {request.request_id} failed, and its unsent text could not be sent" in caplog.text


def test_an_error_after_the_head_writes_no_second_head(tmp_path: Path) -> None:
    request = RecordedRequest(ends=False)
    serve(tmp_path, request, [[Delta(0, "I add.")]])
    assert (request.heads, request.abandoned) == ([200], True)
    assert request.content == "I add."


def test_an_error_before_the_head_gets_its_own_status(tmp_path: Path) -> None:
    request = RecordedRequest()
    serve(tmp_path, request, [])
    assert (request.heads, json.loads(request.sent)["error"]["code"]) == (
        [UpstreamDisconnected.status],
        "upstream_disconnected",
    )
