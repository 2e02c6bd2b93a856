"""The fold: one answer from many events."""

from __future__ import annotations

import itertools
from collections import deque
from typing import Any

import pytest

from gateway.core.errors import UpstreamIncomplete, UpstreamTooLarge
from gateway.stream.completion_builder import CompletionBuilder
from metatemplate.values.events import (
    MAX_COMPLETION,
    PIECE,
    Begun,
    Choice,
    Completion,
    Delta,
    Event,
    Finish,
    TokenLogprob,
    Usage,
)

STOP = Finish(0, "stop")


def fold(*events: Event) -> Completion:
    folding = CompletionBuilder()
    for event in events:
        folding.add(event)
    return folding.result()


def fields(*deltas: dict[str, Any]) -> Any:
    return fold(*(Delta(0, fields=delta) for delta in deltas), STOP).choices[0].fields


def test_an_answer_is_put_together() -> None:
    begun, usage = Begun("m/0"), Usage(3, 2)
    a, b = TokenLogprob("a", -0.1), TokenLogprob("b", -0.2)
    assert fold(begun, Delta(0, "a", (a,)), Delta(0, "b", (b,)), STOP, usage) == Completion(
        (Choice(0, "ab", STOP, (a, b)),), usage, begun
    )


def test_choices_are_apart_and_in_order() -> None:
    second = Finish(1, "length")
    answer = fold(Delta(1, "x"), Delta(0, "a"), Delta(1, "y"), second, STOP)
    assert [(c.index, c.text, c.finish) for c in answer.choices] == [(0, "a", STOP), (1, "xy", second)]


def test_a_finish_alone_is_an_empty_answer() -> None:
    assert fold(STOP).choices == (Choice(0, "", STOP),)


INCOMPLETE: dict[str, list[Event]] = {
    "nothing": [],
    "usage only": [Usage(1, 0)],
    "no finish": [Delta(0, "a")],
    "one of two without finish": [Delta(0, "a"), Delta(1, "b"), STOP],
}


@pytest.mark.parametrize("events", INCOMPLETE.values(), ids=INCOMPLETE.keys())
def test_an_answer_without_a_finish_is_incomplete(events: list[Event]) -> None:
    with pytest.raises(UpstreamIncomplete):
        fold(*events)


def test_the_first_finish_and_the_last_usage_stand() -> None:
    answer = fold(Delta(0, "a"), Usage(3, 1), STOP, Finish(0, "length"), Usage(3, 2))
    assert answer.choices[0].finish is STOP
    assert answer.usage == Usage(3, 2)


def test_no_logprobs_differ_from_an_empty_list() -> None:
    assert fold(Delta(0, "a"), STOP).choices[0].logprobs is None
    assert fold(Delta(0, "a", ()), STOP).choices[0].logprobs == ()


def call(index: int | None, arguments: Any = None, **more: Any) -> dict[str, Any]:
    place = {} if index is None else {"index": index}
    function = {
        key: value for key, value in (("name", more.pop("name", None)), ("arguments", arguments)) if value is not None
    }
    return {**place, **more, "function": function}


def made(identity: str, name: str, arguments: str) -> dict[str, Any]:
    return {"id": identity, "type": "function", "function": {"name": name, "arguments": arguments}}


CALLS = {  # name: (tool_calls of each delta, tool_calls of the message)
    "fragments": (
        [[call(0, "", id="a", type="function", name="add")], [call(0, '{"x":')], [call(0, "1}")]],
        [made("a", "add", '{"x":1}')],
    ),
    "two calls interleaved": (
        [
            [call(1, "2", id="b", type="function", name="mul"), call(0, "1", id="a", type="function", name="add")],
            [call(0, "1")],
            [call(1, "2")],
        ],
        [made("a", "add", "11"), made("b", "mul", "22")],
    ),
    "id and name repeated in each fragment": (
        [[call(0, "1", id="a", type="function", name="add")], [call(0, "2", id="a", type="function", name="add")]],
        [made("a", "add", "12")],
    ),
    "id and name empty in later fragments": (
        [[call(0, "1", id="a", type="function", name="add")], [call(0, "2", id="", type=None, name="")]],
        [made("a", "add", "12")],
    ),
    "a whole message without index": (
        [[call(None, "1", id="a", type="function", name="add"), call(None, "2", id="b", type="function", name="mul")]],
        [made("a", "add", "1"), made("b", "mul", "2")],
    ),
    "fragments without index": (
        [[call(None, "1", id="a", type="function", name="add")], [call(None, "2")], [call(None, "3", id="a")]],
        [made("a", "add", "123")],
    ),
    "none": ([[]], []),
}


@pytest.mark.parametrize(("deltas", "message"), CALLS.values(), ids=CALLS.keys())
def test_tool_calls_are_put_together(deltas: list[Any], message: list[Any]) -> None:
    assert fields(*({"tool_calls": delta} for delta in deltas)) == {"tool_calls": message}


FIELDS = {  # name: (fields of each delta, fields of the message)
    "strings are joined": ([{"reasoning_content": "a"}, {"reasoning_content": "b"}], {"reasoning_content": "ab"}),
    "null takes nothing away": ([{"refusal": None}, {"refusal": "no"}, {"refusal": None}], {"refusal": "no"}),
    "only null": ([{"refusal": None}], {"refusal": None}),
    "a role is not doubled": ([{"role": "assistant"}, {"role": "assistant"}], {"role": "assistant"}),
    "a role of nothing": ([{"role": ""}, {"role": ""}], {"role": ""}),
    "lists grow": ([{"annotations": [1]}, {"annotations": [2]}], {"annotations": [1, 2]}),
    "other values: the last": ([{"x": 1}, {"x": {"y": 2}}], {"x": {"y": 2}}),
    "function_call": (
        [{"function_call": {"name": "f", "arguments": "1"}}, {"function_call": {"arguments": "2"}}],
        {"function_call": {"name": "f", "arguments": "12"}},
    ),
    "tool_calls of another kind": ([{"tool_calls": ["?"]}], {"tool_calls": ["?"]}),
}


@pytest.mark.parametrize(("deltas", "message"), FIELDS.values(), ids=FIELDS.keys())
def test_fields_are_merged(deltas: list[dict[str, Any]], message: dict[str, Any]) -> None:
    assert fields(*deltas) == message


def test_extras_keep_lists_whole_and_the_last_of_the_rest() -> None:
    answer = fold(
        Delta(0, "a", extras={"token_ids": [1], "prompt_logprobs": [None], "seed": "x", "gone": None}),
        Delta(0, "b", extras={"token_ids": [2], "seed": "y"}),
        Finish(0, "stop", extras={"stop_reason": "<eob>"}),
    )
    assert answer.choices[0].extras == {
        "token_ids": [1, 2],
        "prompt_logprobs": [None],
        "seed": "y",
        "gone": None,
        "stop_reason": "<eob>",
    }


ENDLESS: dict[str, tuple[Event, ...]] = {
    "text": (Delta(0, "a" * 1000),),
    "small pieces": (Delta(0, "a"),),
    "nothing at all": (Delta(0, ""),),
    "two choices": (Delta(0, "a" * 1000), Delta(1, "a" * 1000)),
    "reasoning": (Delta(0, fields={"reasoning": "a" * 1000}),),
    "arguments of a call": (Delta(0, fields={"tool_calls": [{"index": 0, "function": {"arguments": "a" * 1000}}]}),),
    "log probabilities": (Delta(0, "a", (TokenLogprob("a", -0.1, (("a", -0.1, None),) * 20),)),),
    "extras": (Delta(0, extras={"token_ids": [1] * 1000}),),
}


@pytest.mark.parametrize("events", ENDLESS.values(), ids=ENDLESS)
def test_an_answer_without_end_is_too_large(events: tuple[Event, ...]) -> None:
    folding = CompletionBuilder()
    endless = itertools.chain.from_iterable(itertools.repeat(events, MAX_COMPLETION // PIECE + 1))
    with pytest.raises(UpstreamTooLarge):
        deque(map(folding.add, endless), maxlen=0)


LONG_ANSWERS: dict[str, Delta] = {  # the delta of one token
    "text": Delta(0, "word "),
    "reasoning": Delta(0, fields={"reasoning_content": "word "}),
    "arguments of a call": Delta(0, fields={"tool_calls": [{"index": 0, "function": {"arguments": "word "}}]}),
    "log probabilities": Delta(0, "word ", (TokenLogprob("word ", -0.1, (("word ", -0.1, None),) * 5),)),
}


@pytest.mark.parametrize("delta", LONG_ANSWERS.values(), ids=LONG_ANSWERS)
def test_an_answer_as_long_as_a_long_context_is_folded(delta: Delta) -> None:
    folding = CompletionBuilder()
    for _ in range(128 * 1024):
        folding.add(delta)


def test_a_long_answer_is_folded() -> None:
    assert len(fold(*[Delta(0, "a" * 100)] * 100_000, STOP).choices[0].text) == 10_000_000
