"""The built-in HTTP server and the ASGI application in uvicorn give the same responses."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.edge.raw import HEAD
from tests.support.serving import SERVERS, HttpGateway, eventually, gateway
from tests.support.upstream.server import FaultyUpstream

CONFIG = """\
server: {{max_body: 1KiB}}
models:
  quick: {{template: chat, targets: [{{speaks: scripted, script: quick.yaml}}]}}
  slow: {{template: chat, targets: [{{speaks: scripted, script: slow.yaml}}]}}
  broken: {{template: chat, targets: [{{speaks: scripted, script: broken.yaml}}]}}
  flood: {{template: chat, policy: short, targets: [{{speaks: scripted, script: flood.yaml}}]}}
  pours: {{template: chat, policy: idle, targets: [{{speaks: chat, url: "{url}"}}]}}
"""
FLOOD = "x" * 50_000 + "@@", "y" * 50_000 + "##"
"""Pieces of 15 MB, more than any socket buffer; the end of each may be a stop and is held until the next piece."""
SCRIPTS = {
    "quick.yaml": "[Hel, lo, {finish: stop}]\n",
    "slow.yaml": "[begun, {pause: 50}, {finish: stop}]\n",
    "broken.yaml": "[begun, {error: upstream_disconnected}]\n",
    "flood.yaml": f'[&a "{FLOOD[0]}", &b "{FLOOD[1]}"{", *a, *b" * 150}, {{finish: stop}}]\n',
    "policies/short.yaml": "delivery: {timeout: {total: 2s}}\n",
    "policies/idle.yaml": "delivery: {timeout: {idle: 500ms, total: 60s}}\n",
}


@pytest.fixture(scope="module", params=SERVERS)
def served(
    up: FaultyUpstream, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[HttpGateway]:
    folder = tmp_path_factory.mktemp(request.param)
    with SERVERS[request.param](folder, CONFIG.format(url=up.url("flood")), files=SCRIPTS) as one:
        yield one


POURS = json.dumps({"model": "pours", "stream": True, "messages": [{"role": "user", "content": "hi"}]}).encode()


@contextmanager
def small_window(served: HttpGateway, body: bytes) -> Iterator[socket.socket]:
    """A chat call on a connection with a small receive buffer."""
    with socket.socket() as link:
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * 1024)
        link.settimeout(60)
        link.connect(("127.0.0.1", served.port))
        link.sendall(b"POST /v1/chat/completions HTTP/1.1\r\n%bConnection: close\r\n" % HEAD)
        link.sendall(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
        yield link


def test_a_whole_answer_with_all_its_headers(served: HttpGateway) -> None:
    answer = served.chat("quick")
    assert answer.json()["choices"][0]["message"]["content"] == "Hello"
    expected = {
        "date",
        "x-request-id",
        "openai-version",
        "content-type",
        "content-length",
        "x-gateway-model",
        "x-gateway-template",
        "x-gateway-prompt-sha256",
        "x-gateway-policy",
        "x-gateway-target",
        "x-gateway-attempts",
        "x-gateway-overhead-ms",
        "openai-processing-ms",
    }
    assert set(answer.headers) == expected
    assert answer.headers["x-gateway-target"] == "quick/0"


def test_a_stream_has_frames_and_done(served: HttpGateway) -> None:
    answer = served.chat("quick", stream=True)
    assert answer.headers["content-type"] == "text/event-stream"
    assert answer.headers["transfer-encoding"] == "chunked"
    assert "Hel" in answer.text
    assert answer.text.endswith("data: [DONE]\n\n")


def test_a_broken_stream_ends_with_an_error_event(served: HttpGateway) -> None:
    answer = served.chat("broken", stream=True)
    assert answer.status_code == 200
    assert '"code":"upstream_disconnected"' in answer.text
    assert answer.text.endswith("data: [DONE]\n\n")


def test_a_refused_large_body_closes_the_connection(served: HttpGateway) -> None:
    answer = served.chat("quick", "x" * 2000)
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "body_too_large")
    assert answer.headers["connection"] == "close"


def test_head_has_no_body_and_wrong_methods_are_refused(served: HttpGateway) -> None:
    known, wrong = served.http.head("/v1/models"), served.http.get("/v1/chat/completions")
    assert (known.status_code, known.content, int(known.headers["content-length"]) > 0) == (200, b"", True)
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "POST")


@pytest.mark.parametrize("stream", [True, False])
def test_a_disconnect_cancels_the_call(served: HttpGateway, stream: bool) -> None:
    labels = {"endpoint": "chat", "model": "slow", "outcome": "client_gone"}
    before = served.metric("gateway_requests_total", **labels)
    body = {"model": "slow", "stream": stream, "messages": [{"role": "user", "content": "hi"}]}
    served.disconnect(body, when=lambda: served.running() == 1)
    assert eventually(lambda: served.metric("gateway_requests_total", **labels) == before + 1)
    assert served.wait_until_idle()


def test_a_total_timeout_during_back_pressure_loses_no_text(served: HttpGateway) -> None:
    message = {"role": "user", "content": "hi"}
    asked = {"model": "flood", "stream": True, "stop": ["@@@", "###"], "messages": [message]}
    body = json.dumps(asked).encode()
    with small_window(served, body) as link:
        time.sleep(2.2)  # the total has passed
        answer = httpx.Response(200, content=_unchunked(link))
    events = [json.loads(line[6:]) for line in answer.text.split("\n\n") if line.startswith("data: {")]
    assert events.pop()["error"]["code"] == "deadline_exceeded"
    said = "".join(event["choices"][0]["delta"].get("content") or "" for event in events)
    assert said
    assert said == "".join(FLOOD * 151)[: len(said)]
    assert len(said) % len(FLOOD[0]) == 0  # the held text of the last piece was sent
    assert served.wait_until_idle()


def test_a_client_that_reads_nothing_is_disconnected_after_the_idle_timeout(
    served: HttpGateway, up: FaultyUpstream
) -> None:
    before, asked = served.metric("gateway_client_gone_total", phase="stalled"), up.request_count
    with small_window(served, POURS) as link:
        assert eventually(lambda: up.request_count > asked)
        assert eventually(lambda: up.active == 0), "the engine goes on"
        assert served.wait_until_idle()
        with link.makefile("rb") as answer:
            assert b"[DONE]" not in answer.read()  # up to the end of the connection
    assert served.metric("gateway_client_gone_total", phase="stalled") == before + 1
    assert served.metric("gateway_requests_total", endpoint="chat", model="pours", outcome="client_stalled") == 1


def test_a_slow_reading_client_is_not_disconnected(up: FaultyUpstream, tmp_path: Path) -> None:
    files = {"policies/idle.yaml": "delivery: {timeout: {idle: 2s}}\n"}
    target = f'{{speaks: chat, url: "{up.url("flood")}"}}'
    model = f"models: {{pours: {{template: chat, policy: idle, targets: [{target}]}}}}"
    with gateway(tmp_path, model, files=files) as served, small_window(served, POURS) as link:
        end = time.monotonic() + 3
        while time.monotonic() < end:
            assert link.recv(16 * 1024)
            time.sleep(0.05)
        assert up.active == 1


def _unchunked(link: socket.socket) -> bytes:
    """The decoded body of the only response on this connection."""
    with link.makefile("rb") as answer:
        while answer.readline() != b"\r\n":
            pass
        body = b""
        while size := int(answer.readline(), 16):
            body += answer.read(size)
            answer.readline()
        return body
