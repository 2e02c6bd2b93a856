"""The positions of tokens in the text: exact, ahead, odd."""

from __future__ import annotations

import pytest

from metatemplate.answers.stops.token_alignment import MAX_AHEAD, TokenAligner
from metatemplate.values.events import TokenLogprob


def token(text: str, raw: bytes | None = None) -> TokenLogprob:
    return TokenLogprob(text, -0.5, bytes=None if raw is None else tuple(raw))


def plain(*texts: str) -> tuple[TokenLogprob, ...]:
    return tuple(token(text) for text in texts)


PLACES = {  # name: (deltas as (text, tokens), the first character of each token)
    "exact": ([("abc", plain("a", "bc"))], [0, 1]),
    "exact in every delta": ([("ab", plain("ab")), ("c", plain("c"))], [0, 2]),
    "ahead by a token": ([("", plain("<")), ("<e", plain("e")), ("f", plain("f"))], [0, 1, 2]),
    "ahead and inside": ([("a", plain("a<", "e")), ("<ef", plain("f"))], [0, 2, 3]),
    "a character of three tokens with bytes": (
        [("", (token("\ufffd", b"\xe8"),)), ("", (token("\ufffd", b"\x84"),)), ("脷x", (token("脷x", b"\xb7x"),))],
        [0, 0, 0],
    ),
    "the same in one delta": (
        [("a脷b", (token("a", b"a"), token("", b"\xe8\x84"), token("", b"\xb7"), token("b", b"b")))],
        [0, 1, 1, 2],
    ),
    "byte tokens without bytes": ([("脷<eob>", plain("<0xE8>", "<0x84>", "<0xB7>", "<eob>"))], [0, 0, 0, 1]),
    "replacement characters": ([("a脷b", plain("a", "\ufffd", "\ufffd", "\ufffd", "b"))], [0, 1, 1, 1, 2]),
    "raw vocabulary pieces": ([("Hello you", plain("Hello", "Ġyou"))], [0, 5]),
    "a hidden special token before the text": ([("hi", plain("<s>", "hi"))], [0, 0]),
    "a hidden special token in a delta of its own": ([("", plain("<s>")), ("hi", plain("hi"))], [0, 0]),
    "an empty token goes with the character before": ([("ab", plain("a", "", "b")), ("c", plain("c"))], [0, 0, 1, 2]),
    "drift in one delta does not reach the next": ([("é", plain("<0xC3>")), ("xy", plain("x", "y"))], [0, 1, 2]),
    "text without tokens": ([("ab", ()), ("c", plain("c"))], [2]),
    "no tokens at all": ([("ab", ()), ("c", ())], []),
}


@pytest.mark.parametrize(("deltas", "places"), PLACES.values(), ids=PLACES.keys())
def test_each_token_is_taken_with_its_first_character(
    deltas: list[tuple[str, tuple[TokenLogprob, ...]]], places: list[int]
) -> None:
    aligner = TokenAligner()
    found: list[int] = []
    for text, tokens in deltas:
        aligner.feed(text, tokens)
    until = 0
    while not aligner.idle and until <= sum(len(text) for text, _ in deltas):
        found += [max(0, until - 1)] * len(aligner.take(until))
        until += 1
    assert found == places


def test_what_passes_is_counted() -> None:
    aligner = TokenAligner()
    assert aligner.passes("ab", plain("a", "b"))
    assert aligner.passes("cd", ())
    assert not aligner.passes("e", plain("f"))
    aligner.feed("e", plain("e"))
    assert not aligner.passes("f", plain("f"))
    assert aligner.take(4) == ()
    assert aligner.take(5) == plain("e")


def test_tokens_far_ahead_belong_to_no_text_and_are_let_go() -> None:
    aligner, words = TokenAligner(), plain(*["thought "] * (MAX_AHEAD // 8 + 1))
    taken: tuple[TokenLogprob, ...] = ()
    for word in words:
        aligner.feed("", (word,))
        taken += aligner.take(0)
    assert taken == words
    assert aligner.idle


def test_the_rest_is_without_the_stop_that_the_engine_cut_from_the_text() -> None:
    aligner = TokenAligner()
    aligner.feed("7", plain("7", "<eo", "b>"))
    assert aligner.take(1) == plain("7")
    assert aligner.rest("<eob>") == ()
    aligner.feed("7", plain("7", "</s>"))
    assert aligner.rest("<eob>") == plain("7", "</s>")
    assert aligner.idle
