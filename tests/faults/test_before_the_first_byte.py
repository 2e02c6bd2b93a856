"""Rows B01–B23 through the whole gateway: every failure before the answer begins is a real status."""

from __future__ import annotations

import socket
import time

import pytest

from tests.faults.reading import ask
from tests.serving import Gateway, eventually
from tests.upstream.modes_http import INNER_ADDRESS, SECRET
from tests.upstream.reply import TEXT
from tests.upstream.server import FaultyUpstream

ROWS = {  # model: (status, code, how often the upstream is asked; None: it cannot count)
    "refused": (502, "upstream_unreachable", None),  # B01
    "blackhole": (504, "upstream_connect_timeout", None),  # B02
    "nowhere": (502, "upstream_dns_error", None),  # B03
    "hang-headers": (504, "upstream_timeout", 1),  # B04
    "early-close": (502, "upstream_disconnected", 2),  # B05
    "reset": (502, "upstream_disconnected", 2),
    "garbage": (502, "upstream_invalid_response", 2),  # B06
    "bad-status-line": (502, "upstream_invalid_response", 2),
    "partial-headers": (502, "upstream_invalid_response", 2),
    "dribble-headers": (504, "upstream_timeout", 1),  # B07
    "huge-headers": (502, "upstream_invalid_response", 2),  # B08
    "many-headers": (502, "upstream_invalid_response", 2),
    "header-injection": (502, "upstream_invalid_response", 2),
    "cl-and-te": (502, "upstream_invalid_response", 2),  # B09
    "redirect": (502, "upstream_redirect", 1),  # B10
    "redirect-307": (502, "upstream_redirect", 1),
    "html-502": (502, "upstream_error", 2),  # B11
    "500": (502, "upstream_error", 2),  # B12
    "503": (503, "upstream_overloaded", 2),
    "529": (503, "upstream_overloaded", 2),
    "418": (502, "upstream_error", 1),
    "429": (429, "upstream_rate_limited", 1),  # B14
    "429-quota": (502, "upstream_quota_exhausted", 1),  # B15
    "401": (502, "upstream_auth_failed", 1),  # B16
    "400-context": (400, "context_length_exceeded", 1),  # B17
    "400-filter": (400, "content_filter", 1),
    "400": (400, "upstream_rejected_request", 1),
    "404": (502, "upstream_model_missing", 1),  # B18
    "200-html": (502, "upstream_invalid_response", 2),  # B19
    "200-empty": (502, "upstream_invalid_response", 2),
    "200-array": (502, "upstream_invalid_response", 2),
    "200-no-choices": (502, "upstream_invalid_response", 2),
    "200-truncated": (502, "upstream_invalid_response", 2),
    "204": (502, "upstream_invalid_response", 2),
    "200-error-body": (503, "upstream_overloaded", 2),  # B20
    "gzip": (502, "upstream_invalid_response", 2),  # B22
    "huge-json": (502, "upstream_response_too_large", 1),  # B23
}

STREAM_ONLY = {
    "flaky-first-chunk": (503, "upstream_overloaded", 2),  # B20
    "done-only": (502, "upstream_incomplete", 2),  # C06
    "empty-stream": (502, "upstream_incomplete", 2),
    "blank-flood": (502, "upstream_invalid_response", 2),  # bounded, whatever the clocks allow
    "keepalive-only": (504, "upstream_timeout", 1),  # C24: only content stops the first-token clock
    "empty-deltas": (504, "upstream_timeout", 1),
}


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("model", ROWS)
def test_it_has_a_real_status_and_is_asked_as_often_as_the_rules_say(
    faulty: Gateway, up: FaultyUpstream, model: str, stream: bool
) -> None:
    status, code, asked = ROWS[model]
    before, failed = up.request_count, outcomes(faulty, model, code)
    read = ask(faulty, model, stream=stream)
    assert (read.status, read.code) == (status, code)
    assert asked is None or up.request_count - before == asked
    assert up.control_hits == 0
    assert outcomes(faulty, model, code) == failed + 1
    for private in (SECRET, INNER_ADDRESS, "127.0.0.1", "<html", "Traceback"):
        assert private.encode() not in read.raw


@pytest.mark.parametrize("model", STREAM_ONLY)
def test_a_stream_that_never_begins_has_a_real_status(faulty: Gateway, up: FaultyUpstream, model: str) -> None:
    status, code, asked = STREAM_ONLY[model]
    before = up.request_count
    read = ask(faulty, model, stream=True)
    assert (read.status, read.code, up.request_count - before) == (status, code, asked)


@pytest.mark.parametrize(("model", "code"), [("401", "upstream_auth_failed"), ("html-502", "upstream_error")])
def test_a_failure_that_was_retried_or_cannot_change_tells_sdks_not_to_try_again(
    faulty: Gateway, model: str, code: str
) -> None:
    read = ask(faulty, model)
    assert read.code == code
    assert read.headers["x-should-retry"] == "false"


@pytest.mark.parametrize("model", ["401", "reset", "hang-headers"])
def test_a_failed_call_names_the_target_that_failed(faulty: Gateway, model: str) -> None:
    read = ask(faulty, model)
    assert read.code
    assert read.headers["x-gateway-target"] == f"{model}/0"


@pytest.mark.parametrize("model", ["503", "429"])
def test_a_busy_upstream_says_when_to_come_back(faulty: Gateway, model: str) -> None:
    assert 1 <= int(ask(faulty, model).headers["retry-after"]) <= 3600


def test_a_first_failure_is_made_good_by_a_second_attempt(faulty: Gateway) -> None:
    read = ask(faulty, "flaky")
    assert (read.status, read.text) == (200, TEXT)
    assert read.headers["x-gateway-attempts"] == "2"


@pytest.mark.parametrize("mode", ["wrong-content-type", "wrong-mode"])  # B21
@pytest.mark.parametrize("form", ["", "chat/"], ids=["raw", "chat"])
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_a_mislabelled_answer_is_read_by_its_looks(faulty: Gateway, mode: str, form: str, stream: bool) -> None:
    read = ask(faulty, form + mode, stream=stream)
    assert (read.status, read.text, read.finishes) == (200, TEXT, {0: "stop"})


def test_surplus_bytes_never_reach_the_next_client(faulty: Gateway) -> None:  # B09
    texts = [ask(faulty, model).text for model in ("cl-too-short", "ok", "ok")]
    assert texts == [TEXT, TEXT, TEXT]


@pytest.mark.parametrize("model", ["patient/hang-headers", "patient/dribble-headers", "slow-ttfb", "hang-body"])
def test_a_client_that_leaves_before_the_first_byte_frees_the_upstream(
    faulty: Gateway, up: FaultyUpstream, model: str
) -> None:  # C28, T2
    gone = faulty.metric("gateway_client_gone_total", phase="before_first")
    early = len(up.closed_early)
    client = raw_request(faulty, model, stream=False)
    assert eventually(lambda: up.active == 1)
    client.close()
    left = time.monotonic()
    assert eventually(lambda: len(up.closed_early) > early)
    assert up.closed_early[-1] - left < 2.5  # promised: 0.25
    assert eventually(lambda: faulty.metric("gateway_client_gone_total", phase="before_first") == gone + 1)


def outcomes(faulty: Gateway, model: str, code: str) -> float:
    return faulty.metric("gateway_requests_total", endpoint="chat", model=model, outcome=code)


def raw_request(faulty: Gateway, model: str, *, stream: bool) -> socket.socket:
    """A chat request on a socket of our own, to be closed when we like."""
    body = f'{{"model":"{model}","stream":{str(stream).lower()},"messages":[{{"role":"user","content":"hi"}}]}}'
    client = socket.create_connection(("127.0.0.1", faulty.port))
    head = "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    client.sendall(f"{head}content-length: {len(body)}\r\n\r\n{body}".encode())
    return client
