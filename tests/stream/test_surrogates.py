"""Characters cut in half by the upstream come out whole, or as U+FFFD; never as an error in mid-stream."""

from __future__ import annotations

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.stream.surrogates import SurrogateJoiner, loads, replace_lone

JOINED = {  # name: (deltas, text)
    "a pair in two deltas": (["a\ud83d", "\ude00b"], "a😀b"),
    "a pair in one delta": (["\ud83d\ude00"], "😀"),
    "a real character": (["😀é"], "😀é"),
    "lone high": (["a\ud83d", "b"], "a\ufffdb"),
    "lone low": (["a\ude00b"], "a\ufffdb"),
    "lone at the end": (["a\ud83d"], "a\ufffd"),
    "an empty delta between": (["\ud83d", "", "\ude00"], "😀"),
    "two highs, one low": (["\ud83d", "\ud83d", "\ude00"], "\ufffd😀"),
    "wrong order": (["\ude00", "\ud83d"], "\ufffd\ufffd"),
    "ASCII and NUL": (["a\0", "b"], "a\0b"),
}


@pytest.mark.parametrize(("deltas", "text"), JOINED.values(), ids=JOINED.keys())
def test_halves_are_joined_or_replaced(deltas: list[str], text: str) -> None:
    joiner = SurrogateJoiner()
    assert "".join([joiner.feed(delta) for delta in deltas]) + joiner.flush() == text
    assert joiner.flush() == ""


@given(st.lists(st.text("a\ud83d\ude00é", max_size=3)))
def test_the_slicing_makes_no_difference_and_all_output_is_utf8(deltas: list[str]) -> None:
    whole, parts = SurrogateJoiner(), SurrogateJoiner()
    text = whole.feed("".join(deltas)) + whole.flush()
    assert "".join([parts.feed(delta) for delta in deltas]) + parts.flush() == text
    text.encode()


def test_only_a_high_surrogate_waits() -> None:
    joiner = SurrogateJoiner()
    assert joiner.feed("a\ud83d") == "a"
    assert joiner.feed("\ude00") == "😀"
    assert joiner.flush() == ""


READ = {
    "plain": (rb'{"a": [1, 2.5, "x"]}', {"a": [1, 2.5, "x"]}),
    "lone surrogate": (rb'{"text": "\ud83d", "n": -0.25}', {"text": "\ud83d", "n": -0.25}),
    "upper case": (rb'["\uDE00"]', ["\ude00"]),
    "a pair is joined": (rb'["\ud83d", "\ud83d\ude00"]', ["\ud83d", "😀"]),
}


@pytest.mark.parametrize(("data", "value"), READ.values(), ids=READ.keys())
def test_lone_surrogates_are_read(data: bytes, value: object) -> None:
    assert loads(data) == value


REFUSED = {
    "broken": b'{"a": ',
    "NaN": b'{"a": NaN}',
    "NaN beside a surrogate": rb'["\ud83d", NaN]',
    "infinity beside a surrogate": rb'["\ud83d", -Infinity]',
    "a number out of range beside a surrogate": rb'["\ud83d", 1e999]',
    "invalid UTF-8 beside a surrogate": b'["\\ud83d", "\xff"]',
    "broken beside a surrogate": rb'["\ud83d", ',
    "endless depth beside a surrogate": rb'["\ud83d", ' + b"[" * 200_000,
}


@pytest.mark.parametrize("data", REFUSED.values(), ids=REFUSED.keys())
def test_what_is_not_json_is_refused_all_the_same(data: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - both readers' errors, and ours, have only this base
        loads(data)


def test_a_whole_value_is_made_fit_for_utf8() -> None:
    value = replace_lone({"k\ud83d": ["\ude00", {"a": "😀", "n": None}, 1]})
    assert value == {"k\ufffd": ["\ufffd", {"a": "😀", "n": None}, 1]}
    orjson.dumps(value)
