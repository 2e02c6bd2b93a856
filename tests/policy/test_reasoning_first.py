"""Two calls for an answer that must be JSON and begins with reasoning."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.backend.scripted import Script, Step
from gateway.core.exchange import AnswerFormat, Exchange
from gateway.policy.deliver.reasoning_first import NOTICE, ReasoningFirst
from metatemplate.values.answer_markers import Thinking
from metatemplate.values.events import Usage
from tests.policy.responses import cancel_after, exchange, leave_after, read_response
from tests.support.recording_backend import RecordingBackend

SCHEMA = {"type": "object"}
CLOSED, OPEN = Thinking("<think>", "</think>"), Thinking("<think>", "</think>", open=True)
REASONED = "<think>two and two</think>"
JSON: Script = ('{"a": 4}', {"finish": "stop"}, {"usage": [9, 5]})


def wanted(thinking: Thinking | None = CLOSED, **changes: Any) -> Exchange:
    """An exchange whose answer must be JSON."""
    params = {"max_tokens": 100, "response_format": {"type": "json_object"}, **changes.pop("params", {})}
    form = AnswerFormat(SCHEMA, "sum", reasoning=thinking)
    return exchange("p:", params=params, stops=("<eos>",), answer_format=form, **changes)


def first(*texts: str, finish: str = "stop", used: int = 30) -> Script:
    return [*texts, {"finish": finish}, {"usage": [7, used]}]


def test_an_answer_without_reasoning_is_one_call() -> None:
    inner = RecordingBackend(JSON)
    request = wanted(None)
    assert read_response(ReasoningFirst(inner, 10.0), request).texts == {0: '{"a": 4}'}
    assert inner.exchanges == [request]


@pytest.mark.parametrize("size", range(1, len(REASONED) + 1))
@pytest.mark.parametrize("cuts", [True, False], ids=["the engine stops at the marker", "the engine goes on"])
def test_the_second_call_continues_the_reasoning_and_is_constrained(size: int, cuts: bool) -> None:
    text = REASONED.removesuffix("</think>") if cuts else REASONED + " and then prose"
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    inner = RecordingBackend(first(*pieces), JSON)
    response = read_response(ReasoningFirst(inner, 10.0), wanted())
    assert response.texts == {0: REASONED + '{"a": 4}'}
    assert response.finishes == [(0, "stop")]
    free, constrained = inner.exchanges
    assert (free.answer_format, free.stops, free.params) == (None, ("<eos>", "</think>"), {"max_tokens": 100})
    assert constrained.prompts == ("p:" + REASONED,)
    assert constrained.answer_format == AnswerFormat(SCHEMA, "sum")
    assert constrained.stops == ("<eos>",)
    assert [notice for begun in response.begun for notice in begun.notices] == [NOTICE]
    assert inner.active == 0


def test_both_calls_count_and_share_the_token_limit() -> None:
    inner = RecordingBackend(first("<think>hm"), JSON)
    response = read_response(ReasoningFirst(inner, 10.0), wanted())
    assert response.usages == [Usage(16, 35)]
    assert [one.params["max_tokens"] for one in inner.exchanges] == [100, 70]
    assert inner.exchanges[0].deadline == inner.exchanges[1].deadline is not None
    assert inner.exchanges[0].attempts is inner.exchanges[1].attempts


@pytest.mark.parametrize("pieces", [("<think>hm",), ("hm",)], ids=["which the model repeats", "in the prompt alone"])
def test_reasoning_that_the_prompt_has_begun(pieces: tuple[str, ...]) -> None:
    inner = RecordingBackend(first(*pieces), JSON)
    assert read_response(ReasoningFirst(inner, 10.0), wanted(OPEN)).texts == {0: pieces[0] + '</think>{"a": 4}'}


@pytest.mark.parametrize(
    "pieces",
    [
        (
            "The ans",
            "wer is 4",
        ),
        ("<th", "e> answer"),
        ("",),
    ],
    ids=repr,
)
def test_a_model_that_does_not_reason_answers_the_original_prompt(pieces: tuple[str, ...]) -> None:
    inner = RecordingBackend(first(*pieces), JSON)
    response = read_response(ReasoningFirst(inner, 10.0), wanted())
    assert response.texts == {0: '{"a": 4}'}
    assert inner.exchanges[1].prompts == ("p:",)
    assert inner.exchanges[1].params["max_tokens"] == 100


STEPS: list[tuple[str, list[Step], str]] = [
    ("the token limit", ["<think>two and", {"finish": "length"}], "<think>two and"),
    ("a held part of the marker", ["<think>two</thi", {"finish": "length"}], "<think>two</thi"),
]


@pytest.mark.parametrize(("steps", "text"), [row[1:] for row in STEPS], ids=[row[0] for row in STEPS])
def test_an_answer_that_ends_in_its_reasoning_is_one_call(steps: list[Step], text: str) -> None:
    inner = RecordingBackend([*steps, {"usage": [7, 100]}])
    response = read_response(ReasoningFirst(inner, 10.0), wanted())
    assert (response.texts, response.finishes, response.usages) == ({0: text}, [(0, "length")], [Usage(7, 100)])
    assert len(inner.exchanges) == 1


@pytest.mark.parametrize("script", [0, 1], ids=["first call", "second call"])
def test_a_failure_of_either_call_ends_the_answer(script: int) -> None:
    scripts: list[Script] = [first("<think>hm"), JSON]
    scripts[script] = [*scripts[script][:1], {"error": "upstream_disconnected"}]
    inner = RecordingBackend(*scripts)
    response = read_response(ReasoningFirst(inner, 10.0), wanted())
    assert response.code == "upstream_disconnected"
    assert (len(inner.exchanges), inner.active) == (script + 1, 0)


@pytest.mark.parametrize("count", range(6))
def test_leaving_early_closes_the_open_call(count: int) -> None:
    inner = RecordingBackend(first("<think>", "hm"), JSON)
    leave_after(ReasoningFirst(inner, 10.0), count, wanted())
    assert inner.active == 0


def test_cancelling_closes_the_second_call() -> None:
    inner = RecordingBackend(first("<think>hm"), [{"pause": 5}, *JSON])
    cancel_after(ReasoningFirst(inner, 10.0), 1.0, wanted())
    assert (len(inner.exchanges), inner.active) == (2, 0)
