"""The events of an engine's response: choices, log probabilities, extras, tool calls, usage, special cases."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.backend.openai.answer.events import CHAT_FORMAT, COMPLETIONS_FORMAT, ChoiceFormat, ChunkReader, read_usage
from gateway.core.errors import GatewayError
from metatemplate.values.events import Begun, Delta, Finish, Usage
from tests.backend.ask import chat, complete
from tests.support.upstream.reply import TEXT, TOKENS
from tests.support.upstream.server import FaultyUpstream

BOTH = pytest.mark.parametrize("stream", [True, False], ids=["stream", "json"])


@BOTH
def test_choices_keep_their_index(up: FaultyUpstream, stream: bool) -> None:
    heard = complete(up.url("multi-choice"), stream, n=2)
    assert heard.text(0) == "a1 a2 a3"
    assert heard.text(1) == "b1<eob>LEAK"
    assert set(heard.finishes) == {0, 1}


def test_list_prompts_are_numbered_prompt_major(up: FaultyUpstream) -> None:
    heard = complete(up.url("ok"), False, prompts=("a", "b"), prompt_is_list=True, n=2, params={"echo": True})
    assert [heard.text(index) for index in range(4)] == ["a" + TEXT, "a" + TEXT, "b" + TEXT, "b" + TEXT]


def test_ignored_n_shows_in_the_choices(up: FaultyUpstream) -> None:
    assert set(complete(up.url("quirk-n-ignored"), n=2).finishes) == {0}


def test_echo_with_logprobs_is_read_in_order(up: FaultyUpstream) -> None:
    heard = complete(up.url("ok"), False, params={"echo": True, "logprobs": 1})
    (delta,) = heard.deltas
    assert delta.logprobs is not None
    assert [token.token for token in delta.logprobs] == ["1+1=", *TOKENS]
    assert delta.logprobs[0].logprob is None
    assert delta.logprobs[1].logprob == -0.5


def test_chat_logprobs_are_read(up: FaultyUpstream) -> None:
    (delta,) = chat(up.url("ok"), False, params={"logprobs": True}).deltas
    assert delta.logprobs is not None
    assert delta.logprobs[2].bytes == tuple(TOKENS[2].encode())


def test_a_bos_shown_in_echo_is_reported_as_it_is(up: FaultyUpstream) -> None:
    heard = complete(up.url("quirk-bos-echo"), False, {"engine": "vllm"}, params={"echo": True, "logprobs": 1})
    assert heard.text().startswith("<s>1+1=")


@BOTH
def test_a_stop_left_in_the_text_is_left_to_the_cutter(up: FaultyUpstream, stream: bool) -> None:
    assert complete(up.url("quirk-stop-left-in"), stream, stops=("<eob>",)).text() == "7<eob>"


@BOTH
def test_missing_usage_is_missing(up: FaultyUpstream, stream: bool) -> None:
    assert complete(up.url("quirk-no-usage"), stream).usage is None


def test_running_totals_count_once_and_nonsense_not_at_all(up: FaultyUpstream) -> None:
    assert complete(up.url("usage-cumulative")).usage == Usage(7, 5)
    assert complete(up.url("usage-bad")).usage is None


@BOTH
def test_extra_keys_of_a_choice_are_passed_word_for_word(up: FaultyUpstream, stream: bool) -> None:
    heard = complete(up.url("quirk-stop-reason"), stream)
    (finish,) = [event for event in heard.events if isinstance(event, Finish)]
    assert finish.matched == "<eob>"
    assert finish.extras == {"stop_reason": "<eob>"}
    if not stream:
        assert heard.deltas[0].extras == {"prompt_logprobs": [None, {"5": {"logprob": -1.0}}]}


def test_answer_level_keys_come_with_begun(up: FaultyUpstream) -> None:
    assert complete(up.url("ok"), False).begun.fields == {"system_fingerprint": "fp_upstream"}


def test_reasoning_goes_beside_the_text(up: FaultyUpstream) -> None:
    heard = chat(up.url("reasoning"))
    assert heard.deltas[0].fields == {"reasoning_content": "hm"}
    assert heard.text() == TEXT


@pytest.mark.parametrize("index", [1, -1])
@pytest.mark.parametrize("form", [COMPLETIONS_FORMAT, CHAT_FORMAT], ids=["completions", "chat"])
def test_a_choice_that_was_not_requested_is_skipped_with_one_notice(form: ChoiceFormat, index: int) -> None:
    reader = ChunkReader(form, "m/0", 1)
    ours = {"index": 0, "text": "a", "delta": {"content": "a"}, "finish_reason": None}
    other = {**ours, "index": index, "finish_reason": "stop"}
    events = [
        event
        for choices in ([other, ours], [other], [{**ours, "finish_reason": "stop"}])
        for event in reader.read({"choices": choices})
    ]
    assert [event.notices for event in events if isinstance(event, Begun)] == [(), (f"skipped_choice: {index}",)]
    assert [event.text for event in events if isinstance(event, Delta)] == ["a", "a"]
    assert [event.index for event in events if isinstance(event, Finish)] == [0]
    assert reader.end() == []


@BOTH
def test_tool_calls_keep_their_fragments_and_index(up: FaultyUpstream, stream: bool) -> None:
    heard = chat(up.url("tool-calls"), stream)
    fragments = [call for delta in heard.deltas for call in delta.fields["tool_calls"]]
    assert "".join(call["function"]["arguments"] for call in fragments) == '{"a": 1}'
    assert {call["index"] for call in fragments} == {0}
    assert heard.finishes == {0: "tool_calls"}


def test_an_empty_delta_says_nothing() -> None:
    answer = ChunkReader(CHAT_FORMAT, "m/0", 1)
    answer.read({"choices": [{"index": 0, "delta": {"role": "assistant", "content": "", "tool_calls": None}}]})
    assert answer.read({"choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": ""}]}) == []


SHAPES = {  # chunks that are none: skipping one could lose text
    "not an object": 42,
    "no choices": {"id": "x"},
    "choices that are no list": {"choices": {}},
    "a choice that is no object": {"choices": [1]},
    "text that is no string": {"choices": [{"text": ["a"]}]},
    "an index that is no number": {"choices": [{"index": "0", "text": "a"}]},
    "logprobs that are no object": {"choices": [{"text": "a", "logprobs": [1]}]},
    "an unknown finish reason": {"choices": [{"text": "a", "finish_reason": "tired"}]},
}


@pytest.mark.parametrize("name", SHAPES)
def test_a_chunk_of_another_shape_is_an_error(name: str) -> None:
    with pytest.raises(GatewayError) as caught:
        ChunkReader(COMPLETIONS_FORMAT, "m/0", 1).read(SHAPES[name])
    assert caught.value.code in ("upstream_invalid_stream", "upstream_invalid_response")


def test_text_after_the_finish_is_an_error() -> None:
    answer = ChunkReader(COMPLETIONS_FORMAT, "m/0", 1)
    answer.read({"choices": [{"index": 0, "text": "a", "finish_reason": "stop"}]})
    assert answer.read({"choices": [{"index": 0, "text": "", "finish_reason": "stop"}]}) == []
    with pytest.raises(GatewayError):
        answer.read({"choices": [{"index": 0, "text": "b"}]})


def test_an_aborted_answer_is_no_stop() -> None:
    with pytest.raises(GatewayError) as caught:
        ChunkReader(COMPLETIONS_FORMAT, "m/0", 1).read({"choices": [{"text": "a", "finish_reason": "abort"}]})
    assert caught.value.code == "upstream_incomplete"


def test_a_high_surrogate_at_the_end_is_flushed_with_the_finish() -> None:
    answer = ChunkReader(COMPLETIONS_FORMAT, "m/0", 1)
    answer.read({"choices": [{"text": "a\ud83d"}]}, surrogates=True)
    events = answer.read({"choices": [{"text": "", "finish_reason": "stop"}]})
    assert events == [Delta(0, "\ufffd"), Finish(0, "stop")]


USAGE = {
    "plain": ({"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}, Usage(1, 2)),
    "with details": (
        {"prompt_tokens": 1, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 1}, "x": None},
        Usage(1, 2, details={"prompt_tokens_details": {"cached_tokens": 1}}),
    ),
    "negative": ({"prompt_tokens": -1, "completion_tokens": 2}, None),
    "a bool": ({"prompt_tokens": True, "completion_tokens": 2}, None),
    "a string": ({"prompt_tokens": "1", "completion_tokens": 2}, None),
    "null": (None, None),
    "as many as can be": ({"prompt_tokens": 2**53, "completion_tokens": 0}, Usage(2**53, 0)),
}


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "json"])
@pytest.mark.parametrize("form", [complete, chat], ids=["completions", "chat"])
@pytest.mark.parametrize("name", ["prompt_tokens", "completion_tokens"])
def test_a_count_beyond_every_number_is_an_invalid_answer(
    up: FaultyUpstream, name: str, form: Any, stream: bool
) -> None:
    heard = form(up.url("huge-usage", name=name), stream)
    assert heard.code == ("upstream_invalid_stream" if stream else "upstream_invalid_response")
    assert heard.usage is None


@pytest.mark.parametrize("form", [complete, chat], ids=["completions", "chat"])
def test_a_chunk_with_null_choices_is_skipped(up: FaultyUpstream, form: Any) -> None:
    heard = form(up.url("null-choices"))
    assert (heard.code, heard.text(), heard.finishes) == (None, TEXT, {0: "stop"})


DEEP = ["choices", "logprobs", "delta", "usage", "error", "error event", "extra", "lone surrogate"]


@pytest.mark.parametrize("depth", [70, 400, 990, 3000])
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "json"])
@pytest.mark.parametrize("where", DEEP)
def test_an_answer_that_nests_deeply_is_invalid(up: FaultyUpstream, where: str, stream: bool, depth: int) -> None:
    heard = chat(up.url("deep", where=where, depth=depth), stream)
    expected = "upstream_invalid_stream" if stream else "upstream_invalid_response"
    if where == "error event" and stream and depth > 1024:  # not JSON at all, but called an error
        expected = "upstream_error"
    assert heard.code == expected


def test_an_answer_that_nests_a_little_is_read(up: FaultyUpstream) -> None:
    heard = chat(up.url("deep", where="extra", depth=40), True)
    assert heard.code in (None, "upstream_incomplete")
    assert heard.deltas[0].extras


@pytest.mark.parametrize("name", USAGE)
def test_usage_is_believed_only_when_it_makes_sense(name: str) -> None:
    given, expected = USAGE[name]
    assert read_usage(given) == expected
