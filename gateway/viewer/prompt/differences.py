"""The differences of two prompts, to the byte. The first one is the same as in ``gateway diff``.

The prompts are compared by segments. Changed segments are compared by lines, and changed lines by words: a marker such
as ``<|im_start|>`` is one word, and so is each character of Chinese. A text that has too many parts is one difference,
between its equal beginning and its equal end.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Sequence
from difflib import SequenceMatcher
from itertools import groupby
from typing import Any

from gateway.viewer.exact_text import MAX_MARKED
from metatemplate.markers.marker_set import TOKEN_LIKE
from metatemplate.templates.registry import first_difference
from metatemplate.values.words import excerpts

WORD = re.compile(rf"(?s){TOKEN_LIKE.pattern}|[^\W\u2e80-\U0010ffff]+|.")
SPLITS: tuple[Callable[[str], list[str]], ...] = (lambda text: list(io.StringIO(text, newline="\n")), WORD.findall)
"""How changed segments are split, and then changed lines."""
LIMITS = (400, 300, 200)
"""The number of segments, lines and words that are compared one by one."""
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
    """Yield the differences: their words, and the bytes at which these differ first."""
    byte_a = byte_b = 0
    for is_equal, (a, b) in blocks:
        if not is_equal:
            at = first_difference(a, b)
            equal, start = _size(a[:at]), max(0, at - MAX_TEXT // 2)
            shown = {"a": a[start : start + MAX_TEXT], "b": b[start : start + MAX_TEXT]}
            yield {"byte_a": byte_a + equal, "byte_b": byte_b + equal, **shown}
        byte_a, byte_b = byte_a + _size(a), byte_b + _size(b)


def _parts(blocks: Sequence[Block], side: int) -> Iterator[dict[str, Any]]:
    """Yield the parts of one text, empty ones too. ``marked``: the number of characters with marks of white space."""
    left = MAX_MARKED
    for is_equal, texts in blocks:
        text = texts[side]
        yield {"is_equal": is_equal, "text": text, "marked": min(left, len(text))}
        left = max(0, left - len(text))


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def _blocks(one: Sequence[str], other: Sequence[str], level: int) -> Iterator[Block]:
    """Yield the blocks of two texts, which are given as pieces. ``level``: the position of the pieces in ``LIMITS``."""
    start = _equal(one, other)
    end = _equal(one[start:][::-1], other[start:][::-1])
    pieces = one[start : len(one) - end], other[start : len(other) - end]
    yield True, ("".join(one[:start]),) * 2
    if max(map(len, pieces)) > LIMITS[level]:
        yield False, ("".join(pieces[0]), "".join(pieces[1]))
    else:
        codes = SequenceMatcher(None, *pieces, autojunk=False).get_opcodes()
        for number, (tag, a1, a2, b1, b2) in enumerate(codes):
            texts = "".join(pieces[0][a1:a2]), "".join(pieces[1][b1:b2])
            if tag != "replace" or level == len(SPLITS) or (level == 0 and number > MAX_ROWS):
                yield tag == "equal", texts
            else:
                split = SPLITS[level]
                yield from _blocks(split(texts[0]), split(texts[1]), level + 1)
    yield True, ("".join(one[len(one) - end :]),) * 2


def _equal(one: Sequence[str], other: Sequence[str]) -> int:
    """Return the number of equal pieces at the beginning."""
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
