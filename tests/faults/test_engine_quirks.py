"""Differences between engines (``docs/spec/engines.md`` 2.1): each is hidden from the client, or reported."""

from __future__ import annotations

import json

import pytest

from tests.faults.client import post, send_chat
from tests.support.serving import Gateway
from tests.support.upstream.reply import TEXT
from tests.support.upstream.server import FaultyUpstream


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_a_stream_without_done_is_complete(served: Gateway, stream: bool) -> None:
    response = send_chat(served, "quirk-no-done", stream=stream)
    assert (response.text, response.finishes) == (TEXT, {0: "stop"})


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_a_stop_string_left_in_the_text_is_cut(served: Gateway, stream: bool) -> None:
    response = send_chat(served, "quirk-stop-left-in", stream=stream)
    assert response.finishes == {0: "stop"}
    assert "<eob>" not in response.text


def test_missing_usage_is_left_out(served: Gateway) -> None:
    response = send_chat(served, "quirk-no-usage", stream=True, stream_options={"include_usage": True})
    assert (response.text, response.usage) == (TEXT, None)


@pytest.mark.parametrize("mode", ["quirk-numeric-code", "quirk-detail", "quirk-detail-list"])
def test_every_error_form_becomes_an_openai_error_with_its_reason(served: Gateway, mode: str) -> None:
    response = send_chat(served, mode)
    assert (response.status, response.code) == (400, "upstream_rejected_request")
    assert response.error is not None
    assert any(word in response.error["message"] for word in ("max_tokens", "prompt"))


def test_an_unknown_model_of_the_upstream_is_a_502(served: Gateway) -> None:
    response = send_chat(served, "quirk-unknown-model")
    assert (response.status, response.code) == (502, "upstream_model_missing")


@pytest.mark.parametrize("mode", ["quirk-list-500", "quirk-detail"])
def test_a_refused_list_of_prompts_becomes_one_call_for_each(served: Gateway, up: FaultyUpstream, mode: str) -> None:
    before = up.request_count
    response = post(served, "/v1/completions", {"model": mode, "prompt": ["a", "b", "c"], "max_tokens": 5})
    if mode == "quirk-detail":  # this mode also refuses single prompts
        assert response.code == "upstream_rejected_request"
        return
    assert response.texts == {0: TEXT, 1: TEXT, 2: TEXT}
    assert [request.body["prompt"] for request in up.requests[-3:]] == ["a", "b", "c"]
    assert "split_calls" in response.headers["x-gateway-notice"]
    assert up.request_count - before >= 4


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("model", ["quirk-n-ignored", "llamacpp-n"])
def test_an_ignored_n_is_filled_up_with_increasing_seeds(
    served: Gateway, up: FaultyUpstream, model: str, stream: bool
) -> None:
    response = send_chat(served, model, stream=stream, n=3, seed=7)
    assert response.texts == {0: TEXT, 1: TEXT, 2: TEXT}
    assert response.finishes == {0: "stop", 1: "stop", 2: "stop"}
    assert [request.body.get("seed") for request in up.requests[-3:]] == [7, 8, 9]


def test_the_engines_bos_in_an_echo_is_kept(served: Gateway, up: FaultyUpstream) -> None:
    response = post(
        served,
        "/v1/completions",
        {"model": "quirk-bos-echo", "prompt": "abc", "echo": True, "logprobs": 1, "max_tokens": 5},
    )
    assert response.text == "<s>abc" + TEXT
    assert "add_special_tokens" not in up.requests[-1].body


def test_ignored_logprobs_are_an_error(served: Gateway) -> None:
    response = send_chat(served, "ok", logprobs=True)
    plain = send_chat(served, "quirk-n-ignored", logprobs=True)
    assert response.status == 200
    assert (plain.status, plain.code) == (502, "upstream_ignored_parameter")


def test_logprobs_0_requests_the_chosen_tokens(served: Gateway) -> None:
    body = {"model": "quirk-n-ignored", "prompt": "a", "logprobs": 0, "max_tokens": 5}
    assert post(served, "/v1/completions", body).code == "upstream_ignored_parameter"


def test_a_traceback_of_the_upstream_never_reaches_the_client(served: Gateway) -> None:
    for mode in ("quirk-traceback", "quirk-traceback-400", "quirk-plain-500"):
        response = send_chat(served, mode)
        assert b"Traceback" not in response.raw
        assert b"/opt/" not in response.raw


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_an_echo_with_ignored_logprobs_is_refused_by_name(served: Gateway, stream: bool) -> None:
    body = {"prompt": "1+1=? 2", "echo": True, "logprobs": 1, "max_tokens": 1, "stream": stream}
    response = post(served, "/v1/completions", {"model": "quirk-n-ignored", **body})
    assert response.code == "upstream_ignored_parameter"
    assert response.texts == {}


def test_a_refused_prompt_of_token_ids_is_not_split(served: Gateway, up: FaultyUpstream) -> None:
    before = up.request_count
    response = post(served, "/v1/completions", {"model": "quirk-list-500", "prompt": [1, 5, 9], "max_tokens": 5})
    assert (response.status, response.code) == (502, "upstream_error")
    assert [request.body["prompt"] for request in up.requests[-(up.request_count - before) :]] == [
        [1, 5, 9]
    ] * 2  # two attempts


def test_the_error_of_a_pinned_engine_is_quoted_without_its_path(served: Gateway) -> None:
    response = send_chat(served, "quirk-pinned")
    assert (response.status, response.code) == (400, "upstream_rejected_request")
    assert response.error is not None
    assert "Server is pinned to" in response.error["message"]
    assert "/srv" not in response.error["message"]


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_usage_after_a_stop_is_read_in_whole_answers(served: Gateway, stream: bool) -> None:
    extra = {"stream_options": {"include_usage": True}} if stream else {}
    response = send_chat(served, "quirk-usage-behind-the-stop", stream=stream, **extra)
    assert (response.text, response.finishes) == ("42", {0: "stop"})
    # At the stop the gateway closes the stream, so it has usage only if that arrived in the same packet.
    assert response.usage is not None or stream


def test_the_score_of_a_stop_token_is_kept_without_text(served: Gateway) -> None:
    response = send_chat(served, "quirk-stop-token-scored", logprobs=True)
    assert response.text == "42"
    scores = json.loads(response.raw)["choices"][0]["logprobs"]["content"]
    assert [row["token"] for row in scores] == ["4", "2", "<eob>"]
