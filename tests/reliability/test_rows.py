"""Rows of the fault matrix that no other test shows."""

from __future__ import annotations

import re
import socket
from contextlib import ExitStack

from tests.reliability.figures import CANARY, CLIENT_KEY, HEADERS, TARGET_KEY, request_bytes
from tests.support.serving import ROOT
from tests.support.world import World

WALL_CLOCK = {
    "backend/openai/error_mapping.py",  # a retry-after that is a date
    "calls/endpoints/writer.py",  # ``created`` of an answer
    "calls/preparation/reasoning_replay.py",  # the age of a reasoning, also after a restart
    "policy/deliver/cache.py",  # the age of an answer, also after a restart
    "storage/recorder.py",  # the age of a recording
    "policy/deliver/recording.py",  # the time of a recording
    "policy/access/api_keys.py",  # the expiry of a key, which is a date
    "server/reload.py",  # ``created`` of the model list
    "wire/responses_api/writer.py",  # ``created_at`` of an answer
}
"""Files of a call's life that read the wall clock."""
CLOCKS = re.compile(r"\btime\.(time|localtime|gmtime)\b|\bdatetime\.(now|utcnow|today)\b")


def test_c25_an_endless_stream_ends_at_the_deadline_with_an_error_event(world: World) -> None:
    def counted() -> float:
        return world.served.metric(
            "gateway_requests_total", endpoint="chat", model="deadline", outcome="deadline_exceeded"
        )

    before = counted()
    answer = world.served.chat("deadline", stream=True)
    assert answer.status_code == 200
    *texts, error, done, end = answer.text.split("\n\n")
    assert texts
    assert '"code":"deadline_exceeded"' in error
    assert (done, end) == ("data: [DONE]", "")
    assert world.up.wait(lambda: world.up.active == 0)
    assert world.served.wait_until_idle()
    assert counted() == before + 1


def test_d10_hundreds_of_connections_at_once_are_all_served(world: World) -> None:
    with ExitStack() as stack:
        links = [
            stack.enter_context(socket.create_connection(("127.0.0.1", world.served.port), timeout=60))
            for _ in range(300)
        ]
        for link in links:
            link.sendall(request_bytes("ok", stream=False))
        assert {link.recv(12) for link in links} == {b"HTTP/1.1 200"}


def test_e11_deadlines_do_not_read_the_wall_clock() -> None:
    reading = {
        str(path.relative_to(ROOT / "gateway"))
        for folder in ("backend", "calls", "core", "edge", "policy", "server", "storage", "stream", "wire")
        for path in (ROOT / "gateway" / folder).rglob("*.py")
        if CLOCKS.search(path.read_text(encoding="utf-8"))
    }
    assert reading == WALL_CLOCK


def test_f08_f09_no_header_of_the_client_is_sent_upstream(world: World) -> None:
    assert world.served.chat("ok").status_code == 200
    sent = world.up.requests[-1].headers
    assert sent["authorization"] == f"Bearer {TARGET_KEY}"
    assert sent["accept-encoding"] == "identity"
    assert not sent.keys() & {"cookie", "x-api-key", "x-forwarded-for", "forwarded"}
    assert [value for value in sent.values() if CANARY in value and TARGET_KEY not in value] == []
    assert CLIENT_KEY in HEADERS["authorization"]


def test_f23_answers_are_not_compressed(world: World) -> None:
    for stream in (False, True):
        answer = world.served.chat("ok", stream=stream)
        assert answer.request.headers["accept-encoding"] == "gzip, br"
        assert "content-encoding" not in answer.headers


def test_h07_histograms_hold_no_more_calls_than_the_counters(world: World) -> None:
    world.served.chat("ok", stream=True)
    assert world.served.wait_until_idle()
    labels = {"model": "ok"}
    counted = world.served.metric("gateway_requests_total", endpoint="chat", model="ok", outcome="ok")
    first_tokens = world.served.metric("gateway_first_token_seconds_count", **labels)
    assert 0 < first_tokens <= counted
    assert 0 < world.served.metric("gateway_first_token_seconds_sum", **labels) < 1000 * first_tokens
