"""The description of a tool-call format, and the region: one stretch of text that may hold calls, as it arrives.

A format describes its regions by a rule: a generator that moves ``at`` forward, yields when it needs more text, and
returns the region's length. A rule does not check what it passes; the whole region is read once it has ended.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator

from gateway.core.frozen import dataclass
from gateway.stream.stop_search import StopSet


@dataclass(frozen=True, slots=True)
class ParsedCall:
    """One complete call."""

    name: str
    arguments: str
    """The text of a JSON object; where the format holds JSON, the model's own characters."""


@dataclass(frozen=True, slots=True)
class UnparsedCall:
    """Text that began like a call and is not one. It stays text, and is counted."""

    text: str


Piece = str | ParsedCall | UnparsedCall
"""More of the content (never empty), a call, or a failed call."""
Calls = tuple[ParsedCall, ...]
Rule = Callable[["Region"], Generator[None, None, int]]
"""Given a region that holds the marker or the bracket that opens it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """The form in which one family of models writes its calls."""

    rule: Rule
    """Follows a region to its end."""
    read: Callable[[str], Calls]
    """The calls of a whole region. Raises one of ``FAULTS`` if it holds anything beside them."""
    markers: StopSet = StopSet(())
    """Texts that open a region anywhere."""
    openers: str = ""
    """Characters that open a region where only calls and white space came before."""
    separator: str = ""
    """Text that may stand once between two such regions."""
    closing: str = ""
    """Ends a region, and may be the stop that ended the answer: then the text does not hold it."""
    markers_begin_lines: bool = False
    """The markers begin with a line break, and the beginning of the answer counts as one."""
    can_name: Callable[[str], bool] = lambda name: True
    """True for the name of a tool that the format can call."""
    failure_signs: tuple[str, ...] = ()
    """A region without calls counts as a failed call if it contains one of these; else it is plain text."""


FAULTS = (ValueError, SyntaxError, RecursionError, MemoryError)
"""Raised by ``Format.read``; the last three by Python's and JSON's parsers, for text that nests too deeply."""

BOTH_QUOTES = "\"'"

_BLANKS = re.compile(r"[ \t\r\n]*")
_NOT_BLANK = re.compile(r"[^ \t\r\n]")
_ANY = re.compile(r"(?s:.)")
_IN_STRING = {quote: re.compile(rf"[{quote}\\]") for quote in BOTH_QUOTES}
_OUTSIDE = {
    # Numbers, ``true``, ``false`` and ``null`` have no other characters.
    '"': (re.compile(r"[^ \t\r\n,:0-9+\-.eEtrufalsn]"), "[{", "]}"),
    BOTH_QUOTES: (re.compile(r"[^\s\w,:+\-.=]"), "[{(", "]})"),
}
"""By the quotes around strings: the characters that matter outside strings, opening and closing brackets."""


class Region:
    """An open region: all its text, and the part of it that its rule still needs."""

    __slots__ = ("_dropped", "_rule", "at", "begin", "marker", "pieces", "size", "text", "whole")

    def __init__(self, rule: Rule, begin: int, marker: str) -> None:
        """``begin``: characters before the region. ``marker``: what opened it; no region ends inside its marker."""
        self.begin = begin
        self.marker = len(marker)
        self.pieces: list[str] = []
        self.size = 0
        """Characters of ``pieces``."""
        self.text = ""
        self.at = 0
        """Index in ``text`` of what comes next. When the rule yields, the text before it is dropped."""
        self.whole = False
        """The region has reached its own end. False: it is open, or it ended before a character no call can hold."""
        self._dropped = 0
        self._rule = rule(self)
        self.feed(marker)

    @property
    def offset(self) -> int:
        """Characters of the region before ``at``."""
        return self._dropped + self.at

    def feed(self, text: str) -> int | None:
        """The region's length, which may end before this text; None while it is open. Not called after the end."""
        self.pieces.append(text)
        self.size += len(text)
        self._dropped += self.at
        self.text, self.at = self.text[self.at :] + text, 0
        try:
            next(self._rule)
        except StopIteration as ended:
            length: int = ended.value
            return length
        return None


def blank_to(text: str, at: int, blanks: re.Pattern[str] = _BLANKS) -> int:
    """The end of the white space that starts at this index; JSON's if no other is given."""
    found = blanks.match(text, at)
    assert found is not None
    return found.end()


def skip_to(region: Region, pattern: re.Pattern[str]) -> Generator[None, None, str]:
    """Move to the first match, one character, and return it."""
    while (found := pattern.search(region.text, region.at)) is None:
        region.at = len(region.text)
        yield
    region.at = found.start()
    return found[0]


def skip_brackets(region: Region, quotes: str = '"', depth: int = 0) -> Generator[None, None, None]:
    """Move behind the bracket that closes the first one, or up to a character that no value has outside strings.

    ``quotes``: the signs around strings: ``"`` in JSON, both in Python and JSON5. ``depth``: brackets that are open.
    """
    outside, opening, closing = _OUTSIDE[quotes]
    quote = ""
    while True:
        sign = yield from skip_to(region, _IN_STRING[quote] if quote else outside)
        if not quote and sign not in quotes + opening + closing:
            return
        region.at += 1
        if sign == "\\":
            yield from skip_to(region, _ANY)
            region.at += 1
        elif quote:
            quote = ""
        elif sign in quotes:
            quote = sign
        elif sign in opening:
            depth += 1
        else:
            depth -= 1
            if depth <= 0:
                region.whole = True
                return


def skip_value(region: Region, quotes: str = '"') -> Generator[None, None, None]:
    """Move behind blanks and one object or list of objects; up to the first character that cannot belong to it."""
    first, depth = (yield from skip_to(region, _NOT_BLANK)), 0
    if first == "[":
        region.at, depth = region.at + 1, 1
        first = yield from skip_to(region, _NOT_BLANK)
    if first == "{" or (first == "]" and depth):
        yield from skip_brackets(region, quotes, depth)


def end_with(region: Region, marker: str, white: re.Pattern[str] = _BLANKS) -> Generator[None, None, int]:
    """The region's length with the marker, if white space and the marker come next; else without them."""
    length = region.offset
    while True:
        text, at = region.text, region.at
        blanks = blank_to(text, at, white)
        place = text.find(marker, at, blanks + len(marker))
        if place >= 0:
            region.at = place + len(marker)
            return region.offset
        if blanks < len(text) and not marker.startswith(text[blanks:]):
            return length
        region.at = max(at, blanks - len(marker))  # the marker itself may begin with white space
        yield
