"""A stream wakes the task of its call once for the first token, and once for its end."""

from __future__ import annotations

import json
import socket
from collections.abc import Coroutine, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from metatemplate.values import fast_paths
from tests.support.serving import eventually, gateway

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
BODY = json.dumps({"model": "m", "stream": True, "messages": [{"role": "user", "content": "hi"}]}).encode()
REQUEST = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"


def piece(text: str, finish: str | None = None, *, last: bool = False) -> bytes:
    """One chunk of a chunked body, with one event of an engine, and the end of the stream if it is the ``last``."""
    event = {"id": "c", "choices": [{"index": 0, "text": text, "finish_reason": finish}]}
    data = b"data: " + json.dumps(event).encode() + b"\n\n" + (b"data: [DONE]\n\n" if last else b"")
    return b"%x\r\n%b\r\n" % (len(data), data) + (b"0\r\n\r\n" if last else b"")


class CountedSteps(Coroutine[Any, Any, Any]):
    """A coroutine that counts how often its task runs it."""

    def __init__(self, inner: Coroutine[Any, Any, Any], steps: list[None]) -> None:
        self._inner, self._steps = inner, steps

    def send(self, value: Any) -> Any:
        self._steps.append(None)
        return self._inner.send(value)

    def throw(self, *error: Any) -> Any:
        return self._inner.throw(*error)

    def close(self) -> None:
        self._inner.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._inner.__await__()


class Stream:
    """One call: the connections of its client and of its engine, and the steps of the tasks that began with it."""

    def __init__(self, client: socket.socket, engine: socket.socket, steps: list[None]) -> None:
        self.client, self.engine, self.steps = client, engine, steps

    def switches_until(self, written: bytes, awaited: bytes) -> int:
        """Write bytes as the engine. Returns the task switches until the client has received ``awaited``."""
        before, received = len(self.steps), b""
        self.engine.sendall(written)
        while awaited not in received:
            data = self.client.recv(65536)
            assert data, received
            received += data
        return len(self.steps) - before


@pytest.fixture
def stream(tmp_path: Path) -> Iterator[Stream]:
    steps: list[None] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        config = f"models: {{m: {{template: chatml, targets: [{{speaks: completions, url: '{url}', model: m}}]}}}}\n"
        with (
            gateway(tmp_path, config, around=lambda handling: CountedSteps(handling, steps)) as served,
            socket.create_connection(("127.0.0.1", served.port), timeout=60) as client,
        ):
            client.sendall(REQUEST + b"content-length: %d\r\n\r\n" % len(BODY) + BODY)
            engine, _ = listener.accept()
            with engine:
                engine.settimeout(60)
                received = b""
                while b"\r\n\r\n" not in received or not received.endswith(b"}"):
                    received += engine.recv(65536)
                yield Stream(client, engine, steps)


def test_head_and_first_event_in_one_piece_are_one_switch(stream: Stream) -> None:
    assert stream.switches_until(HEAD + piece("one"), b'"one"') == 1


def test_a_head_before_the_first_event_is_no_switch_of_its_own(stream: Stream) -> None:
    before = len(stream.steps)
    stream.engine.sendall(HEAD)
    assert not eventually(lambda: len(stream.steps) > before, 0.2)
    assert stream.switches_until(piece("one"), b'"one"') == 1


@pytest.mark.skipif(not fast_paths.ENABLED, reason="fast paths are off")
def test_further_text_needs_no_switch(stream: Stream) -> None:
    stream.switches_until(HEAD + piece("one"), b'"one"')
    assert stream.switches_until(piece("two"), b'"two"') == 0
    assert stream.switches_until(piece("three") + piece("four"), b'"four"') == 0


def test_the_end_is_one_switch(stream: Stream) -> None:
    stream.switches_until(HEAD + piece("one"), b'"one"')
    assert stream.switches_until(piece("", "stop", last=True), b"[DONE]") == 1
