"""Rows B01–B23 through the whole gateway: each failure before the answer begins has its HTTP status."""

from __future__ import annotations

import socket
import time

import pytest

from tests.faults.client import send_chat
from tests.support.serving import Gateway, eventually
from tests.support.upstream.modes_http import INNER_ADDRESS, SECRET
from tests.support.upstream.reply import TEXT
from tests.support.upstream.server import FaultyUpstream

ROWS = {  # model: (status, code, number of upstream requests; None: cannot be counted)
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
    "blank-flood": (502, "upstream_invalid_response", 2),  # limited by size, not by time
    "keepalive-only": (504, "upstream_timeout", 1),  # C24: only content ends the first-token timeout
    "empty-deltas": (504, "upstream_timeout", 1),
}


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("model", ROWS)
def test_a_failure_before_the_answer_has_its_status_and_number_of_requests(
    served: Gateway, up: FaultyUpstream, model: str, stream: bool
) -> None:
    status, code, asked = ROWS[model]
    before, failed = up.request_count, outcomes(served, model, code)
    response = send_chat(served, model, stream=stream)
    assert (response.status, response.code) == (status, code)
    assert asked is None or up.request_count - before == asked
    assert up.control_hits == 0
    assert outcomes(served, model, code) == failed + 1
    for private in (SECRET, INNER_ADDRESS, "127.0.0.1", "<html", "Traceback"):
        assert private.encode() not in response.raw


@pytest.mark.parametrize("model", STREAM_ONLY)
def test_a_stream_without_content_gets_an_error_status(served: Gateway, up: FaultyUpstream, model: str) -> None:
    status, code, asked = STREAM_ONLY[model]
    before = up.request_count
    response = send_chat(served, model, stream=True)
    assert (response.status, response.code, up.request_count - before) == (status, code, asked)


@pytest.mark.parametrize(("model", "code"), [("401", "upstream_auth_failed"), ("html-502", "upstream_error")])
def test_a_failure_that_a_retry_cannot_help_has_x_should_retry_false(served: Gateway, model: str, code: str) -> None:
    response = send_chat(served, model)
    assert response.code == code
    assert response.headers["x-should-retry"] == "false"


@pytest.mark.parametrize("model", ["401", "reset", "hang-headers"])
def test_a_failed_call_names_its_target(served: Gateway, model: str) -> None:
    response = send_chat(served, model)
    assert response.code
    assert response.headers["x-gateway-target"] == f"{model}/0"


@pytest.mark.parametrize("model", ["503", "429"])
def test_a_busy_upstream_gives_a_retry_after(served: Gateway, model: str) -> None:
    assert 1 <= int(send_chat(served, model).headers["retry-after"]) <= 3600


def test_a_second_attempt_hides_the_first_failure(served: Gateway) -> None:
    response = send_chat(served, "flaky")
    assert (response.status, response.text) == (200, TEXT)
    assert response.headers["x-gateway-attempts"] == "2"


@pytest.mark.parametrize("mode", ["wrong-content-type", "wrong-mode"])  # B21
@pytest.mark.parametrize("form", ["", "chat/"], ids=["raw", "chat"])
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_an_answer_with_the_wrong_content_type_is_read_by_its_content(
    served: Gateway, mode: str, form: str, stream: bool
) -> None:
    response = send_chat(served, form + mode, stream=stream)
    assert (response.status, response.text, response.finishes) == (200, TEXT, {0: "stop"})


def test_bytes_after_an_answer_never_reach_the_next_client(served: Gateway) -> None:  # B09
    texts = [send_chat(served, model).text for model in ("cl-too-short", "ok", "ok")]
    assert texts == [TEXT, TEXT, TEXT]


@pytest.mark.parametrize("model", ["patient/hang-headers", "patient/dribble-headers", "slow-ttfb", "hang-body"])
def test_a_disconnect_before_the_first_byte_closes_the_upstream(
    served: Gateway, up: FaultyUpstream, model: str
) -> None:  # C28, T2
    gone = served.metric("gateway_client_gone_total", phase="before_first")
    early = len(up.closed_early)
    client = raw_request(served, model, stream=False)
    assert eventually(lambda: up.active == 1)
    client.close()
    left = time.monotonic()
    assert eventually(lambda: len(up.closed_early) > early)
    assert up.closed_early[-1] - left < 20  # promised: 0.25
    assert eventually(lambda: served.metric("gateway_client_gone_total", phase="before_first") == gone + 1)


def outcomes(served: Gateway, model: str, code: str) -> float:
    return served.counted("gateway_requests_total", endpoint="chat", model=model, outcome=code)


def raw_request(served: Gateway, model: str, *, stream: bool) -> socket.socket:
    """Send a chat request on a raw socket, which the test may close at any time."""
    body = f'{{"model":"{model}","stream":{str(stream).lower()},"messages":[{{"role":"user","content":"hi"}}]}}'
    client = socket.create_connection(("127.0.0.1", served.port))
    head = "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    client.sendall(f"{head}content-length: {len(body)}\r\n\r\n{body}".encode())
    return client
