"""Reasoning is told from the answer in any slicing, and every byte but the markers is kept."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metatemplate.answers.reasoning import Reasoning
from metatemplate.values.answer_markers import Thinking
from tests.stream.slicing import sliced, slicings
from tests.support.growth import assert_linear

CLOSED, OPEN = Thinking("<think>", "</think>"), Thinking("<think>", "</think>", open=True)

CASES = {  # name: (how it thinks, text, reasoning, answer)
    "thought and answer": (CLOSED, "<think>\nhm\n</think>\n\n4", "\nhm\n", "\n\n4"),
    "no thought": (CLOSED, "4 < 5", "", "4 < 5"),
    "white space first": (CLOSED, " \n<think>hm</think>4", " \nhm", "4"),
    "white space and no thought": (CLOSED, " \n4", "", " \n4"),
    "the marker later on": (CLOSED, "a <think>b</think>", "", "a <think>b</think>"),
    "a second thought": (CLOSED, "<think>a</think>b<think>c</think>", "a", "b<think>c</think>"),
    "an end without a beginning": (CLOSED, "a</think>b", "", "a</think>b"),
    "never ends": (CLOSED, "<think>hm", "hm", ""),
    "nearly ends": (CLOSED, "<think>hm</thin", "hm</thin", ""),
    "nearly begins": (CLOSED, "<thi", "", "<thi"),
    "empty": (CLOSED, "", "", ""),
    "an empty thought": (CLOSED, "<think></think>4", "", "4"),
    "look-alikes inside": (CLOSED, "<think>a</t</thi</think>4", "a</t</thi", "4"),
    "open": (OPEN, "hm</think>4", "hm", "4"),
    "open, and begun again": (OPEN, "\n<think>hm</think>4", "\nhm", "4"),
    "open, never ends": (OPEN, "hm", "hm", ""),
    "open, nearly begun again": (OPEN, "<thi", "<thi", ""),
    "open, begun later": (OPEN, "a<think>b</think>c", "a<think>b", "c"),
}


def heard(thinking: Thinking, pieces: Iterable[str]) -> tuple[str, str]:
    reasoning = Reasoning(thinking)
    parts = [*(reasoning.feed(piece) for piece in pieces), reasoning.end()]
    return "".join(thought for thought, _ in parts), "".join(answer for _, answer in parts)


@pytest.mark.parametrize("name", CASES)
def test_thought_is_told_from_answer_in_every_slicing(name: str) -> None:
    thinking, text, thought, answer = CASES[name]
    for slicing in slicings(text):
        assert heard(thinking, slicing) == (thought, answer), slicing


@given(
    st.lists(st.sampled_from(["<think>", "</think>", "<", "think>", " ", "\n", "a"]), max_size=8),
    st.booleans(),
    st.data(),
)
def test_nothing_is_lost_but_the_markers(words: list[str], is_open: bool, data: st.DataObject) -> None:
    text, thinking = "".join(words), OPEN if is_open else CLOSED
    thought, answer = heard(thinking, [text])
    places = data.draw(st.lists(st.integers(0, len(text)), max_size=5).map(sorted))
    assert heard(thinking, sliced(text, places)) == (thought, answer)
    lost = len(text) - len(thought) - len(answer)
    assert lost in {0, len("<think>"), len("</think>"), len("<think></think>")}


def test_thoughts_go_out_as_they_come() -> None:
    reasoning = Reasoning(CLOSED)
    assert reasoning.feed("<think>a") == ("a", "")
    assert reasoning.feed("b<") == ("b", "")
    assert reasoning.feed("c") == ("<c", "")


@pytest.mark.parametrize("thinking", [CLOSED, OPEN], ids=["closed", "open"])
@pytest.mark.parametrize("behind", ["", "<think>a</think>b", "<th", "a"])
def test_blanks_one_by_one_are_linear_and_kept(thinking: Thinking, behind: str) -> None:
    def run(size: int) -> None:
        thought, answer = heard(thinking, " " * size + behind)
        assert (thought + answer).count(" ") == size

    assert_linear(run, 15_000)


def test_blanks_without_end_are_not_held() -> None:
    reasoning = Reasoning(OPEN)
    assert sum(len(reasoning.feed(" " * 1000)[0]) for _ in range(100)) > 30_000
