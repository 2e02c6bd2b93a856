"""The differences of two prompts, to the byte. The first one is the same as in ``gateway diff``."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import Any

from gateway.core.words import excerpts
from gateway.template.registry import first_difference
from gateway.viewer.exact_text import MAX_MARKED

MAX_LINES = 300
"""The number of lines that are compared one by one, in the part between the equal beginning and the equal end."""
MAX_CHARACTERS = 200
"""The number of characters of a changed block that are compared one by one."""
MAX_ROWS = 50
"""The number of differences that the page lists."""

Block = tuple[bool, tuple[str, str]]
"""Whether two texts are equal, and the texts."""


def differences(one: str, other: str) -> dict[str, Any]:
    """Return both prompts as parts that are equal or not, and a list of the differences with their bytes."""
    blocks = list(_blocks(one, other))
    first = list(excerpts(one, other, first_difference(one, other))) if one != other else []
    rows: list[dict[str, Any]] = []
    at = [0, 0]
    for is_equal, (a, b) in blocks:
        if not is_equal and len(rows) < MAX_ROWS:
            rows.append({"byte_a": at[0], "byte_b": at[1], "a": a[:MAX_CHARACTERS], "b": b[:MAX_CHARACTERS]})
        at = [at[0] + size(a), at[1] + size(b)]
    return {
        "is_equal": one == other,
        "first": first,
        "differences": rows,
        "count": sum(not is_equal for is_equal, _ in blocks),
        "sides": [
            {
                "bytes": size(text),
                "characters": len(text),
                "parts": list(_parts(blocks, side)),
            }
            for side, text in enumerate((one, other))
        ],
    }


def _parts(blocks: Sequence[Block], side: int) -> Iterator[dict[str, Any]]:
    """Yield the parts of one text. ``marked``: the number of characters in which white space is marked."""
    left = MAX_MARKED
    for is_equal, texts in blocks:
        if text := texts[side]:
            yield {"is_equal": is_equal, "text": text, "marked": min(left, len(text))}
            left = max(0, left - len(text))


def size(text: str) -> int:
    """Return the number of bytes of a text in UTF-8."""
    return len(text.encode("utf-8", "surrogatepass"))


def _blocks(one: str, other: str) -> Iterator[Block]:
    """Yield the blocks of both texts in order: equal beginning, changed lines and equal lines, equal end."""
    start = first_difference(one, other)
    rest = first_difference(one[start:][::-1], other[start:][::-1])
    a, b = one[start : len(one) - rest], other[start : len(other) - rest]
    if start:
        yield True, (one[:start], other[:start])
    lines_a, lines_b = list(io.StringIO(a, newline="\n")), list(io.StringIO(b, newline="\n"))
    if max(len(lines_a), len(lines_b)) > MAX_LINES:
        yield False, (a, b)
    else:
        codes = SequenceMatcher(None, lines_a, lines_b, autojunk=False).get_opcodes()
        for number, (tag, a1, a2, b1, b2) in enumerate(codes):
            is_whole = tag == "equal" or number > MAX_ROWS
            yield from _characters(tag == "equal", is_whole, "".join(lines_a[a1:a2]), "".join(lines_b[b1:b2]))
    if rest:
        yield True, (one[len(one) - rest :], other[len(other) - rest :])


def _characters(is_equal: bool, is_whole: bool, a: str, b: str) -> Iterator[Block]:
    """Yield a whole block, or the blocks of characters in changed lines that are short enough."""
    if is_whole or max(len(a), len(b)) > MAX_CHARACTERS:
        yield is_equal, (a, b)
        return
    for tag, a1, a2, b1, b2 in SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
        yield tag == "equal", (a[a1:a2], b[b1:b2])
