"""Rows C01–C28 through the whole gateway: what a client sees once the answer has begun."""

from __future__ import annotations

import time

import pytest

from tests.faults.reading import ask
from tests.faults.test_before_the_first_byte import raw_request
from tests.serving import Gateway, eventually
from tests.upstream.reply import TEXT, TOKENS
from tests.upstream.server import FaultyUpstream

BROKEN = {  # mode: (text before the end, code of the error event)
    "drop-midstream": ("".join(TOKENS[:2]), "upstream_disconnected"),  # C01
    "reset-midstream": ("".join(TOKENS[:2]), "upstream_disconnected"),  # C02
    "no-finish": (TEXT, "upstream_incomplete"),  # C05
    "error-midstream": ("".join(TOKENS[:2]), "upstream_error"),  # C08
    "error-event": ("".join(TOKENS[:2]), "upstream_error"),
    "malformed-sse": ("".join(TOKENS[:2]), "upstream_invalid_stream"),  # C09
    "invalid-utf8": ("a", "upstream_invalid_stream"),  # C14
    "stall-midstream": ("".join(TOKENS[:2]), "upstream_idle_timeout"),  # C23
    "odd-index": ("a", "upstream_invalid_stream"),  # C31
}


@pytest.mark.parametrize("form", ["", "chat/"], ids=["raw", "chat"])
@pytest.mark.parametrize("mode", BROKEN)
def test_a_broken_stream_ends_in_an_error_event_and_without_a_finish(
    faulty: Gateway, up: FaultyUpstream, mode: str, form: str
) -> None:
    text, code = BROKEN[mode]
    before = up.request_count
    broken = faulty.metric("gateway_stream_incomplete_total", model=form + mode)
    read = ask(faulty, form + mode, stream=True)
    assert (read.status, read.text, read.code) == (200, text, code)
    assert not read.finishes
    assert up.request_count - before == 1, "a retry after the first byte would show text twice"
    assert faulty.metric("gateway_stream_incomplete_total", model=form + mode) >= broken
    assert b"10.11.12.13" not in read.raw


def test_nothing_is_retried_after_the_first_byte(faulty: Gateway) -> None:  # C03
    first, second = (ask(faulty, "flaky-midstream", stream=True) for _ in range(2))
    assert (first.text, first.code) == ("".join(TOKENS[:2]), "upstream_disconnected")
    assert (second.text, second.code) == (TEXT, None)


WHOLE = [
    *("ok", "no-done", "data-after-done", "comments", "crlf-sse", "cr-sse", "no-space", "multi-line-data", "bom"),
    *("one-byte-writes", "one-write", "no-final-blank-line", "split-utf8", "unknown-field", "pause-resume"),
    *("interim-flood", "http10", "quirk-no-done", "quirk-no-usage", "dup-finish"),
]


@pytest.mark.parametrize("form", ["", "chat/"], ids=["raw", "chat"])
@pytest.mark.parametrize("mode", WHOLE)
def test_odd_ways_of_saying_the_same_give_the_same(faulty: Gateway, mode: str, form: str) -> None:
    read = ask(faulty, form + mode, stream=True)
    assert (read.status, read.text, read.finishes, read.error) == (200, TEXT, {0: "stop"}, None)


def test_characters_in_two_pieces_are_put_together(faulty: Gateway) -> None:  # C13
    assert ask(faulty, "split-surrogate", stream=True).text == "a😀b"
    assert ask(faulty, "lone-surrogate", stream=True).text == "a\ufffdb"


def test_an_upstream_that_lingers_after_done_does_not_hold_the_client(faulty: Gateway) -> None:  # C07
    started = time.monotonic()
    assert ask(faulty, "late-close", stream=True).text == TEXT
    assert time.monotonic() - started < 20


# ---------------------------------------------------------------- where an answer ends (C15–C20)

CUT = {  # mode: what the client sees; the template's stop is <eob>
    "eos": None,
    "split-stop": None,
    "stop-first": "",
    "forged-turn": None,
    "stop-then-endless": "The answer is 4",
}


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("mode", CUT)
def test_the_answer_ends_before_the_marker(faulty: Gateway, mode: str, stream: bool) -> None:
    read = ask(faulty, mode, stream=stream)
    assert (read.status, read.finishes, read.error) == (200, {0: "stop"}, None)
    if CUT[mode] is not None and (stream or mode != "stop-then-endless"):
        assert read.text == CUT[mode]
    for leak in ("<eob", "LEAK", "<HUMAN>", "<eo"):
        assert leak not in read.text


@pytest.mark.parametrize("mode", ["partial-stop", "stop-lookalike"])  # C17
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_what_only_looks_like_a_marker_is_delivered_whole(faulty: Gateway, mode: str, stream: bool) -> None:
    read = ask(faulty, mode, stream=stream)
    raw = ask(faulty, "chat/" + mode, stream=stream)  # the chat template has no stops: nothing is held back
    assert read.text == raw.text != ""
    assert read.finishes == {0: "stop"}


def test_an_engine_that_runs_past_the_marker_is_closed_at_once(faulty: Gateway, up: FaultyUpstream) -> None:  # C19
    early = len(up.closed_early)
    cuts = faulty.metric("gateway_stop_leaks_total", model="stop-then-endless")
    read = ask(faulty, "stop-then-endless", stream=True)
    ended = time.monotonic()
    assert read.finishes == {0: "stop"}
    assert eventually(lambda: len(up.closed_early) > early)
    assert up.closed_early[-1] - ended < 2.5  # promised: 0.25
    assert faulty.metric("gateway_stop_leaks_total", model="stop-then-endless") == cuts + 1


def test_the_template_s_stop_and_the_client_s_are_both_sent(faulty: Gateway, up: FaultyUpstream) -> None:
    ask(faulty, "ok", stop=["###"])
    assert up.requests[-1].body["stop"] == ["<eob>", "###"]


# ---------------------------------------------------------------- the client leaves (C28, T2)


@pytest.mark.parametrize("mode", ["never-ends", "chat/never-ends", "patient/stall-midstream"])
def test_a_client_that_leaves_in_the_stream_frees_the_upstream(faulty: Gateway, up: FaultyUpstream, mode: str) -> None:
    gone = faulty.metric("gateway_client_gone_total", phase="mid_stream")
    early = len(up.closed_early)
    client = raw_request(faulty, mode, stream=True)
    assert b"200 OK" in client.recv(4096)
    client.close()
    left = time.monotonic()
    assert eventually(lambda: len(up.closed_early) > early)
    assert up.closed_early[-1] - left < 2.5  # promised: 0.25
    assert eventually(lambda: faulty.metric("gateway_client_gone_total", phase="mid_stream") == gone + 1)


def test_after_a_hundred_hang_ups_the_pool_still_serves(faulty: Gateway, up: FaultyUpstream) -> None:
    for number in range(100):
        client = raw_request(faulty, "never-ends", stream=bool(number % 2))
        if number % 4 == 1:
            client.recv(1)
        client.close()
    assert eventually(lambda: up.active == 0)
    assert faulty.wait_until_idle()
    assert [ask(faulty, "ok").text for _ in range(10)] == [TEXT] * 10


@pytest.mark.parametrize("form", ["", "chat/"], ids=["raw", "chat"])
def test_what_came_together_leaves_together_with_the_end(faulty: Gateway, form: str) -> None:
    """One chunk of HTTP holds all frames and ``[DONE]``."""
    with raw_request(faulty, form + "one-write", stream=True) as client:
        answer = b""
        while not answer.endswith(b"0\r\n\r\n"):
            answer += client.recv(65536)
    _, _, body = answer.partition(b"\r\n\r\n")
    size, _, rest = body.partition(b"\r\n")
    frames, end = rest[: int(size, 16)], rest[int(size, 16) :]
    assert end == b"\r\n0\r\n\r\n"
    assert b'"Hel"' in frames
    assert frames.endswith(b"data: [DONE]\n\n")
