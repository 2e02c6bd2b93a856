"""``Format`` describes a tool-call format. ``Region`` collects a piece of the answer that may contain tool calls.

The rule of a format finds the end of a region. A rule is a generator: it moves ``Region.at`` forward, yields when it
needs more text, and returns the region's length. ``Format.read`` checks and reads the region after its end is found.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator

from metatemplate.answers.stops.stop_search import StopSet
from metatemplate.values.frozen import dataclass


@dataclass(frozen=True, slots=True)
class ParsedCall:
    """One complete tool call."""

    name: str
    arguments: str
    """The text of a JSON object. If the model wrote JSON, its characters are unchanged."""


@dataclass(frozen=True, slots=True)
class UnparsedCall:
    """Text that looked like a tool call but could not be parsed. The text is sent unchanged. A failure is counted."""

    text: str


Piece = str | ParsedCall | UnparsedCall
"""A piece of an answer: content (never empty), a complete call, or a failed call."""
Calls = tuple[ParsedCall, ...]
Rule = Callable[["Region"], Generator[None, None, int]]
"""Finds the end of a region. At the start, the region contains only the marker or bracket that opened it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """The form in which one family of models writes its tool calls."""

    rule: Rule
    """Finds the end of a region."""
    read: Callable[[str], Calls]
    """Returns the calls of a complete region. Raises one of ``FAULTS`` if the region contains anything else."""
    markers: StopSet = StopSet(())
    """Texts that open a region anywhere in the answer."""
    openers: str = ""
    """Characters that open a region if only calls and white space came before them."""
    separator: str = ""
    """Text that may appear once between two regions opened by ``openers``."""
    closing: str = ""
    """Text that ends a region. If the answer ended at this text as a stop, the text is missing in the region."""
    markers_begin_lines: bool = False
    """True: every marker begins with a line break, and the beginning of the answer counts as a line break."""
    can_name: Callable[[str], bool] = lambda name: True
    """Returns True for a tool name that can be written in this format."""
    failure_signs: tuple[str, ...] = ()
    """A region that cannot be read is a failed call if it contains one of these texts; otherwise it is content."""


FAULTS = (ValueError, SyntaxError, RecursionError, MemoryError)
"""Errors of ``Format.read``. Python's and JSON's parsers raise the last three for text that nests too deeply."""

BOTH_QUOTES = "\"'"

_BLANKS = re.compile(r"[ \t\r\n]*")
_NOT_BLANK = re.compile(r"[^ \t\r\n]")
_ANY = re.compile(r"(?s:.)")
_IN_STRING = {quote: re.compile(rf"[{quote}\\]") for quote in BOTH_QUOTES}
_OUTSIDE = {
    # Besides white space and ``,:``, the excluded characters are those of numbers and true, false, null.
    '"': (re.compile(r"[^ \t\r\n,:0-9+\-.eEtrufalsn]"), "[{", "]}"),
    BOTH_QUOTES: (re.compile(r"[^\s\w,:+\-.=]"), "[{(", "]})"),
}
"""Quotes → (pattern of characters that are not part of plain values, opening brackets, closing brackets)."""


class Region:
    """A piece of the answer that may contain tool calls, collected until its rule finds the end."""

    __slots__ = ("_dropped", "_rule", "at", "begin", "marker", "pieces", "size", "text", "whole")

    def __init__(self, rule: Rule, begin: int, marker: str) -> None:
        """``begin``: number of characters before the region. ``marker``: the first text of the region."""
        self.begin = begin
        self.marker = len(marker)
        self.pieces: list[str] = []
        self.size = 0
        """Number of characters in ``pieces``."""
        self.text = ""
        self.at = 0
        """The rule's position in ``text``. When the rule yields, the part of ``text`` before ``at`` is dropped."""
        self.whole = False
        """True: the region ended as a call ends. False: the region is open, or ended at an invalid character."""
        self._dropped = 0
        self._rule = rule(self)
        self.feed(marker)

    @property
    def offset(self) -> int:
        """Number of characters of the region before ``at``."""
        return self._dropped + self.at

    def feed(self, text: str) -> int | None:
        """Add text. Returns the region's length if the end was found, otherwise None.

        The end may be before the added text.
        """
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
    """Return the index after the white space at ``at``. ``blanks``: pattern of white space; the default is JSON's."""
    found = blanks.match(text, at)
    assert found is not None
    return found.end()


def skip_to(region: Region, pattern: re.Pattern[str]) -> Generator[None, None, str]:
    """Move ``region.at`` to the first match of ``pattern``, and return the match, which is one character."""
    while (found := pattern.search(region.text, region.at)) is None:
        region.at = len(region.text)
        yield
    region.at = found.start()
    return found[0]


def skip_brackets(region: Region, quotes: str = '"', depth: int = 0) -> Generator[None, None, None]:
    """Move past the matching closing bracket, or stop at a character that cannot stand outside a string.

    ``quotes``: the quotes around strings: ``"`` in JSON, ``"`` and ``'`` in Python. ``depth``: open brackets so far.
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
    """Move past one object or list of objects, or to the first character that such a value cannot contain."""
    first, depth = (yield from skip_to(region, _NOT_BLANK)), 0
    if first == "[":
        region.at, depth = region.at + 1, 1
        first = yield from skip_to(region, _NOT_BLANK)
    if first == "{" or (first == "]" and depth):
        yield from skip_brackets(region, quotes, depth)


def end_with(region: Region, marker: str, white: re.Pattern[str] = _BLANKS) -> Generator[None, None, int]:
    """Return the length of the tool call. A ``marker`` that follows it is included, with the white space before it."""
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
