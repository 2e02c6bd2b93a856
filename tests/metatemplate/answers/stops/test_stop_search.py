"""The stop scanner: nothing of a stop gets out, nothing else is lost, nothing waits without need."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metatemplate.answers.stops.stop_search import CACHED, CACHED_LENGTH, StopScanner, StopSet, stop_set
from tests.stream.slicing import sliced, slicings

STOPS = {  # name: (text, stops, what the client sees, the stop that matched)
    "no stop in the text": ("hello", ("<eob>",), "hello", None),
    "eob": ("2<eob>\n<HUMAN>: 3", ("<eob>",), "2", "<eob>"),
    "im_end": ("hi<|im_end|>\n<|im_start|>user", ("<|im_end|>",), "hi", "<|im_end|>"),
    "eos": ("done</s>junk</s>", ("</s>",), "done", "</s>"),
    "eoa with its line end": ("yes<eoa>\nno", ("<eoa>\n",), "yes", "<eoa>\n"),
    "multi-byte": ("好的脷\n更多", ("脷\n",), "好的", "脷\n"),
    "astral": ("a😀😀b", ("😀😀",), "a", "😀😀"),
    "turn begin": ("4\n<HUMAN>: 1+1", ("\n<HUMAN>:",), "4", "\n<HUMAN>:"),
    "stop first": ("<eob>tail", ("<eob>",), "", "<eob>"),
    "stop only": ("<eob>", ("<eob>",), "", "<eob>"),
    "one character": ("a\nb", ("\n",), "a", "\n"),
    "only looked like it": ("a < b <eoc> <<e", ("<eob>",), "a < b <eoc> <<e", None),
    "look-alike before the real one": ("x<eo<eob>y", ("<eob>",), "x<eo", "<eob>"),
    "begins anew inside itself": ("aabaabaac", ("aabaac",), "aab", "aabaac"),
    "self-overlapping": ("<<<<eob>", ("<<eob>",), "<<", "<<eob>"),
    "partial at the end": ("sum<eo", ("<eob>",), "sum<eo", None),
    "all but one at the end": ("<eob", ("<eob>",), "<eob", None),
    "two stops, the first in the text": ("a###b<eob>", ("<eob>", "###"), "a", "###"),
    "one begins with another": ("xabc", ("abc", "ab"), "x", "ab"),
    "one begins with another, other order": ("xabc", ("ab", "abc"), "x", "ab"),
    "one ends with another": ("x</eob>", ("eob>", "</eob>"), "x", "</eob>"),
    "one inside another": ("xabcd", ("abcd", "bc"), "xa", "bc"),
    "fallback into another": ("abx", ("abcd", "bx"), "a", "bx"),
    "fallback twice": ("aab", ("aaac", "ab"), "a", "ab"),
    "inner ending through fallback": ("abce", ("abcd", "bce"), "a", "bce"),
    "characters of a class": ("a]^-\\b", ("]^-\\",), "a", "]^-\\"),
    "NUL": ("a\0\0b", ("\0\0",), "a", "\0\0"),
    "an empty stop says nothing": ("abc", ("", "c"), "ab", "c"),
    "only empty stops": ("abc", ("",), "abc", None),
    "no stops": ("abc", (), "abc", None),
    "no text": ("", ("<eob>",), "", None),
}


def scan(parts: list[str], stops: tuple[str, ...] | StopSet) -> tuple[str, str | None]:
    scanner, seen = StopScanner(stops), []
    for part in parts:
        out, matched = scanner.feed(part)
        seen.append(out)
        if matched is not None:
            return "".join(seen), matched
    return "".join(seen) + scanner.flush(), None


def first_complete(text: str, stops: tuple[str, ...]) -> tuple[str, str | None]:
    """The same question, answered the slow way: which stop is complete first, the longest of them?"""
    for end in range(1, len(text) + 1):
        ending = [stop for stop in stops if stop and text[:end].endswith(stop)]
        if ending:
            stop = max(ending, key=len)
            return text[: end - len(stop)], stop
    return text, None


@pytest.mark.parametrize(("text", "stops", "seen", "matched"), STOPS.values(), ids=STOPS.keys())
def test_every_slicing_is_cut_at_the_same_place(
    text: str, stops: tuple[str, ...], seen: str, matched: str | None
) -> None:
    ready = StopSet(stops)
    for parts in slicings(text):
        assert scan(parts, ready) == (seen, matched), parts


few = st.text("ab<", max_size=4)


@given(st.text("ab<c", max_size=30), st.lists(few, max_size=4).map(tuple), st.lists(st.integers(0, 30), max_size=8))
def test_random_texts_are_cut_as_the_slow_way_would(text: str, stops: tuple[str, ...], places: list[int]) -> None:
    parts = sliced(text, sorted(min(place, len(text)) for place in places))
    assert scan(parts, stops) == first_complete(text, stops)


@given(st.text("ab<c", max_size=30), st.lists(few, max_size=4).map(tuple))
def test_what_is_held_back_is_the_longest_beginning_of_a_stop_and_no_more(text: str, stops: tuple[str, ...]) -> None:
    scanner, seen = StopScanner(stops), ""
    for at, character in enumerate(text, 1):
        out, matched = scanner.feed(character)
        seen += out
        if matched is not None:
            return
        held = text[len(seen) : at]
        beginnings = [stop[:n] for stop in stops for n in range(1, len(stop)) if text[:at].endswith(stop[:n])]
        assert held == max(beginnings, key=len, default="")
        assert scanner.held == len(held)


def test_flush_gives_back_what_was_held_and_starts_afresh() -> None:
    scanner = StopScanner(("<eob>",))
    assert scanner.feed("a<eo") == ("a", None)
    assert scanner.flush() == "<eo"
    assert scanner.flush() == ""
    assert scanner.feed("b>") == ("b>", None)


class Counted(dict[str, int]):
    """A node's edges that count how often they are looked at."""

    looks = 0

    def get(self, key: str, default: Any = None) -> Any:
        Counted.looks += 1
        return super().get(key, default)

    def __contains__(self, key: object) -> bool:
        Counted.looks += 1
        return super().__contains__(key)


@pytest.mark.parametrize("size", [1_000, 10_000])
def test_the_work_grows_with_the_text_not_with_the_stop(size: int) -> None:
    machine = StopSet(("a" * 250 + "b",))
    machine.step = [Counted(edges) for edges in machine.step]
    scanner, Counted.looks = StopScanner(machine), 0
    for _ in range(size):
        scanner.feed("a")
    assert Counted.looks <= 4 * size


def test_an_ordinary_set_is_made_once_and_a_long_one_is_not_cached() -> None:
    stops = ("<|im_end|>", "</s>", "\nUser:")
    assert stop_set(stops) is stop_set((*stops,))
    for long in (("x" * CACHED_LENGTH,), tuple(f"name_{number}" for number in range(200)), ("",) * 2000):
        assert stop_set(long) is not stop_set(long)


def test_so_many_sets_are_kept_and_no_more() -> None:
    first = stop_set(("first",))
    for number in range(CACHED):
        stop_set((f"other {number}",))
    assert stop_set(("first",)) is not first
