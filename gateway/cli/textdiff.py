"""How do two texts differ, so that a person sees it? Line by line, with the characters marked that are others.

What cannot be seen is written out: line ends, tabs, blanks at a line's end, control characters and odd blanks.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from difflib import SequenceMatcher

from gateway.template.registry import first_difference

RED, GREEN, YELLOW = "31", "32", "33"

AROUND = 24
"""Characters on each side of a place that are shown."""
ALIKE = 0.6
"""How much of two lines must be the same for marks to say anything."""
CONTEXT = 2
"""Lines that both have, around those that differ."""
MOST = 160
"""Characters of a line that are shown; of a longer one those around the first that is another."""
BEFORE = 60
"""Characters of a long line before that place."""


class Paint:
    """Colours, or none."""

    def __init__(self, colour: bool) -> None:
        self._colour = colour

    def __call__(self, text: str, colour: str) -> str:
        return f"\x1b[{colour}m{text}\x1b[0m" if self._colour else text


def printable(text: str) -> str:
    """A text on one line that does nothing to a terminal; blanks at its end are shown as dots."""
    shown = quoted(text)
    stripped = shown.rstrip(" ")
    return stripped + "·" * (len(shown) - len(stripped))


def quoted(text: str) -> str:
    """The same for a text in quotes, where blanks at the end are seen as they are."""
    return "".join([one if one.isprintable() and one != "\\" else _escaped(one) for one in text])


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def near(text: str, at: int) -> str:
    """What stands around a place, quoted, with ``⟨here⟩`` at the place itself."""
    before, after = text[max(0, at - AROUND) : at], text[at : at + AROUND]
    begin = "…" if at > AROUND else ""
    if not after:
        return f'{begin}"{quoted(before)}", and ends'
    end = "…" if len(text) > at + AROUND else ""
    return f'{begin}"{quoted(before)}⟨here⟩{quoted(after)}"{end}'


def differing(ours: str, reference: str, paint: Paint) -> Iterator[str]:
    """The differing lines with some before and after; ``-`` ours, ``+`` the reference, ``^`` the other characters."""
    one, other = ours.split("\n"), reference.split("\n")
    one, other = _with_ends(one), _with_ends(other)
    for group in SequenceMatcher(None, one, other, autojunk=False).get_grouped_opcodes(CONTEXT):
        yield f"@@ line {group[0][1] + 1} of ours, {group[0][3] + 1} of the reference @@"
        for kind, a, to_a, b, to_b in group:
            if kind == "equal":
                yield from [f"  {_cut(line, 0)}" for line in one[a:to_a]]
                continue
            paired = min(to_a - a, to_b - b)
            for number in range(paired):
                yield from _line_pair(one[a + number], other[b + number], paint)
            yield from [paint(f"- {_cut(line, 0)}", RED) for line in one[a + paired : to_a]]
            yield from [paint(f"+ {_cut(line, 0)}", GREEN) for line in other[b + paired : to_b]]


def _with_ends(lines: list[str]) -> list[str]:
    """Each line as it is shown, with its end; nothing is left of a text that ends in a line break."""
    shown = [printable(f"{line}\n") for line in lines[:-1]]
    return [*shown, printable(lines[-1])] if lines[-1] else shown


def _line_pair(ours: str, reference: str, paint: Paint) -> Iterator[str]:
    at = first_difference(ours, reference)
    one, other = _cut(ours, at), _cut(reference, at)
    marks, other_marks = [" "] * len(one), [" "] * len(other)
    matcher = SequenceMatcher(None, one, other, autojunk=False)
    for kind, a, to_a, b, to_b in matcher.get_opcodes() if matcher.ratio() >= ALIKE else ():
        if kind != "equal":
            marks[a:to_a] = "^" * (to_a - a)
            other_marks[b:to_b] = "^" * (to_b - b)
    for sign, line, marked, colour in (("-", one, marks, RED), ("+", other, other_marks, GREEN)):
        yield paint(f"{sign} {line}", colour)
        under = "".join([mark * _columns(character) for mark, character in zip(marked, line, strict=True)])
        if under.strip():
            yield f"  {under.rstrip()}"


def _cut(line: str, at: int) -> str:
    """A long line around a place, with ``…`` for what is left out."""
    if len(line) <= MOST:
        return line
    start = max(0, min(at - BEFORE, len(line) - MOST))
    end = start + MOST
    return f"{'…' if start else ''}{line[start:end]}{'…' if end < len(line) else ''}"


def _columns(character: str) -> int:
    """How wide a terminal draws it."""
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
