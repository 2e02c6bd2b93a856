"""Answers as response objects, and as stream events."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from gateway.core.errors import UpstreamDisconnected, UpstreamInvalidResponse, UpstreamTooLarge
from gateway.wire.responses import DONE, AnswerHead
from gateway.wire.responses_api.request import read_response
from gateway.wire.responses_api.writer import ResponsesApiWriter
from metatemplate.values.events import (
    MAX_COMPLETION,
    Begun,
    Choice,
    Completion,
    Delta,
    Event,
    Finish,
    TokenLogprob,
    Usage,
)

TOKEN = TokenLogprob("a", -0.5, (("a", -0.5, None), ("b", -1.0, None), ("c", -2.0, None)))
TOKEN_OBJECT = {"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": []}
BEGUN, STOP, USAGE = Begun("t"), Finish(0, "stop"), Usage(3, 2)
EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)


def writer(params: dict[str, Any] | None = None, **more: Any) -> ResponsesApiWriter:
    one = ResponsesApiWriter(AnswerHead("resp_1", "m", 7, include_usage=False, **more), now=lambda: 9.5)
    call = read_response({"model": "m", "input": "hi", "instructions": "Be short."}, request_id="r")
    one.repeat_request(call.echo, params or {})
    return one


def thought(text: str) -> Delta:
    return Delta(0, fields={"reasoning_content": text, "reasoning": text})


def call(index: int, arguments: str, **more: Any) -> Delta:
    return Delta(0, fields={"tool_calls": [{"index": index, **more, "function": {"arguments": arguments}}]})


def begun_call(index: int, name: str = "add") -> Delta:
    function = {"name": name, "arguments": ""}
    return Delta(
        0, fields={"tool_calls": [{"index": index, "id": f"c{index}", "type": "function", "function": function}]}
    )


def whole(*events: Event, **more: Any) -> dict[str, Any]:
    return writer(**more).whole(Completion((), events=(*events,)))


def parsed(frames: bytes) -> list[dict[str, Any]]:
    """The events in the frames of a stream. The name of each event is its type."""
    found = []
    for frame in frames.removesuffix(DONE).decode().split("\n\n")[:-1]:
        name, _, data = frame.partition("\ndata: ")
        found.append(json.loads(data))
        assert name == f"event: {found[-1]['type']}"
    return found


def streamed(*events: Event, **more: Any) -> list[dict[str, Any]]:
    one = writer(**more)
    frames = b"".join(one.frames([event]) for event in events) + one.end()
    assert frames.endswith(b"\n\n" + DONE)
    return parsed(frames)


def short(item: dict[str, Any]) -> tuple[str, str, str]:
    """Kind, content and status of an item."""
    if item["type"] == "function_call":
        return f"{item['call_id']} {item['name']}", item["arguments"], item["status"]
    return item["type"], "|".join(part.get("text", part.get("refusal")) for part in item["content"]), item["status"]


# ---------------------------------------------------------------- output items

ANSWERS: dict[str, tuple[list[Event], list[tuple[str, str, str]], str]] = {  # events, items, status of the answer
    "text": ([Delta(0, "a"), Delta(0, "b"), STOP], [("message", "ab", "completed")], "completed"),
    "nothing": ([STOP], [("message", "", "completed")], "completed"),
    "reasoning and text": (
        [thought("h"), thought("m"), Delta(0, "a"), STOP],
        [("reasoning", "hm", "completed"), ("message", "a", "completed")], "completed",
    ),
    "calls alone": (
        [begun_call(0), call(0, "{"), call(0, "}"), begun_call(1, "now"), call(1, "{}"), Finish(0, "tool_calls")],
        [("c0 add", "{}", "completed"), ("c1 now", "{}", "completed")], "completed",
    ),
    "text before and after a call": (
        [Delta(0, "a"), begun_call(0), call(0, "{}"), Delta(0, "b"), STOP],
        [("message", "ab", "completed"), ("c0 add", "{}", "completed")], "completed",
    ),
    "text after a call": (
        [begun_call(0), call(0, "{}"), Delta(0, "b"), STOP],
        [("c0 add", "{}", "completed"), ("message", "b", "completed")], "completed",
    ),
    "fragments of two calls in turn": (
        [begun_call(0), begun_call(1), call(0, "{"), call(1, "["), call(0, "}"), call(1, "]"), STOP],
        [("c0 add", "{}", "completed"), ("c1 add", "[]", "completed")], "completed",
    ),
    "fragments without index": (
        [Delta(0, fields={"tool_calls": [{"id": "x", "function": {"name": "f", "arguments": "{"}}]}),
         Delta(0, fields={"tool_calls": [{"function": {"arguments": "}"}}]}),
         Delta(0, fields={"tool_calls": [{"id": "y", "function": {"name": "g", "arguments": "{}"}}]}), STOP],
        [("x f", "{}", "completed"), ("y g", "{}", "completed")], "completed",
    ),
    "a call without id": (
        [Delta(0, fields={"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": "{}"}}]}), STOP],
        [("call_1_0 f", "{}", "completed")], "completed",
    ),
    "reasoning between two calls": (
        [thought("h"), begun_call(0), thought("m"), begun_call(1), STOP],
        [("reasoning", "h", "completed"), ("c0 add", "", "completed"), ("reasoning", "m", "completed"),
         ("c1 add", "", "completed")], "completed",
    ),
    "all in one delta": (
        [Delta(0, "a", fields={"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": "{}"}}],
                               "reasoning": "r"}), STOP],
        [("reasoning", "r", "completed"), ("message", "a", "completed"), ("c f", "{}", "completed")], "completed",
    ),
    "a refusal": (
        [Delta(0, fields={"refusal": "n"}), Delta(0, fields={"refusal": "o"}), STOP],
        [("message", "no", "completed")], "completed",
    ),
    "cut text": (
        [thought("r"), Delta(0, "a"), Finish(0, "length")],
        [("reasoning", "r", "completed"), ("message", "a", "incomplete")], "incomplete",
    ),
    "cut reasoning": (
        [thought("r"), Finish(0, "length")],
        [("reasoning", "r", "incomplete"), ("message", "", "incomplete")], "incomplete",
    ),
    "a cut call": (
        [Delta(0, "a"), begun_call(0), call(0, "{"), Finish(0, "length")],
        [("message", "a", "completed"), ("c0 add", "{", "incomplete")], "incomplete",
    ),
    "filtered text": ([Delta(0, "a"), Finish(0, "content_filter")], [("message", "a", "incomplete")], "incomplete"),
}  # fmt: skip
each_answer = pytest.mark.parametrize(("events", "items", "status"), ANSWERS.values(), ids=ANSWERS)


@each_answer
def test_an_answer_has_these_items(events: list[Event], items: list[Any], status: str) -> None:
    body = whole(BEGUN, *events, USAGE)
    assert [short(item) for item in body["output"]] == items
    assert [item["id"].rpartition("_")[2] for item in body["output"]] == [str(at) for at in range(len(items))]
    reasons = {"length": "max_output_tokens", "content_filter": "content_filter"}
    ends = [event.reason for event in events if isinstance(event, Finish)]
    assert body["status"] == status
    assert body["incomplete_details"] == ({"reason": reasons[ends[0]]} if status == "incomplete" else None)
    assert body["completed_at"] == (None if status == "incomplete" else 9)
    Response.model_validate(body)


@each_answer
def test_the_last_event_of_a_stream_has_the_whole_answer(events: list[Event], items: list[Any], status: str) -> None:
    *_, last = streamed(BEGUN, *events, USAGE)
    assert last["type"] == f"response.{status}"
    assert last["response"] == whole(BEGUN, *events, USAGE)


@each_answer
def test_the_events_of_a_stream_add_up_to_its_items(events: list[Event], items: list[Any], status: str) -> None:
    stream = streamed(BEGUN, *events, USAGE)
    assert [event["sequence_number"] for event in stream] == list(range(len(stream)))
    assert [event["type"] for event in stream[:2]] == ["response.created", "response.in_progress"]
    built: list[dict[str, Any]] = []
    done = {}
    for event in stream:
        EVENT.validate_python(event)
        kind, place = event["type"].removeprefix("response."), event.get("output_index", -1)
        if kind == "output_item.added":
            assert place == len(built)
            assert event["item"]["status"] == "in_progress"
            built.append(event["item"])
        elif kind == "content_part.added":
            assert event["content_index"] == len(built[place]["content"])
            built[place]["content"].append(event["part"])
        elif kind == "function_call_arguments.delta":
            built[place]["arguments"] += event["delta"]
        elif kind.endswith(".delta"):
            part = built[place]["content"][event["content_index"]]
            part["refusal" if "refusal" in part else "text"] += event["delta"]
        elif kind == "output_item.done":
            done[place] = event["item"]
            built[place]["status"] = event["item"]["status"]
        if "item_id" in event:
            assert event["item_id"] == built[place]["id"]
    final = stream[-1]["response"]["output"]
    assert built == final
    assert [done[place] for place in range(len(built))] == final


PIECES = st.lists(
    st.one_of(
        st.text(min_size=1, max_size=4).map(lambda text: Delta(0, text)),
        st.text(min_size=1, max_size=4).map(thought),
        st.tuples(st.integers(0, 2), st.text(max_size=3)).map(lambda pair: call(*pair, id=f"c{pair[0]}")),
        st.just(Delta(0, "x", (TOKEN,))),
        st.just(Delta(0, "", (TOKEN,))),
        st.just(Delta(0, extras={"token_ids": [1]})),
    ),
    max_size=12,
)


@given(PIECES, st.sampled_from(["stop", "length", "tool_calls"]))
def test_a_stream_and_a_whole_answer_are_equal(deltas: list[Delta], reason: str) -> None:
    events: list[Event] = [BEGUN, *deltas, Finish(0, reason), USAGE]
    assert streamed(*events)[-1]["response"] == whole(*events)


@given(st.lists(st.sampled_from("abr"), min_size=1, max_size=12), st.data())
def test_the_answer_does_not_depend_on_the_slices_of_a_text(marks: list[str], data: st.DataObject) -> None:
    def deltas(pieces: list[str]) -> list[Event]:
        return [thought(piece) if piece[0] == "r" else Delta(0, piece) for piece in pieces]

    joined = [marks[0]]
    for mark in marks[1:]:
        if (mark == "r") == (joined[-1][0] == "r") and data.draw(st.booleans()):
            joined[-1] += mark
        else:
            joined.append(mark)
    assert whole(*deltas(joined), STOP) == whole(*deltas(marks), STOP)


# ---------------------------------------------------------------- the rest of the answer


def test_an_answer_without_kept_events_has_one_message() -> None:
    body = writer().whole(
        Completion((Choice(0, "ab", STOP, (TOKEN,)),), USAGE, Begun("t", {"system_fingerprint": "f"}))
    )
    assert [short(item) for item in body["output"]] == [("message", "ab", "completed")]
    assert (body["system_fingerprint"], body["usage"]["total_tokens"]) == ("f", 5)
    assert len(body["output"][0]["content"][0]["logprobs"]) == 1


def test_the_answer_repeats_the_request_and_has_the_effective_parameters() -> None:
    body = whole(STOP, params={"temperature": 0, "max_tokens": 12, "reasoning_effort": "low"})
    expected = {
        "id": "resp_1",
        "object": "response",
        "created_at": 7,
        "model": "m",
        "instructions": "Be short.",
        "temperature": 0,
        "top_p": 1.0,
        "max_output_tokens": 12,
        "reasoning": {"effort": "low", "summary": None},
        "store": False,
        "previous_response_id": None,
        "tools": [],
        "tool_choice": "auto",
        "error": None,
    }
    assert {name: body[name] for name in expected} == expected


OPEN_RESPONSES = {  # the type of a field of Open Responses' ResponseResource → fields that are never null, or may be
    str: (
        ("id", "object", "status", "model", "truncation", "service_tier"),
        ("previous_response_id", "instructions", "safety_identifier", "prompt_cache_key"),
    ),
    int: (("created_at", "top_logprobs"), ("completed_at", "max_output_tokens", "max_tool_calls")),
    float: (("temperature", "top_p", "presence_penalty", "frequency_penalty"), ()),
    bool: (("parallel_tool_calls", "store", "background"), ()),
    list: (("output", "tools"), ()),
    dict: (("text", "metadata"), ("incomplete_details", "error", "reasoning", "usage")),
}


def test_a_response_has_every_field_that_open_responses_requires() -> None:
    for body in (whole(STOP), whole(Finish(0, "length"), USAGE, params={"max_tokens": 3})):
        for kind, (present, nullable) in OPEN_RESPONSES.items():
            assert {name: type(body[name]) for name in present} == dict.fromkeys(present, kind)
            assert {type(body[name]) for name in nullable} <= {kind, type(None)}


USAGES = {
    "counts": (Usage(3, 2), {}, {}, {}),
    "details": (
        Usage(3, 2, details={"prompt_tokens_details": {"cached_tokens": 1}, "x": 1}),
        {"cached_tokens": 1},
        {},
        {"x": 1},
    ),
    "details that are not objects": (
        Usage(3, 2, details={"prompt_tokens_details": 5, "completion_tokens_details": "x"}),
        {},
        {},
        {},
    ),
    "an estimate": (Usage(3, 2, source="estimated"), {}, {}, {"source": "estimated"}),
    "reasoning": (
        Usage(3, 2, details={"completion_tokens_details": {"reasoning_tokens": 2}}),
        {},
        {"reasoning_tokens": 2},
        {},
    ),
}


@pytest.mark.parametrize(("usage", "prompt", "completion", "more"), USAGES.values(), ids=USAGES)
def test_usage_has_this_apis_names(usage: Usage, prompt: Any, completion: Any, more: Any) -> None:
    assert whole(STOP, usage)["usage"] == {
        "input_tokens": 3,
        "output_tokens": 2,
        "total_tokens": 5,
        **more,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0, **prompt},
        "output_tokens_details": {"reasoning_tokens": 0, **completion},
    }


def test_log_probabilities_before_the_text_are_part_of_the_message() -> None:
    body = whole(thought("r"), Delta(0, "", (TOKEN,)), Delta(0, "a", (TOKEN,)), STOP, top_logprobs=0)
    assert body["output"][1]["content"][0]["logprobs"] == [TOKEN_OBJECT] * 2
    without_text = whole(Delta(0, "", (TOKEN,)), begun_call(0), STOP, top_logprobs=0)
    assert without_text["logprobs"] == [TOKEN_OBJECT]


def test_other_keys_of_the_answer_are_kept_and_change_no_key_of_the_response() -> None:
    body = whole(
        Begun("t", {"system_fingerprint": "f", "service_tier": "flex", "status": "odd"}),
        Delta(0, "a", extras={"token_ids": [1]}),
        Delta(0, "b", extras={"token_ids": [2]}),
        Finish(0, "stop", extras={"stop_reason": 5}),
    )
    kept = {"system_fingerprint": "f", "service_tier": "flex", "token_ids": [1, 2], "stop_reason": 5}
    assert {name: body[name] for name in kept} == kept
    assert body["status"] == "completed"


def test_an_explanation_is_in_the_first_and_the_last_event() -> None:
    stream = streamed(Delta(0, "a"), STOP, gateway=lambda: {"target": "m/0"})
    with_it = [event["type"] for event in stream if "gateway" in event.get("response", ())]
    assert with_it == ["response.created", "response.in_progress", "response.completed"]


def test_a_failed_stream_ends_with_the_error_and_what_was_written() -> None:
    one = writer()
    frames = one.frames([Delta(0, "Hel")]) + one.failure(UpstreamDisconnected("gone"))
    last = parsed(frames)[-1]
    assert (last["type"], last["response"]["status"], last["response"]["error"]["code"]) == (
        "response.failed",
        "failed",
        "upstream_disconnected",
    )
    assert [short(item) for item in last["response"]["output"]] == [("message", "Hel", "incomplete")]


ODD_CALLS: dict[str, Any] = {
    "no object": "add",
    "no function": {"function": "add"},
    "arguments that are no text": {"function": {"arguments": {"a": 1}}},
    "a name that is no text": {"function": {"name": 1}},
}


@pytest.mark.parametrize("fragment", ODD_CALLS.values(), ids=ODD_CALLS)
def test_a_call_that_has_no_place_in_the_format_is_an_error(fragment: Any) -> None:
    with pytest.raises(UpstreamInvalidResponse):
        whole(Delta(0, fields={"tool_calls": [fragment]}), STOP)


def test_an_endless_stream_is_an_error_once() -> None:
    one, piece = writer(), Delta(0, "x" * (MAX_COMPLETION // 2))
    one.frames([piece])
    with pytest.raises(UpstreamTooLarge):
        one.frames([piece])
    assert one.frames([piece]) == b""


def test_a_call_of_a_function_in_a_namespace_has_the_names_of_the_request() -> None:
    function = {"type": "function", "name": "add", "parameters": {}}
    tools = [{"type": "namespace", "name": "sums", "tools": [function]}, function]
    one = ResponsesApiWriter(AnswerHead("resp_1", "m", 7, include_usage=False), now=lambda: 9.5)
    one.repeat_request(read_response({"model": "m", "input": "hi", "tools": tools}, request_id="r").echo, {})
    calls = [begun_call(0, "sums__add"), begun_call(1), begun_call(2, "sums__other")]
    body = one.whole(Completion((), events=(BEGUN, *calls, STOP, USAGE)))
    assert [(item.get("namespace"), item["name"]) for item in body["output"]] == [
        ("sums", "add"),
        (None, "add"),
        (None, "sums__other"),
    ]
    assert Response.model_validate(body).output[0].to_dict()["namespace"] == "sums"
