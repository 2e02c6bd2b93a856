"""Which texts end in a loop."""

from __future__ import annotations

import pytest

from gateway.stream.loops import loop_period
from tests.evaluate.analysis.loop_texts import KINDS, found

TEXTS = {
    "one character 200 times": ("x" * 200, 1),
    "one character 199 times": ("x" * 199, 0),
    "a sentence after an introduction": ("Well. " + "I see. " * 40, 7),
    "a last block that is cut off": ("Well. " + "I see. " * 40 + "I s", 7),
    "four long blocks": ("start" + ("y" * 60 + "z") * 4, 61),
    "three long blocks and a half": ("start" + ("y" * 60 + "z") * 3 + "y" * 30, 0),
    "a loop that another text follows": ("I see. " * 40 + "Then it ended.", 0),
    "one word twice": ("no no", 0),
    "an empty text": ("", 0),
    "lines with a counter": ("".join(f"Step {n}: think.\n" for n in range(99)), 0),
    "characters outside the BMP": ("\U0001f600 " * 120, 2),
}


@pytest.mark.parametrize("case", TEXTS)
def test_the_period_of_the_repeated_end(case: str) -> None:
    text, period = TEXTS[case]
    assert loop_period(text) == period


@pytest.mark.parametrize("kind", KINDS)
def test_few_ordinary_texts_and_nearly_all_loops_are_found(kind: str) -> None:
    loops, texts = found(kind, 1)
    assert loops / texts >= 0.95 if kind == "loops" else loops / texts <= 0.01
