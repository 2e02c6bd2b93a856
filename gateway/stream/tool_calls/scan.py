"""Where in a text are its calls? Walks one choice's text as it arrives, in any slicing, and loses nothing.

What goes out is the text, piece by piece, but for these:

- Calls that are complete, and right: they hold nothing else, and name tools that the request has.
- White space alone between two calls, or between a call and either end of the text: it belongs to the calls.

Text that may still become a call is held back, and no more than that. What turns out to be none goes out as it was.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from gateway.stream.stops import StopScanner, stop_set
from gateway.stream.tool_calls.base import Calls, Format, Piece, Region, Unread

_BLANK = re.compile(r"\s*")


class Scanner:
    """One choice's text on its way into pieces."""

    __slots__ = (
        "_blank",
        "_called",
        "_format",
        "_fresh",
        "_held",
        "_line",
        "_marks",
        "_names",
        "_out",
        "_region",
    )

    def __init__(self, format_: Format, names: Collection[str]) -> None:
        """``names``: the tools that may be called."""
        self._format = format_
        self._names = names
        self._marks = StopScanner(stop_set(format_.markers))
        self._region: Region | None = None
        self._held: list[str] = []
        """The open region."""
        self._fresh = True
        """Nothing but calls and blanks has been said."""
        self._blank = ""
        """While fresh: the blanks since the beginning, or since the last call."""
        self._called = False
        self._line = format_.lines
        """The first thing to go out is a line's end that nobody wrote, to be taken off."""
        if self._line:
            self._marks.feed("\n")
        self._out: list[Piece] = []

    @property
    def held(self) -> int:
        """How many characters have come and not gone out."""
        return len(self._blank) + sum(map(len, self._held)) + self._marks.held - self._line

    def feed(self, text: str) -> list[Piece]:
        """The pieces that are certain now."""
        while text:
            text = self._ordinary(text) if self._region is None else self._within(self._region, text)
        return self._taken()

    def end(self) -> list[Piece]:
        """No more comes: an open region is read as it stands, what was held back goes out."""
        if self._region is not None:
            self._close("".join(self._held))
        self._say(self._marks.flush())
        if self._blank and not (self._called and not self._blank.strip()):
            self._pass(self._blank)
        self._blank = ""
        return self._taken()

    def _taken(self) -> list[Piece]:
        out, self._out = self._out, []
        return out

    # ---------------------------------------------------------------- between calls

    def _ordinary(self, text: str) -> str:
        """Take text in which no region is open; what is left of it."""
        marks, openers = self._marks, self._format.openers
        if openers and not marks.node:
            if not self._fresh:
                openers = ""
            else:
                blanks = self._blanks_of(text)
                if blanks == len(text):
                    self._blank += text
                    return ""
                if text[blanks] in openers:
                    self._blank += text[:blanks]
                    self._region = self._format.region()
                    return text[blanks:]
        held = marks.held
        out, mark = marks.feed(text)
        self._say(out)
        if mark is None:
            return ""
        self._region = self._format.region()
        self._held.append(mark)
        rest = text[len(out) - held + len(mark) :]
        ended = self._region.feed(mark)
        if ended is not None:
            self._close(mark[:ended])
            return mark[ended:] + rest
        return rest

    def _blanks_of(self, text: str) -> int:
        """How many characters may stand before the next region."""
        at = _end_of(text, 0)
        separator = self._format.separator
        if separator and self._called and separator not in self._blank and text.startswith(separator, at):
            at = _end_of(text, at + len(separator))
        return at

    def _say(self, text: str) -> None:
        """Text of no region."""
        if not text:
            return
        if self._fresh:
            text, self._blank = self._blank + text, ""
            if not text.strip():
                self._blank = text
                return
            self._fresh = False
        self._pass(text)

    def _pass(self, text: str) -> None:
        if self._line:
            self._line = False
            text = text[1:]
        if text:
            self._out.append(text)

    # ---------------------------------------------------------------- inside a region

    def _within(self, region: Region, text: str) -> str:
        """Take text of the open region; what is left of it."""
        ended = region.feed(text)
        if ended is None:
            self._held.append(text)
            return ""
        before = "".join(self._held)
        whole, end = before + text, len(before) + ended
        self._close(whole[:end])
        return whole[end:]

    def _close(self, region: str) -> None:
        self._region = None
        self._held.clear()
        calls = self._format.read(region)
        if calls and all(call.name in self._names for call in calls):
            self._made(calls)
        elif any(told in region for told in self._format.telling):
            self._say_blank()
            self._pass_unread(region)
        else:
            self._say(region)

    def _made(self, calls: Calls) -> None:
        self._out.extend(calls)
        self._blank = ""
        self._line = False
        self._fresh = self._called = True

    def _say_blank(self) -> None:
        blank, self._blank = self._blank, ""
        self._fresh = False
        if blank:
            self._pass(blank)

    def _pass_unread(self, region: str) -> None:
        if self._line:
            self._line = False
            region = region[1:]
        self._out.append(Unread(region))


def _end_of(text: str, at: int) -> int:
    blank = _BLANK.match(text, at)
    assert blank is not None
    return blank.end()
