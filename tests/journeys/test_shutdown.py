"""Shutdown by signals, for clients, health checks and operators (rows E01 to E05, H03)."""

from __future__ import annotations

import json
import re
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from tests.edge.raw import closes, read_reply
from tests.journeys.process import Process, serving
from tests.support.ports import free_port
from tests.support.serving import WAIT_SECONDS, eventually

CONFIG = """\
server: {{drain: {drain}, admin: "127.0.0.1:{admin}"{server}}}
models:
  endless: {{template: chatml, targets: [{{speaks: scripted, script: endless.yaml}}]}}
  twice: {{template: chatml, targets: [{{speaks: scripted, script: twice.yaml}}]}}
  silent: {{template: chat, targets: [{{speaks: scripted, script: silent.yaml}}]}}
  quick: {{template: chat, targets: [{{speaks: scripted, script: quick.yaml}}]}}
  single: {{template: chat, policy: single, targets: [{{speaks: scripted, script: endless.yaml}}]}}
"""


def files(admin: int, drain: str = "1s", server: str = "") -> dict[str, str]:
    return {
        "gateway.yaml": CONFIG.format(admin=admin, drain=drain, server=server),
        "policies/single.yaml": "limits: {concurrency: 1, queue_wait: 500s}\n",
        "endless.yaml": '[begun, "<|im", {pause: 50}, {finish: stop}]\n',
        "twice.yaml": '[begun, "<|im", {text: too, index: 1}, {text: "<|i", index: 1}, {pause: 50}, {finish: stop}]\n',
        "silent.yaml": "[{pause: 50}, late, {finish: stop}]\n",
        "quick.yaml": "[quick, {finish: stop}]\n",
    }


Ask = Callable[..., socket.socket]


@pytest.fixture
def ask() -> Iterator[Ask]:
    """A function that sends a call on a new connection, which is closed after the test."""
    with ExitStack() as links:

        def send(process: Process, model: str, *, stream: bool = False, n: int = 1) -> socket.socket:
            message = {"role": "user", "content": "hi"}
            body = json.dumps({"model": model, "stream": stream, "n": n, "messages": [message]}).encode()
            link = links.enter_context(socket.create_connection(("127.0.0.1", process.port), timeout=60))
            head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            link.sendall(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
            return link

        yield send


def rest(link: socket.socket) -> bytes:
    said = b""
    while more := link.recv(65536):
        said += more
    return said


def metrics(admin: int) -> bytes:
    return httpx.get(f"http://127.0.0.1:{admin}/metrics", trust_env=False, verify=False, timeout=60).content


def until(link: socket.socket, word: bytes) -> None:
    said = b""
    while word not in said:
        more = link.recv(65536)
        assert more
        said += more


def test_calls_that_outlast_the_drain_get_an_error(tmp_path: Path, ask: Ask) -> None:
    admin = free_port()
    with serving(tmp_path, files(admin)) as process:
        begun, waiting = ask(process, "endless", stream=True), ask(process, "silent")
        twice = ask(process, "twice", stream=True, n=2)
        until(begun, b"begun")
        until(twice, b"too")
        assert eventually(lambda: len(re.findall(rb"gateway_in_flight{.*} 1.0", metrics(admin))) == 3)
        started = time.monotonic()
        process.signal(signal.SIGTERM)
        reply = read_reply(waiting)
        said, both = rest(begun), rest(twice)
        assert time.monotonic() - started > 0.8
        assert (reply.status, reply.json()["error"]["code"]) == (503, "server_draining")
        for stream, held in (said, b'"<|im"'), (both, b'"<|im"'), (both, b'"<|i"'):
            assert stream.index(held) < stream.index(
                b'"code":"server_draining"'
            )  # it was held as the possible beginning of the stop
            assert b"data: [DONE]\n\n" in stream
            assert stream.endswith(b"0\r\n\r\n")
            assert b'finish_reason":"' not in stream
        assert process.process.wait(WAIT_SECONDS) == 0
    assert process.log.count("outcome=server_draining") == 3
    assert re.search(
        r"INFO process \d+ drains and .*; 3 running calls may take 1 s to end \(server.drain\)", process.log
    )
    assert re.search(r"WARNING process \d+ has drained for [\d.]+ s; calls ended early by server.drain: 3", process.log)
    assert process.log.splitlines()[-1].endswith("has stopped")
    assert "Traceback" not in process.log


def test_a_drain_makes_readiness_fail_and_closes_idle_connections(tmp_path: Path, ask: Ask) -> None:
    admin = free_port()
    with serving(tmp_path, files(admin, drain="60s", server=", drain_notice: 100ms")) as process:
        idle, busy = ask(process, "quick"), ask(process, "endless", stream=True)
        assert read_reply(idle).status == 200
        until(busy, b"begun")
        assert (
            httpx.get(f"http://127.0.0.1:{admin}/health/ready", trust_env=False, verify=False, timeout=60).status_code
            == 200
        )
        process.signal(signal.SIGTERM)
        assert closes(idle, WAIT_SECONDS)
        assert eventually(lambda: not process.accepts())
        assert (
            httpx.get(f"http://127.0.0.1:{admin}/health/ready", trust_env=False, verify=False, timeout=60).status_code
            == 503
        )
        assert (
            httpx.get(f"http://127.0.0.1:{admin}/health/live", trust_env=False, verify=False, timeout=60).status_code
            == 200
        )
        busy.close()
        assert process.process.wait(WAIT_SECONDS) == 0
        assert re.search(r"INFO process \d+ has drained in [\d.]+ s; every call has ended", process.log)


def test_a_second_signal_aborts_running_calls(tmp_path: Path, ask: Ask) -> None:
    with serving(tmp_path, files(free_port(), drain="30s")) as process:
        begun = ask(process, "endless", stream=True)
        until(begun, b"begun")
        process.signal(signal.SIGTERM)
        assert eventually(lambda: not process.accepts())
        process.signal(signal.SIGTERM)
        assert process.process.wait(WAIT_SECONDS) == 1
        assert process.log.count("outcome=cancelled") == 1
        assert "calls ended early by a second signal: 1" in process.log


def test_a_call_that_waits_for_a_place_is_refused_at_once(tmp_path: Path, ask: Ask) -> None:
    admin = free_port()
    with serving(tmp_path, files(admin, drain="60s")) as process:
        running = ask(process, "single", stream=True)
        until(running, b"begun")
        waiting = ask(process, "single")
        assert eventually(lambda: b'gateway_in_flight{endpoint="chat",model="single"} 2.0' in metrics(admin))
        process.signal(signal.SIGTERM)
        reply = read_reply(waiting)
        assert (reply.status, reply.json()["error"]["code"]) == (503, "overloaded")
        assert reply.json()["error"]["message"] == "the gateway is shutting down; retry later"
        assert reply.headers["connection"] == "close"
        assert b'gateway_shed_total{reason="draining"} 1.0' in metrics(admin)
        assert b'gateway_in_flight{endpoint="chat",model="single"} 1.0' in metrics(admin), "the other call continues"


def test_during_the_notice_calls_are_served_and_readiness_fails(tmp_path: Path, ask: Ask) -> None:
    admin = free_port()
    notice = ", drain_notice: 500s, workers: 2"

    def ready() -> int:
        return httpx.get(
            f"http://127.0.0.1:{admin}/health/ready", trust_env=False, verify=False, timeout=60
        ).status_code

    with serving(tmp_path, files(admin, drain="60s", server=notice)) as process:
        kept = ask(process, "quick")
        assert read_reply(kept).headers.get("connection") is None
        process.signal(signal.SIGTERM)
        assert eventually(lambda: [ready() for _ in range(4)] == [503] * 4)
        for _ in range(4):
            reply = read_reply(ask(process, "quick"))
            assert (reply.status, reply.headers["connection"]) == (200, "close")
        kept.sendall(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
        reply = read_reply(kept)
        assert (reply.status, reply.headers["connection"]) == (200, "close")
        process.signal(signal.SIGTERM)
        assert process.process.wait(WAIT_SECONDS) == 1
        assert "Traceback" not in process.log
