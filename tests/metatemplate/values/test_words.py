"""The word that was probably meant."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from metatemplate.values.words import MANY, MAX_NAMES, MAX_QUOTED, MAX_WORD, counted, plain, quoted, shown, suggest

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


def test_one_thing_has_no_plural() -> None:
    assert [counted(number, "model") for number in (0, 1, 2)] == ["0 models", "1 model", "2 models"]


QUOTED = {
    "plain": ("gpt-4o", '"gpt-4o"'),
    "blanks": ("a b", '"a b"'),
    "line ends": ("a\r\nb", '"a\\r\\nb"'),
    "NUL": ("a\0b", '"a\\x00b"'),
    "right to left": ("\u202eab", '"\\u202eab"'),
    "beyond the basic plane": ("\U0001f600", '"\U0001f600"'),
    "a lone surrogate": ("\ud800", '"\\ud800"'),
    "64 characters": ("x" * 64, '"' + "x" * 64 + '"'),
    "a quote": ('a"b', '"a\\"b"'),
    "a backslash": ("a\\", '"a\\\\"'),
    "an apostrophe": ("a'b", '"a\'b"'),
    "65 characters": ("x" * 65, '"' + "x" * 64 + '…"'),
}


@pytest.mark.parametrize("value", [[], {}, [1, [], {"a": None, 2: ["b", {}]}], "c", 0.5, ("d", [1])], ids=repr)
def test_a_short_value_is_shown_as_python_writes_it(value: object) -> None:
    assert shown(value) == repr(value)


def test_a_long_value_is_cut() -> None:
    assert shown(list(range(100))) == repr(list(range(100)))[:MAX_QUOTED] + "…"


@pytest.mark.parametrize(("name", "text"), QUOTED.values(), ids=QUOTED)
def test_a_name_from_a_client_is_shown_as_short_and_printable(name: str, text: str) -> None:
    assert quoted(name) == text


PLAIN = {
    "a field": ("max_tokens-2", "max_tokens-2"),
    "a dot": ("a.b", "a?b"),
    "blanks and letters": ("é x\n", "??x?"),
    "a keyword of JSON Schema": ("$defs", "$defs"),
    "long": ("k" * 100, "k" * 64),
}


@pytest.mark.parametrize(("key", "shown"), PLAIN.values(), ids=PLAIN)
def test_a_key_name_from_a_client_is_shown_as_letters(key: str, shown: str) -> None:
    assert plain(key) == shown
