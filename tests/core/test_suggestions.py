"""The word that was probably meant."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from gateway.core.suggestions import MANY, MAX_NAMES, MAX_WORD, suggest

CASES: dict[str, tuple[object, Sequence[object], str]] = {
    "one letter": ("defalt", ["default", "eval"], ' (did you mean "default"?)'),
    "two letters swapped": ("abdc", ["abcx", "abcd"], ' (did you mean "abcd"?)'),
    "a short list": ("zzz", ["b", "a"], " (known: a, b)"),
    "a number": (2, [1, "1", 3], " (known: 1, 3)"),
    "a name with a line break": ("zzz", ["a\nb"], " (known: a\\nb)"),
    "a long list": ("zzz", [f"name-{n}" for n in range(MANY + 1)], ""),
    "a very long list": ("name-1", [f"name-{n}" for n in range(MAX_NAMES + 1)], ""),
    "a very long word": ("a" * (MAX_WORD + 1), ["a" * MAX_WORD] * 2, f" (known: {'a' * MAX_WORD})"),
    "nothing": ("a", [], ""),
}


@pytest.mark.parametrize("name", CASES)
def test_a_suggestion_names_the_closest_word_or_a_short_list(name: str) -> None:
    word, known, expected = CASES[name]
    assert suggest(word, known) == expected
