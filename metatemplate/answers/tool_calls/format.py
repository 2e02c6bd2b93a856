"""``Format`` describes a tool-call format. ``Region`` collects a piece of the answer that may contain tool calls.

The rule of a format finds the end of a region. A rule is a generator: it moves ``Region.at`` forward, yields when it
needs more text, and returns the region's length. ``Format.read`` checks and reads the region after its end is found.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Mapping
from typing import Any

from metatemplate.answers.stops.stop_search import StopScanner, StopSet, stop_set
from metatemplate.values.frozen import dataclass


@dataclass(frozen=True, slots=True)
class ParsedCall:
    """One complete tool call."""

    name: str
    arguments: str
    """The text of a JSON object. If the model wrote JSON, its characters are unchanged."""
    id: str = ""
    """The id that the model wrote, in formats whose prompts repeat it; otherwise empty."""
    mistyped: tuple[str, ...] = ()
    """The arguments that are sent as text, although the tool's schema has another type."""


@dataclass(frozen=True, slots=True)
class UnparsedCall:
    """Text that looked like a tool call but could not be parsed. The text is sent unchanged. A failure is counted."""

    text: str


@dataclass(frozen=True, slots=True)
class Thought:
    """Reasoning after the beginning of the answer. Empty for a marker that belongs to neither content nor reasoning."""

    text: str


Piece = str | ParsedCall | UnparsedCall | Thought
"""A piece of an answer: content (never empty), a complete call, a failed call, or reasoning."""
ToolSchemas = Mapping[str, Mapping[str, Any]]
"""The name of each tool that may be called → the JSON schema of its parameters."""
Found = tuple[ParsedCall | Thought, ...]
"""What a region contains. Empty if the region contains anything else."""
Rule = Callable[["Region"], Generator[None, None, int]]
"""Finds the end of a region. At the start, the region contains only the marker or bracket that opened it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """The form in which one family of models writes its tool calls."""

    name: str = ""
    """The name of the format, under which failures are counted."""
    rule: Rule
    """Finds the end of a region."""
    read: Callable[[str, ToolSchemas], Found]
    """Returns the content of a complete region. Raises one of ``FAULTS`` if the region contains anything else."""
    markers: StopSet = StopSet(())
    """Texts that open a region anywhere in the answer."""
    openers: str = ""
    """Characters that open a region if only calls and white space came before them."""
    before: str = ""
    """Text before the first call, which may be missing."""
    separator: str = ""
    """Text that may appear once between two regions opened by ``openers``."""
    closing: str = ""
    """Text that ends a region. If the answer ended at this text as a stop, the text is missing in the region."""
    prefix: str = ""
    """Text that counts as the beginning of the answer, such as a line break, and is not sent."""
    channels: bool = False
    """True: the format also has markers in an answer without calls, so every answer is scanned."""
    can_name: Callable[[str], bool] = lambda name: True
    """Returns True for a tool name that can be written in this format."""
    failure_signs: tuple[str, ...] = ()
    """A region that cannot be read is a failed call if it contains one of these texts; otherwise it is content."""
    sign: str = ""
    """A regular expression that matches the beginning of a call, and hardly any other text. Empty: there is none."""


class BrokenCall(ValueError):
    """A region that cannot be read, and that may contain the beginning of another call."""


FAULTS = (ValueError, TypeError, SyntaxError, RecursionError, MemoryError)
"""Errors of ``Format.read``. ``TypeError``: JSON cannot express a value. Parsers raise the last three for text that
nests too deeply."""

BLANKS = r"\s{0,16}"
"""White space in a header, as a regular expression. The limit keeps the search linear."""
BOTH_QUOTES = "\"'"
NAME = r"[\w.-]{1,64}"
"""The name of a tool, as a regular expression."""
MAX_HEADER = 256
"""Maximum characters before the arguments of a call whose name stands before them."""

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


# ---------------------------------------------------------------- patterns


def one_of(texts: tuple[str, ...]) -> str:
    """Return a regular expression that matches any of the texts."""
    return f"(?:{'|'.join(map(re.escape, texts))})"


def opening(before: str, begin: str) -> str:
    """Return a regular expression that matches ``begin``, with ``before`` in front of it or without."""
    return (f"(?:{re.escape(before)}{BLANKS})?" if before else "") + re.escape(begin) + BLANKS


def ending(after: tuple[str, ...]) -> str:
    """Return a regular expression that matches these texts in this order, any of which may be missing."""
    return "".join([rf"(?:\s*{re.escape(text)})?" for text in after]) + r"\s*"


# ---------------------------------------------------------------- steps of a rule


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


def skip_past(region: Region, marks: tuple[str, ...]) -> Generator[None, None, str]:
    """Move past the first mark in the text, and return the mark."""
    scanner = StopScanner(stop_set(marks))
    while True:
        held = scanner.held
        out, mark = scanner.feed(region.text[region.at :])
        if mark is not None:
            region.at += len(out) - held + len(mark)
            return mark
        region.at = len(region.text)
        yield


def skip_one(region: Region, marks: tuple[str, ...]) -> Generator[None, None, str]:
    """Move past white space and one of the marks, and return the mark. Empty if other text follows."""
    while True:
        region.at = blank_to(region.text, region.at)
        mark = next((mark for mark in marks if region.text.startswith(mark, region.at)), "")
        rest = region.text[region.at : region.at + MAX_HEADER]
        if mark or not any(mark.startswith(rest) for mark in marks):
            region.at += len(mark)
            return mark
        yield


def skip_header(region: Region, header: re.Pattern[str]) -> Generator[None, None, bool]:
    """Move past a header. False if ``MAX_HEADER`` characters do not contain it."""
    while (found := header.match(region.text, region.at, region.at + MAX_HEADER)) is None:
        if len(region.text) - region.at >= MAX_HEADER:
            return False
        yield
    region.at = found.end()
    return True


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


def end_with(region: Region, ends: tuple[str, ...], white: re.Pattern[str] = _BLANKS) -> Generator[None, None, int]:
    """Return the length of the tool call. Those of ``ends`` that follow it, in this order, are included.

    So is the white space before them.
    """
    length = region.offset
    for end in ends:
        while True:
            text, at = region.text, region.at
            blanks = blank_to(text, at, white)
            place = text.find(end, at, blanks + len(end))
            if place >= 0:
                region.at = place + len(end)
                length = region.offset
                break
            if blanks < len(text) and not end.startswith(text[blanks:]):
                break
            region.at = max(at, blanks - len(end))  # the text itself may begin with white space
            yield
    return length
