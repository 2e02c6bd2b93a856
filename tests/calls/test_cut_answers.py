"""An answer that is empty or cut off is sent as it is, once, named and counted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from gateway.calls.answer.cut_answers import CutAnswers
from gateway.calls.timeline import CallTimeline
from gateway.telemetry.metric_definitions import LABEL_VALUES
from metatemplate.values.events import Delta, Finish, Usage
from tests.support.serving import Gateway
from tests.support.world import gateway_fixture

THOUGHT = Delta(0, fields={"reasoning_content": "hm"})
TEXT = Delta(0, "a")
STOP, LENGTH, FILTER = (Finish(0, reason) for reason in ("stop", "length", "content_filter"))
TEN: dict[str, Any] = {"max_tokens": 10}

CASES: dict[str, tuple[Sequence[Delta | Finish], dict[str, Any], Usage | None, int | None, str]] = {
    # name: (events, parameters, token counts, length of the context, reason)
    "an answer": ([TEXT, STOP], TEN, Usage(5, 1), None, ""),
    "an answer after a thought": ([THOUGHT, TEXT, STOP], TEN, Usage(5, 1), None, ""),
    "a call": ([Delta(0, fields={"tool_calls": [{}]}), Finish(0, "tool_calls")], TEN, Usage(5, 1), None, ""),
    "a refusal": ([Delta(0, fields={"refusal": "no"}), STOP], TEN, Usage(5, 1), None, ""),
    "nothing": ([STOP], TEN, Usage(5, 1), None, "empty"),
    "a role and no more": ([Delta(0), STOP], TEN, Usage(5, 1), None, "empty"),
    "no tokens": ([LENGTH], {"max_tokens": 0}, Usage(5, 0), None, "empty"),
    "filtered": ([FILTER], TEN, Usage(5, 1), None, ""),
    "a thought that ends": ([THOUGHT, STOP], TEN, Usage(5, 1), None, "empty"),
    "a thought that does not end": ([THOUGHT, LENGTH], TEN, Usage(5, 10), None, "thinking"),
    "a thought at the end of the context": ([THOUGHT, LENGTH], TEN, Usage(5, 3), 8, "thinking"),
    "the limit": ([TEXT, LENGTH], TEN, Usage(5, 10), None, "length"),
    "the limit, by its other name": ([TEXT, LENGTH], {"max_completion_tokens": 10}, Usage(5, 10), 16, "length"),
    "before the limit": ([TEXT, LENGTH], TEN, Usage(5, 9), None, "context"),
    "a limit that was lowered to the context": ([TEXT, LENGTH], TEN, Usage(6, 10), 16, "context"),
    "no counts": ([TEXT, LENGTH], TEN, None, 16, "length"),
    "counts by the gateway": ([TEXT, LENGTH], TEN, Usage(6, 9, source="estimated"), 16, "length"),
    "counts of nothing": ([TEXT, LENGTH], TEN, Usage(0, 0), None, "length"),
    "scores of the prompt": ([STOP], {"prompt_logprobs": 0}, Usage(5, 1), None, ""),
    "a stop at the limit": ([TEXT, STOP], TEN, Usage(5, 10), None, "at_limit"),
    "a stop beyond the limit": ([TEXT, STOP], {"max_completion_tokens": 10}, Usage(5, 11), None, "at_limit"),
    "a stop at the limit that the gateway counted": ([TEXT, STOP], TEN, Usage(5, 10, source="estimated"), None, ""),
    "a stop without a limit": ([TEXT, STOP], {}, Usage(5, 10), None, ""),
    "a stop string at the limit": ([TEXT, Finish(0, "stop", matched="<eob>")], TEN, Usage(5, 10), None, ""),
    "a stop token at the limit": ([TEXT, Finish(0, "stop", matched=2)], TEN, Usage(5, 10), None, ""),
    "a text that was cut at the limit": ([TEXT, Finish(0, "stop", "<eob>", "gateway")], TEN, Usage(5, 10), None, ""),
    "a call at the limit": ([TEXT, Finish(0, "tool_calls")], TEN, Usage(5, 10), None, ""),
    "nothing at the limit": ([STOP], TEN, Usage(5, 10), None, "empty"),
    "the prompt itself": ([TEXT, LENGTH], {"echo": True, "max_tokens": 1}, Usage(5, 1), None, ""),
}


@pytest.mark.parametrize("name", CASES)
def test_the_end_of_a_choice_has_its_reason(name: str) -> None:
    events, params, usage, context, expected = CASES[name]
    timeline = CallTimeline("chat", "id", 0.0, now=lambda: 0.0)
    timeline.cut_answers.expect(1, params, context)
    timeline.events_received(events if usage is None else [*events, usage])
    assert timeline.cut_answers.reasons(usage) == ({0: expected} if expected else {})
    assert expected in ("", *LABEL_VALUES["reason (answers cut)"])


def test_each_choice_has_its_own_reason() -> None:
    cut = CutAnswers()
    cut.expect(3, TEN, 8)
    cut.read(Delta(1, "a"))
    assert cut.without_content == {0, 2}
    for finish in (Finish(1, "length"), STOP):
        cut.end(finish)
    assert cut.reasons(Usage(5, 20)) == {1: "length", 0: "empty"}  # the counts are those of all choices
    assert cut.reasons(Usage(5, 8)) == {1: "context", 0: "empty"}


def test_only_choices_that_have_all_reached_the_limit_ended_there() -> None:
    for counted, expected in ((19, {}), (20, {0: "at_limit", 1: "at_limit"})):
        timeline = CallTimeline("chat", "id", 0.0, now=lambda: 0.0)
        timeline.cut_answers.expect(2, TEN, None)
        timeline.events_received([TEXT, Delta(1, "b"), STOP, Finish(1, "stop"), Usage(5, counted)])
        assert timeline.cut_answers.reasons(timeline.usage) == expected


# ---------------------------------------------------------------- over HTTP

THINKS = """
kind: meta
round:
  - {role: HUMAN, begin: "Q: ", end: "\\n"}
  - {role: BOT, begin: "A: <think>", end: "<eob>\\n", generate: true}
thinking: {begin: "<think>", end: "</think>", open: true}
"""
SCRIPTS = {  # model: (template, script, notice)
    "thinker": ("thinks", "['hm, ', 'so', {finish: length}, {usage: [7, 20]}]", "thinking"),
    "mute": ("chat", "[{finish: stop}, {usage: [7, 1]}]", "empty"),
    "full": ("chat", "[Once, ' upon', {finish: length}, {usage: [7, 2]}]", "context"),
    "short": ("chat", "[Once, ' upon', {finish: length}, {usage: [7, 20]}]", ""),
    "capped": ("chat", "[Once, ' upon', {finish: stop}, {usage: [7, 20]}]", "at_limit"),
    "done": ("chat", "['4', {finish: stop}, {usage: [7, 1]}]", ""),
}
CONFIG = "models:\n" + "".join(
    f"  {name}: {{template: {template}, targets: [{{speaks: scripted, script: {name}.yaml}}] }}\n"
    for name, (template, _, _) in SCRIPTS.items()
)


FILES = {f"{name}.yaml": script for name, (_, script, _) in SCRIPTS.items()}
served = gateway_fixture(CONFIG, {**FILES, "meta_templates/thinks.yaml": THINKS})


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_whole_answer_names_its_cut_and_is_not_retried(served: Gateway, name: str) -> None:
    answer = served.chat(name, max_tokens=20, gateway={"explain": True})
    notice = f"answer_cut: choices[0]={SCRIPTS[name][2]}"
    named = answer.headers.get("x-gateway-notice", "").split("; ") + answer.json()["gateway"]["notices"]
    assert [one for one in named if "answer_cut" in one] == ([notice] * 2 if SCRIPTS[name][2] else [])
    assert (answer.status_code, answer.headers["x-gateway-attempts"]) == (200, "1")
    assert isinstance(answer.json()["choices"][0]["message"]["content"], str)


@pytest.mark.parametrize("name", SCRIPTS)
def test_cut_answers_are_counted_whole_and_streamed(served: Gateway, name: str) -> None:
    before = counted(served, name)
    served.chat(name, max_tokens=20)
    served.chat(name, max_tokens=20, stream=True)
    reason = {"short": "length"}.get(name, SCRIPTS[name][2])
    found = {one: value - before[one] for one, value in counted(served, name).items()}
    assert found == {one: 2 * (one == reason) for one in found}


def counted(served: Gateway, name: str) -> dict[str, float]:
    """Reason → the number of cut answers of this model."""
    assert served.wait_until_idle()
    reasons = LABEL_VALUES["reason (answers cut)"]
    return {reason: served.metric("gateway_answers_cut_total", model=name, reason=reason) for reason in reasons}


def test_the_head_of_a_stream_names_an_empty_answer(served: Gateway) -> None:
    notices = served.chat("mute", stream=True).headers["x-gateway-notice"].split("; ")
    assert "answer_cut: choices[0]=empty" in notices
