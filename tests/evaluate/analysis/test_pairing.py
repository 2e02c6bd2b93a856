"""Rows of two runs pair by the texts of their questions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gateway.core.errors import InvalidValue
from gateway.evaluate.analysis.client_text import question_text
from gateway.evaluate.analysis.pairing import pairs_of
from gateway.evaluate.analysis.rows import RowFacts, RunAnswer, RunRow
from gateway.evaluate.analysis.why import explain, match_questions
from tests.evaluate.analysis.paired_rows import SHARES, SHOTS, TWO, counted_pairs

LARGE = "random of 200 000"
SUMS = [f"{a}+{b}=?" for a in range(11, 31) for b in (7, 8, 19)]


def pairs(a: list[str], b: list[str]) -> list[tuple[str, str]]:
    return [(a[one], b[other]) for one, other in pairs_of(a, b)[0]]


@pytest.mark.parametrize("styles", TWO, ids="-".join)
def test_no_pair_is_wrong_among_rows_that_nearly_agree(styles: tuple[str, str]) -> None:
    for shots, share in [(shots, share) for shots in SHOTS if LARGE not in shots for share in SHARES]:
        found = counted_pairs(400, styles, shots, share)
        assert found.wrong == ()
        assert (found.paired > 0.75 * found.both) is SHOTS[shots], (styles, shots)


@pytest.mark.parametrize("rows", [6, 60])
def test_rows_about_other_passages_are_no_pair(rows: int) -> None:
    """Each run asks the same two questions about passages of its own."""
    asks = ("What is the main idea of the passage?", "Which title is the best one?")
    texts = [f"Passage: The town {number} had a mill.\nQuestion: {asks[number % 2]}\nAnswer:" for number in range(rows)]
    half = rows // 2
    assert pairs(texts[:half], texts[half:]) == []
    assert len(pairs(texts, texts[::-1])) == rows


@pytest.mark.parametrize(
    "form", ["Question: {}\nAnswer:", "Q:  {}\n\nThink first.", "<user>{}<end>", "**{}**", "问题：{}"]
)
def test_every_row_pairs_whatever_a_harness_writes_around_it(form: str) -> None:
    written = [form.format(one) for one in reversed(SUMS)]
    assert pairs(SUMS, written) == list(zip(SUMS, reversed(written), strict=True))


NOT_PAIRED = {
    "an example of one row is the question of another": ("1+1=?\n2\n\nIs 17 prime?", "1+1=?"),
    "one number differs": (
        "Ada has 5 red hens. How many eggs does she sell?",
        "Ada has 6 red hens. How many eggs does she sell?",
    ),
    "one question begins another": ("Who wrote it?", "Who wrote it? And in which year of his life?"),
    "two questions about one text": ("A long text.\nWho went?", "A long text.\nWho came?"),
    "one option is the same": ("Capital?\nA. Rome\nB. Oslo", "Largest town?\nA. Lyon\nB. Oslo"),
}


@pytest.mark.parametrize(("one", "other"), NOT_PAIRED.values(), ids=NOT_PAIRED)
def test_a_row_without_a_certain_partner_is_not_guessed(one: str, other: str) -> None:
    a, b = [[*SUMS, text] for text in (one, other)]
    assert pairs(a, b) == pairs(b, a) == list(zip(SUMS, SUMS, strict=True))


def test_examples_in_messages_are_not_part_of_the_question() -> None:
    roles = [("system", "Add."), ("user", "1+1=?"), ("assistant", "2"), ("user", "3+4=?"), ("assistant", "It is")]
    messages = [{"role": role, "content": text} for role, text in roles]
    assert question_text({"messages": messages}) == "3+4=?\nIt is"
    assert question_text({"messages": messages[:2]}) == "Add.\n1+1=?"


def row(name: str, asked: Any, text: str = "1") -> RunRow:
    return RunRow(name, "m", answers=(RunAnswer(text),), facts=RowFacts(request=name), read_asked=lambda **_: asked)


def prompts(*texts: str) -> list[RunRow]:
    return [row(f"id-{at}-{text}", {"prompts": [text]}) for at, text in enumerate(texts)]


def test_the_rows_of_two_harnesses_are_compared_and_the_others_listed() -> None:
    a = [*prompts(*SUMS, "Alone?"), row("failed", None)]
    b = [replace(one, answers=(RunAnswer("2"),)) for one in prompts(*[f"Q: {one}\nA:" for one in SUMS], "Nowhere?")]
    found = explain(a, b, match=match_questions)
    assert (found.rows, len(found.found), found.only_a, found.only_b) == (len(SUMS), len(SUMS), 2, 1)
    assert found.unmatched == {"a": ["failed", "id-60-Alone?"], "b": ["id-60-Nowhere?"]}
    assert {one.other_id for one in found.found} == {one.custom_id for one in b[:-1]}


def test_of_two_rows_with_the_same_text_the_later_one_counts() -> None:
    a = prompts(*SUMS)
    again = row("again", {"prompts": [SUMS[0]]}, "2")
    found = explain([*a, again], prompts(*SUMS), match=match_questions)
    assert (found.duplicates, found.rows, [one.custom_id for one in found.found]) == (1, len(SUMS), ["again"])


def test_a_run_without_recorded_texts_is_refused() -> None:
    with pytest.raises(InvalidValue, match="no row of the second run has the recorded text"):
        explain(prompts(*SUMS), [row("a", None)], match=match_questions)
