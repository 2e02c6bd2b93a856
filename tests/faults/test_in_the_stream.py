"""Rows C01–C28 through the whole gateway: the response to the client after the answer has begun."""

from __future__ import annotations

import time

import pytest

from tests.faults.client import send_chat
from tests.faults.test_before_the_first_byte import raw_request
from tests.support.serving import Gateway, eventually
from tests.support.upstream.reply import TEXT, TOKENS
from tests.support.upstream.server import FaultyUpstream

BROKEN = {  # mode: (text before the end, code of the error event)
    "drop-midstream": ("".join(TOKENS[:2]), "upstream_disconnected"),  # C01
    "reset-midstream": ("".join(TOKENS[:2]), "upstream_disconnected"),  # C02
    "no-finish": (TEXT, "upstream_incomplete"),  # C05
    "error-midstream": ("".join(TOKENS[:2]), "upstream_error"),  # C08
    "error-event": ("".join(TOKENS[:2]), "upstream_error"),
    "malformed-sse": ("".join(TOKENS[:2]), "upstream_invalid_stream"),  # C09
    "invalid-utf8": ("a", "upstream_invalid_stream"),  # C14
    "stall-midstream": ("".join(TOKENS[:2]), "upstream_idle_timeout"),  # C23
}


@pytest.mark.parametrize("form", ["", "chat/"], ids=["raw", "chat"])
@pytest.mark.parametrize("mode", BROKEN)
def test_a_broken_stream_ends_with_an_error_event_and_no_finish(
    served: Gateway, up: FaultyUpstream, mode: str, form: str
) -> None:
    text, code = BROKEN[mode]
    before = up.request_count
    broken = served.counted("gateway_stream_incomplete_total", model=form + mode)
    response = send_chat(served, form + mode, stream=True)
    assert (response.status, response.text, response.code) == (200, text, code)
    assert not response.finishes
    assert up.request_count - before == 1, "a retry after the first byte would show text twice"
    assert served.counted("gateway_stream_incomplete_total", model=form + mode) >= broken
    assert b"10.11.12.13" not in response.raw


def test_a_stream_is_not_retried_after_its_first_byte(served: Gateway) -> None:  # C03
    first, second = (send_chat(served, "flaky-midstream", stream=True) for _ in range(2))
    assert (first.text, first.code) == ("".join(TOKENS[:2]), "upstream_disconnected")
    assert (second.text, second.code) == (TEXT, None)


WHOLE = [
    *("ok", "no-done", "data-after-done", "comments", "crlf-sse", "cr-sse", "no-space", "multi-line-data", "bom"),
    *("one-byte-writes", "one-write", "no-final-blank-line", "split-utf8", "unknown-field", "pause-resume"),
    *("interim-flood", "http10", "quirk-no-done", "quirk-no-usage", "dup-finish"),
]


@pytest.mark.parametrize("form", ["", "chat/"], ids=["raw", "chat"])
@pytest.mark.parametrize("mode", WHOLE)
def test_unusual_forms_of_a_correct_stream_are_read(served: Gateway, mode: str, form: str) -> None:
    response = send_chat(served, form + mode, stream=True)
    assert (response.status, response.text, response.finishes, response.error) == (200, TEXT, {0: "stop"}, None)


@pytest.mark.parametrize("form", ["", "chat/"], ids=["raw", "chat"])
def test_a_choice_that_was_not_requested_is_skipped(served: Gateway, form: str) -> None:  # C31
    response = send_chat(served, form + "odd-index", stream=True)
    assert (response.text, response.finishes, response.error) == ("a" + TEXT, {0: "stop"}, None)
    assert b"LEAK" not in response.raw
    whole = served.chat(form + "odd-index")
    assert [one["message"]["content"] for one in whole.json()["choices"]] == [TEXT]
    assert "skipped_choice: 1" in whole.headers["x-gateway-notice"]


def test_a_skipped_choice_has_one_notice_beside_that_of_a_split_call(served: Gateway) -> None:
    answer = served.chat("llamacpp-odd", n=2)
    assert [one["message"]["content"] for one in answer.json()["choices"]] == [TEXT, TEXT]
    notices = answer.headers["x-gateway-notice"].split("; ")
    assert [one for one in notices if one.startswith(("split", "skipped"))] == ["split_calls: 2", "skipped_choice: 1"]


def test_surrogates_in_two_pieces_are_joined(served: Gateway) -> None:  # C13
    assert send_chat(served, "split-surrogate", stream=True).text == "a😀b"
    assert send_chat(served, "lone-surrogate", stream=True).text == "a\ufffdb"


def test_an_upstream_that_stays_open_after_done_does_not_delay_the_client(served: Gateway) -> None:  # C07
    started = time.monotonic()
    assert send_chat(served, "late-close", stream=True).text == TEXT
    assert time.monotonic() - started < 20


# ---------------------------------------------------------------- where an answer ends (C15–C20)

CUT = {  # mode: text of the response; the template's stop is <eob>
    "eos": None,
    "split-stop": None,
    "stop-first": "",
    "forged-turn": None,
    "stop-then-endless": "The answer is 4",
}


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("mode", CUT)
def test_the_answer_ends_before_the_stop_string(served: Gateway, mode: str, stream: bool) -> None:
    response = send_chat(served, mode, stream=stream)
    assert (response.status, response.finishes, response.error) == (200, {0: "stop"}, None)
    if CUT[mode] is not None and (stream or mode != "stop-then-endless"):
        assert response.text == CUT[mode]
    for leak in ("<eob", "LEAK", "<HUMAN>", "<eo"):
        assert leak not in response.text


@pytest.mark.parametrize("mode", ["partial-stop", "stop-lookalike"])  # C17
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_text_that_resembles_a_stop_string_is_delivered(served: Gateway, mode: str, stream: bool) -> None:
    response = send_chat(served, mode, stream=stream)
    raw = send_chat(served, "chat/" + mode, stream=stream)  # the chat template has no stops, so no text is held
    assert response.text == raw.text != ""
    assert response.finishes == {0: "stop"}


def test_an_engine_that_continues_after_a_stop_is_closed_at_once(served: Gateway, up: FaultyUpstream) -> None:  # C19
    early = len(up.closed_early)
    cuts = served.counted("gateway_stop_leaks_total", model="stop-then-endless")
    response = send_chat(served, "stop-then-endless", stream=True)
    ended = time.monotonic()
    assert response.finishes == {0: "stop"}
    assert eventually(lambda: len(up.closed_early) > early)
    assert up.closed_early[-1] - ended < 20  # promised: 0.25
    assert served.counted("gateway_stop_leaks_total", model="stop-then-endless") == cuts + 1


def test_the_stops_of_template_and_client_are_sent(served: Gateway, up: FaultyUpstream) -> None:
    send_chat(served, "ok", stop=["###"])
    assert up.requests[-1].body["stop"] == ["<eob>", "###"]


# ---------------------------------------------------------------- the client leaves (C28, T2)


@pytest.mark.parametrize("mode", ["never-ends", "chat/never-ends", "patient/stall-midstream"])
def test_a_disconnect_during_a_stream_closes_the_upstream(served: Gateway, up: FaultyUpstream, mode: str) -> None:
    gone = served.metric("gateway_client_gone_total", phase="mid_stream")
    early = len(up.closed_early)
    client = raw_request(served, mode, stream=True)
    assert b"200 OK" in client.recv(4096)
    client.close()
    left = time.monotonic()
    assert eventually(lambda: len(up.closed_early) > early)
    assert up.closed_early[-1] - left < 20  # promised: 0.25
    assert eventually(lambda: served.metric("gateway_client_gone_total", phase="mid_stream") == gone + 1)


def test_the_connection_pool_serves_after_100_disconnects(served: Gateway, up: FaultyUpstream) -> None:
    for number in range(100):
        client = raw_request(served, "never-ends", stream=bool(number % 2))
        if number % 4 == 1:
            client.recv(1)
        client.close()
    assert eventually(lambda: up.active == 0)
    assert served.wait_until_idle()
    assert [send_chat(served, "ok").text for _ in range(10)] == [TEXT] * 10


@pytest.mark.parametrize("form", ["", "chat/"], ids=["raw", "chat"])
def test_events_received_together_are_sent_together_with_the_end(served: Gateway, form: str) -> None:
    """One HTTP chunk contains all frames and ``[DONE]``."""
    with raw_request(served, form + "one-write", stream=True) as client:
        answer = b""
        while not answer.endswith(b"0\r\n\r\n"):
            answer += client.recv(65536)
    _, _, body = answer.partition(b"\r\n\r\n")
    size, _, rest = body.partition(b"\r\n")
    frames, end = rest[: int(size, 16)], rest[int(size, 16) :]
    assert end == b"\r\n0\r\n\r\n"
    assert b'"Hel"' in frames
    assert frames.endswith(b"data: [DONE]\n\n")
