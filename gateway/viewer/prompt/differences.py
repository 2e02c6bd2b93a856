"""The differences of two prompts, to the byte. The first one is the same as in ``gateway diff``.

The prompts are compared by segments. Changed segments are compared by lines, and changed lines by characters. A text
that has too many parts is one difference, between its equal beginning and its equal end.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from difflib import SequenceMatcher
from itertools import groupby
from typing import Any

from gateway.viewer.exact_text import MAX_MARKED
from metatemplate.templates.registry import first_difference
from metatemplate.values.words import excerpts

SPLITS: tuple[Callable[[str], list[str]], ...] = (lambda text: list(io.StringIO(text, newline="\n")), list)
"""How changed segments are split, and then changed lines."""
LIMITS = (400, 300, 200)
"""The number of segments, lines and characters that are compared one by one."""
MAX_TEXT = 200
"""The number of characters of a difference in the list of differences."""
MAX_ROWS = 50
"""The number of differences that the page lists, and the number of changed segments that are compared by lines."""

Block = tuple[bool, tuple[str, str]]
"""Whether two texts are equal, and the texts."""


def differences(one: Sequence[str], other: Sequence[str]) -> dict[str, Any]:
    """Return two prompts, given as segments, as parts that are equal or not, and a list of the differences."""
    texts = "".join(one), "".join(other)
    blocks = [
        (is_equal, ("".join([a for _, (a, _) in group]), "".join([b for _, (_, b) in group])))
        for is_equal, found in groupby(_blocks(one, other, 0), key=lambda block: block[0])
        for group in [list(found)]
    ]
    rows = list(_rows(blocks))
    return {
        "is_equal": texts[0] == texts[1],
        "first": list(excerpts(*texts, first_difference(*texts))) if texts[0] != texts[1] else [],
        "differences": rows[:MAX_ROWS],
        "count": len(rows),
        "sides": [
            {"bytes": _size(text), "characters": len(text), "parts": list(_parts(blocks, side))}
            for side, text in enumerate(texts)
        ],
    }


def _rows(blocks: Sequence[Block]) -> Iterator[dict[str, Any]]:
    byte_a = byte_b = 0
    for is_equal, (a, b) in blocks:
        if not is_equal:
            yield {"byte_a": byte_a, "byte_b": byte_b, "a": a[:MAX_TEXT], "b": b[:MAX_TEXT]}
        byte_a, byte_b = byte_a + _size(a), byte_b + _size(b)


def _parts(blocks: Sequence[Block], side: int) -> Iterator[dict[str, Any]]:
    """Yield the parts of one text. ``marked``: the number of characters in which white space is marked."""
    left = MAX_MARKED
    for is_equal, texts in blocks:
        if text := texts[side]:
            yield {"is_equal": is_equal, "text": text, "marked": min(left, len(text))}
            left = max(0, left - len(text))


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def _blocks(one: Sequence[str], other: Sequence[str], level: int) -> Iterator[Block]:
    """Yield the blocks of two texts, which are given as pieces. ``level``: the position of the pieces in ``LIMITS``."""
    a, b = "".join(one), "".join(other)
    start = first_difference(a, b)
    end = first_difference(a[start:][::-1], b[start:][::-1])
    yield True, (a[:start], b[:start])
    pieces = list(_cut(one, start, len(a) - end)), list(_cut(other, start, len(b) - end))
    if max(map(len, pieces)) > LIMITS[level]:
        yield False, (a[start : len(a) - end], b[start : len(b) - end])
    else:
        codes = SequenceMatcher(None, *pieces, autojunk=False).get_opcodes()
        for number, (tag, a1, a2, b1, b2) in enumerate(codes):
            texts = "".join(pieces[0][a1:a2]), "".join(pieces[1][b1:b2])
            if tag != "replace" or level == len(SPLITS) or (level == 0 and number > MAX_ROWS):
                yield tag == "equal", texts
            else:
                split = SPLITS[level]
                yield from _blocks(split(texts[0]), split(texts[1]), level + 1)
    yield True, (a[len(a) - end :], b[len(b) - end :])


def _cut(pieces: Sequence[str], start: int, end: int) -> Iterator[str]:
    """Yield the pieces of the text between two characters."""
    at = 0
    for piece in pieces:
        if part := piece[max(0, start - at) : max(0, end - at)]:
            yield part
        at += len(piece)
