"""A region: one stretch of a model's text that may hold calls, followed as it arrives.

A format describes its regions by a rule: a generator that moves ``at`` forward, yields when it needs more text, and
returns the region's length. A rule does not check what it passes; the whole region is read once it has ended.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator

Rule = Callable[["Region"], Generator[None, None, int]]
"""Given a region whose text begins with the marker that opens it, or with an opening bracket."""

BOTH_QUOTES = "\"'"

_BLANK = re.compile(r"[ \t\r\n]*")
_IN_STRING = {quote: re.compile(rf"[{quote}\\]") for quote in BOTH_QUOTES}
_OUTSIDE = {
    # Numbers, ``true``, ``false`` and ``null`` have no other characters.
    '"': (re.compile(r"[^ \t\r\n,:0-9+\-.eEtrufalsn]"), "[{", "]}"),
    BOTH_QUOTES: (re.compile(r"[^\s\w,:+\-.=]"), "[{(", "]})"),
}
"""By the quotes around strings: the characters that matter outside strings, opening and closing brackets."""


class Region:
    """The text of an open region, as far as its rule still needs it."""

    __slots__ = ("_dropped", "_rule", "at", "text", "whole")

    def __init__(self, rule: Rule) -> None:
        self.text = ""
        self.at = 0
        """Index in ``text`` of what comes next. When the rule yields, the text before it is dropped."""
        self.whole = False
        """The region has reached its own end. False: it is open, or it ended before a character no call can hold."""
        self._dropped = 0
        self._rule = rule(self)

    @property
    def offset(self) -> int:
        """Characters of the region before ``at``."""
        return self._dropped + self.at

    def feed(self, text: str) -> int | None:
        """The region's length, which may end before this text; None while it is open. Not to be called after the end.

        A marker that opens the region is fed first, and alone.
        """
        self._dropped += self.at
        self.text, self.at = self.text[self.at :] + text, 0
        try:
            next(self._rule)
        except StopIteration as ended:
            length: int = ended.value
            return length
        return None


def blank_to(text: str, at: int) -> int:
    """The end of the white space that starts at this index."""
    blank = _BLANK.match(text, at)
    assert blank is not None
    return blank.end()


def skip_blanks(region: Region) -> Generator[None, None, None]:
    """Move to the first character that is not white space."""
    while True:
        region.at = blank_to(region.text, region.at)
        if region.at < len(region.text):
            return
        yield


def skip_brackets(region: Region, quotes: str = '"', depth: int = 0) -> Generator[None, None, None]:
    """Move behind the bracket that closes the first one, or up to a character that no value has outside strings.

    ``quotes``: the signs around strings: ``"`` in JSON, both in Python and JSON5. ``depth``: brackets that are open.
    """
    outside, opening, closing = _OUTSIDE[quotes]
    quote = ""
    while True:
        found = (_IN_STRING[quote] if quote else outside).search(region.text, region.at)
        if found is None:
            region.at = len(region.text)
            yield
            continue
        region.at, sign = found.end(), found[0]
        if quote and sign == "\\":
            while region.at == len(region.text):
                yield
            region.at += 1
        elif quote:
            quote = ""
        elif sign in quotes:
            quote = sign
        elif sign in opening:
            depth += 1
        elif sign not in closing:
            region.at -= 1
            return
        else:
            depth -= 1
            if depth <= 0:
                region.whole = True
                return


def skip_value(region: Region, quotes: str = '"') -> Generator[None, None, None]:
    """Move behind blanks and one object or list of objects; up to the first character that cannot belong to it."""
    yield from skip_blanks(region)
    if region.text[region.at] not in "{[":
        return
    depth = 0
    if region.text[region.at] == "[":
        region.at, depth = region.at + 1, 1
        yield from skip_blanks(region)
        if region.text[region.at] not in "{]":
            return
    yield from skip_brackets(region, quotes, depth)


def end_with(region: Region, marker: str) -> Generator[None, None, int]:
    """The region's length with the marker, if blanks and the marker come next; else without them."""
    length = region.offset
    while True:
        text, at = region.text, region.at
        blanks = blank_to(text, at)
        place = text.find(marker, at, blanks + len(marker))
        if place >= 0:
            region.at = place + len(marker)
            return region.offset
        if blanks < len(text) and not marker.startswith(text[blanks:]):
            return length
        region.at = max(at, blanks - len(marker))  # the marker itself may begin with white space
        yield
