"""The kinds of a first difference in the client's request and in the parameters, and the exact McNemar test."""

from __future__ import annotations

from dataclasses import replace
from math import comb, nan
from typing import Any

import pytest

from gateway.evaluate.analysis.differences import KINDS, kinds_of
from gateway.evaluate.analysis.rows import RowFacts, RunAnswer, RunRow
from gateway.evaluate.analysis.scores import mcnemar
from gateway.evaluate.analysis.why import explain

SHOTS = ("user", "Q: 1+1=?"), ("assistant", "2")


def asked(*turns: tuple[str, str], **fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": role, "content": text} for role, text in turns], **fields}


PLAIN = asked(("system", "Add the numbers."), ("user", "Q: 47+36=?\nA:"))
REQUESTS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "a removed system text": (asked(("user", "Q: 47+36=?\nA:")), ["system text"]),
    "another system text": (asked(("developer", "Sum."), ("user", "Q: 47+36=?\nA:")), ["system text"]),
    "examples in messages": (
        asked(("system", "Add the numbers."), *SHOTS, ("user", "Q: 47+36=?\nA:")),
        ["text before the question"],
    ),
    "examples in the text": (
        asked(("system", "Add the numbers."), ("user", "Q: 1+1=?\nA: 2\n\nQ: 47+36=?\nA:")),
        ["text before the question"],
    ),
    "no answer prefix": (asked(("system", "Add the numbers."), ("user", "Q: 47+36=?")), ["text after the question"]),
    "an answer to continue": (
        asked(("system", "Add the numbers."), ("user", "Q: 47+36=?\nA:"), ("assistant", "The sum is")),
        ["text after the question"],
    ),
    "a space": (asked(("system", "Add the numbers."), ("user", "Q:  47+36=?\nA: ")), ["white space"]),
    "a space in the system text": (asked(("system", "Add  the numbers."), ("user", "Q: 47+36=?\nA:")), ["white space"]),
    "an image": (
        {
            "messages": [
                *PLAIN["messages"],
                {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]},
            ]
        },
        ["other text"],
    ),
    "another question": (asked(("system", "Add the numbers."), ("user", "Who wrote Faust?")), ["other text"]),
    "another mark": (asked(("system", "Add the numbers."), ("user", "Q: 47+36=!\nA:")), ["other text"]),
    "tools": ({**PLAIN, "tools": [{"type": "function"}]}, ["tools"]),
    "several": (
        asked(("user", "Please add.\nQ: 47+36=?\nThink.")),
        ["system text", "text before the question", "text after the question"],
    ),
}


@pytest.mark.parametrize(("other", "kinds"), REQUESTS.values(), ids=REQUESTS)
def test_a_difference_of_the_requests_has_kinds(other: dict[str, Any], kinds: list[str]) -> None:
    rows = [RunRow("a", "m", facts=RowFacts(request=str(one), asked=one)) for one in (PLAIN, other)]
    assert kinds_of("dataset row", *rows) == kinds_of("dataset row", *reversed(rows)) == kinds


def test_white_space_in_the_question_is_named_beside_other_kinds() -> None:
    texts = "Who went  home?", "Question: Who went home?\nAnswer:"
    rows = [RunRow("a", "m", facts=RowFacts(asked={"prompts": [text]})) for text in texts]
    assert kinds_of("dataset row", *rows) == [*KINDS["dataset row"][1:4]]


@pytest.mark.parametrize(
    ("params", "kinds"),
    [
        ({"max_tokens": 2}, ["max_tokens"]),
        ({"stop": ["x"], "max_tokens": 2, "seed": 1}, ["max_tokens", "stop", "other parameters"]),
        ({"stop_token_ids": [1]}, ["stop"]),
        ({"temperature": 1}, ["other parameters"]),
    ],
)
def test_a_difference_of_the_parameters_has_kinds(params: dict[str, Any], kinds: list[str]) -> None:
    same = {"max_tokens": 16, "stop": [], "stop_token_ids": [], "temperature": 0}
    rows = [RunRow("a", "m", facts=RowFacts(params=one)) for one in (same, {**same, **params})]
    assert kinds_of("parameters", *rows) == kinds


def test_the_first_kind_of_a_row_counts_and_the_others_are_in_its_text() -> None:
    several = REQUESTS["several"][0]
    facts = [RowFacts(request=str(one), asked=one, raw="4") for one in (PLAIN, several)]
    a, b = [RunRow("a", "m", answers=(RunAnswer(text),), facts=one) for text, one in zip("45", facts, strict=True)]
    found = explain([a], [b])
    assert found.remarks() == found.remarks("dataset row") == {"system text": 1}
    assert found.found[0].differences["dataset row"] == ", ".join(KINDS["dataset row"][:3])
    assert found.as_json()["remarks"] == {"system text": 1}


def test_requests_that_are_not_recorded_have_no_kind() -> None:
    a, b = [RunRow("a", "m", facts=RowFacts(request=name)) for name in "xy"]
    assert kinds_of("dataset row", a, b) == kinds_of("prompt", a, b) == []


@pytest.mark.parametrize("fell", range(8))
@pytest.mark.parametrize("rose", range(8))
def test_the_exact_p_is_the_share_of_splits_that_are_at_least_so_unequal(fell: int, rose: int) -> None:
    count = fell + rose
    unequal = [comb(count, at) for at in range(count + 1) if abs(2 * at - count) >= abs(fell - rose)]
    assert mcnemar(fell, rose) == pytest.approx(sum(unequal) / 2**count)


def test_the_exact_p_of_many_rows_has_no_overflow() -> None:
    assert mcnemar(10_000, 9_600) == pytest.approx(0.00439, rel=0.01)
    assert mcnemar(0, 5_000) == 0


def test_the_test_is_left_out_if_a_score_is_no_0_or_1() -> None:
    def compared(one: float | None, zero: float | None) -> Any:
        a = [RunRow(str(at), "m", points=one) for at in range(8)]
        return explain(a, [replace(row, points=zero) if at < 5 else row for at, row in enumerate(a)]).mcnemar()

    assert compared(1.0, 0.0) == {"fell": 5, "rose": 0, "p": 0.0625}
    assert compared(0.5, 0.0) is None
    assert compared(None, None) is None


def test_an_equal_answer_with_another_score_counts_for_the_scoring() -> None:
    rows = [
        RunRow("a", "m", answers=(RunAnswer("42"),), facts=RowFacts(params={"seed": seed}), points=float(seed))
        for seed in (1, 0)
    ]
    (found,) = explain(rows[:1], rows[1:]).found
    assert (found.cause, found.change) == ("scoring", -1)
    assert [*found.differences] == ["scoring", "parameters"]


def test_an_example_less_among_many_is_text_before_the_question() -> None:
    lines = [f"Q: {a}+{b}=?\nA: {a + b}" for a in range(20) for b in range(20)]
    texts = ["\n\n".join([*shots, "Q: 47+36=?\nA:"]) for shots in (lines, lines[1:])]
    rows = [RunRow("a", "m", facts=RowFacts(asked={"prompts": [text]})) for text in texts]
    assert kinds_of("dataset row", *rows) == ["text before the question"]


def test_a_row_that_one_harness_has_not_scored_changes_no_score() -> None:
    rows = [RunRow(str(at), "m", points=points) for at, points in enumerate((1.0, 1.0, 0.0, 1.0))]
    judged = [replace(row, points=points) for row, points in zip(rows, (nan, 1.0, 0.0, 0.0), strict=True)]
    found = explain(rows, judged)
    assert (found.rows, found.as_json()["unscored"], found.changes) == (4, 1, [0.0, 0.0, -1.0])
    assert found.mcnemar() == {"fell": 1, "rose": 0, "p": 1.0}
    assert [part for _, part in found.by_cause().values()] == [found.difference().mean] == [pytest.approx(-1 / 3)]
