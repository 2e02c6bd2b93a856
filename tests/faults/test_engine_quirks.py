"""Differences between engines (``docs/spec/engines.md`` 2.1): each is hidden from the client, or reported."""

from __future__ import annotations

import json

import pytest

from tests.faults.reading import ask, post
from tests.serving import Gateway
from tests.upstream.reply import TEXT
from tests.upstream.server import FaultyUpstream


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_no_done(faulty: Gateway, stream: bool) -> None:
    read = ask(faulty, "quirk-no-done", stream=stream)
    assert (read.text, read.finishes) == (TEXT, {0: "stop"})


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_the_stop_string_left_in(faulty: Gateway, stream: bool) -> None:
    read = ask(faulty, "quirk-stop-left-in", stream=stream)
    assert read.finishes == {0: "stop"}
    assert "<eob>" not in read.text


def test_usage_missing_is_left_out_rather_than_invented(faulty: Gateway) -> None:
    read = ask(faulty, "quirk-no-usage", stream=True, stream_options={"include_usage": True})
    assert (read.text, read.usage) == (TEXT, None)


@pytest.mark.parametrize("mode", ["quirk-numeric-code", "quirk-detail", "quirk-detail-list"])
def test_any_error_shape_becomes_openai_s_with_the_reason_kept(faulty: Gateway, mode: str) -> None:
    read = ask(faulty, mode)
    assert (read.status, read.code) == (400, "upstream_rejected_request")
    assert read.error is not None
    assert any(word in read.error["message"] for word in ("max_tokens", "prompt"))


def test_an_unknown_model_upstream_is_our_misconfiguration(faulty: Gateway) -> None:
    read = ask(faulty, "quirk-unknown-model")
    assert (read.status, read.code) == (502, "upstream_model_missing")


@pytest.mark.parametrize("mode", ["quirk-list-500", "quirk-detail"])
def test_list_prompts_refused_become_one_call_each(faulty: Gateway, up: FaultyUpstream, mode: str) -> None:
    before = up.request_count
    read = post(faulty, "/v1/completions", {"model": mode, "prompt": ["a", "b", "c"], "max_tokens": 5})
    if mode == "quirk-detail":  # it refuses single prompts as well: then the refusal is the answer
        assert read.code == "upstream_rejected_request"
        return
    assert read.texts == {0: TEXT, 1: TEXT, 2: TEXT}
    assert [heard.body["prompt"] for heard in up.requests[-3:]] == ["a", "b", "c"]
    assert "split_calls" in read.headers["x-gateway-notice"]
    assert up.request_count - before >= 4


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("model", ["quirk-n-ignored", "llamacpp-n"])
def test_n_ignored_is_filled_up_and_seeds_move_on(
    faulty: Gateway, up: FaultyUpstream, model: str, stream: bool
) -> None:
    read = ask(faulty, model, stream=stream, n=3, seed=7)
    assert read.texts == {0: TEXT, 1: TEXT, 2: TEXT}
    assert read.finishes == {0: "stop", 1: "stop", 2: "stop"}
    assert [heard.body.get("seed") for heard in up.requests[-3:]] == [7, 8, 9]


def test_bos_in_echo_is_the_engine_s_own_and_stays(faulty: Gateway, up: FaultyUpstream) -> None:
    read = post(
        faulty,
        "/v1/completions",
        {"model": "quirk-bos-echo", "prompt": "abc", "echo": True, "logprobs": 1, "max_tokens": 5},
    )
    assert read.text == "<s>abc" + TEXT
    assert "add_special_tokens" not in up.requests[-1].body


def test_logprobs_ignored_are_reported_and_not_made_up(faulty: Gateway) -> None:
    read = ask(faulty, "ok", logprobs=True)
    plain = ask(faulty, "quirk-n-ignored", logprobs=True)
    assert read.status == 200
    assert (plain.status, plain.code) == (502, "upstream_ignored_parameter")


def test_logprobs_0_asks_for_the_chosen_token_s(faulty: Gateway) -> None:
    body = {"model": "quirk-n-ignored", "prompt": "a", "logprobs": 0, "max_tokens": 5}
    assert post(faulty, "/v1/completions", body).code == "upstream_ignored_parameter"


def test_an_upstream_s_traceback_never_reaches_the_client(faulty: Gateway) -> None:
    for mode in ("quirk-traceback", "quirk-traceback-400", "quirk-plain-500"):
        read = ask(faulty, mode)
        assert b"Traceback" not in read.raw
        assert b"/opt/" not in read.raw


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_a_log_likelihood_without_logprobs_is_refused_by_name(faulty: Gateway, stream: bool) -> None:
    body = {"prompt": "1+1=? 2", "echo": True, "logprobs": 1, "max_tokens": 1, "stream": stream}
    read = post(faulty, "/v1/completions", {"model": "quirk-n-ignored", **body})
    assert read.code == "upstream_ignored_parameter"
    assert read.texts == {}


def test_token_ids_that_end_in_a_500_are_not_taken_apart(faulty: Gateway, up: FaultyUpstream) -> None:
    before = up.request_count
    read = post(faulty, "/v1/completions", {"model": "quirk-list-500", "prompt": [1, 5, 9], "max_tokens": 5})
    assert (read.status, read.code) == (502, "upstream_error")
    assert [heard.body["prompt"] for heard in up.requests[-(up.request_count - before) :]] == [
        [1, 5, 9]
    ] * 2  # two attempts


def test_an_engine_pinned_to_another_model_is_quoted_without_its_path(faulty: Gateway) -> None:
    read = ask(faulty, "quirk-pinned")
    assert (read.status, read.code) == (400, "upstream_rejected_request")
    assert read.error is not None
    assert "Server is pinned to" in read.error["message"]
    assert "/srv" not in read.error["message"]


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_usage_behind_a_stop_left_in_is_read_in_whole_answers(faulty: Gateway, stream: bool) -> None:
    extra = {"stream_options": {"include_usage": True}} if stream else {}
    read = ask(faulty, "quirk-usage-behind-the-stop", stream=stream, **extra)
    assert (read.text, read.finishes) == ("42", {0: "stop"})
    # At the stop the gateway closes a stream, which may never end: it has a usage only if that came in the same packet.
    assert read.usage is not None or stream


def test_a_stop_token_that_is_scored_keeps_its_score_and_adds_no_text(faulty: Gateway) -> None:
    read = ask(faulty, "quirk-stop-token-scored", logprobs=True)
    assert read.text == "42"
    scores = json.loads(read.raw)["choices"][0]["logprobs"]["content"]
    assert [row["token"] for row in scores] == ["4", "2", "<eob>"]
