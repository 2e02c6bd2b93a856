"""Where in a text are its calls? Walks one choice's text as it arrives, in any slicing, and loses nothing.

What goes out is the text, piece by piece, but for these:

- Calls that are complete, and right: they hold nothing else, and name tools that the request has.
- White space alone between two calls, or between a call and either end of the text: it belongs to the calls.

Text that may still become a call is held back, and no more than that. What turns out to be none goes out as it was:
all of a region that came to its own end; of one that did not, the marker, and the rest is looked at once more.

The work is linear in the text. It is done in slices, so that a region costs no more than itself and one slice; what
is looked at once more is counted, and beyond a share of the text a region is given up whole.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from itertools import groupby

from gateway.stream.stop_search import StopScanner
from gateway.stream.tool_calls.base import MAX_CALLS, Calls, Format, Piece, Region, Unread

_BLANK = re.compile(r"\s*")
SLICE = 4096
"""Characters that are looked at in one go."""
MAX_REGION = 1024 * 1024
"""Characters of a region that may be calls: to read so many holds up a process for up to 0.1 s. A longer one is none,
and no more of it is held."""
MAX_BLANK = 64 * 1024
"""Characters of white space that are held as belonging to a call."""
AGAIN, AGAIN_AT_LEAST = 4, 65536
"""For each character of the text, and at least: how many may be looked at once more."""


class Scanner:
    """One choice's text on its way into pieces."""

    __slots__ = (
        "_again",
        "_at",
        "_begun",
        "_blank",
        "_blanks",
        "_called",
        "_format",
        "_fresh",
        "_held",
        "_left",
        "_line",
        "_marker",
        "_marks",
        "_names",
        "_out",
        "_region",
        "_separated",
    )

    def __init__(self, format_: Format, names: Collection[str]) -> None:
        """``names``: the tools that may be called."""
        self._format = format_
        self._names = names
        self._marks = StopScanner(format_.markers)
        self._region: Region | None = None
        self._held: list[str] = []
        """The open region."""
        self._begun = 0
        """Where in the text it began."""
        self._marker = 0
        """How much of it opened it."""
        self._left: list[str] = []
        """What has come and is still to be looked at, in slices, the last one first."""
        self._at = 0
        """Where in the text that begins."""
        self._again = 0
        """How much of the text has been looked at in vain."""
        self._fresh = True
        """Nothing but calls and blanks has been said."""
        self._blank: list[str] = []
        """While fresh: the blanks since the beginning, or since the last call."""
        self._blanks = 0
        """How many characters these are."""
        self._separated = False
        """A separator is among them."""
        self._called = 0
        """Calls so far."""
        self._line = format_.lines
        """The first thing to go out is a line's end that nobody wrote, to be taken off."""
        if self._line:
            self._marks.feed("\n")
        self._out: list[Piece] = []

    @property
    def held(self) -> int:
        """How many characters have come and not gone out."""
        return self._blanks + self.waiting + self._marks.held - self._line

    @property
    def waiting(self) -> int:
        """How many characters of an open region have come."""
        return 0 if self._region is None else self._at - self._begun

    def feed(self, text: str) -> list[Piece]:
        """The pieces that are certain now."""
        self._look(text)
        return self._taken()

    def end(self, *, stopped: bool = False) -> list[Piece]:
        """No more comes: an open region is read as it stands, what was held back goes out.

        ``stopped``: the model has ended by itself, or at a stop, which may be what closes a region.
        """
        closing = self._format.closing if stopped else ""
        while self._region is not None:
            rest = self._close("".join(self._held), whole=self._region.whole, closing=closing)
            self._at -= len(rest)
            self._look(rest)
        self._say(self._marks.flush())
        blank = self._unblanked()
        if blank and not (self._called and not blank.strip()):
            self._pass(blank)
        return self._taken()

    def _look(self, text: str) -> None:
        left = self._left
        while text or left:
            if len(text) > SLICE:
                left += [text[at : at + SLICE] for at in range(0, len(text), SLICE)][::-1]
                text = ""
            text = text or left.pop()
            rest = self._ordinary(text) if self._region is None else self._within(self._region, text)
            self._at += len(text) - len(rest)
            text = rest

    def _taken(self) -> list[Piece]:
        out, self._out = self._out, []
        if len(out) < 2:
            return out
        joined: list[Piece] = []
        for said, pieces in groupby(out, lambda piece: isinstance(piece, str)):  # what slices have parted
            if said:
                joined.append("".join(map(str, pieces)))
            else:
                joined.extend(pieces)
        return joined

    # ---------------------------------------------------------------- between calls

    def _ordinary(self, text: str) -> str:
        """Take text in which no region is open; what is left of it."""
        marks, openers = self._marks, self._format.openers
        if openers and not marks.node:
            if not self._fresh:
                openers = ""
            else:
                blanks = self._blanks_of(text)
                if blanks:
                    self._hold(text[:blanks])
                    return text[blanks:]
                if text[0] in openers:
                    self._open(self._at, 1)
                    return text
        held = marks.held
        out, mark = marks.feed(text)
        self._say(out)
        if mark is None:
            return ""
        begun = len(out) - held
        region = self._open(self._at + begun, len(mark))
        self._held.append(mark)
        ended = region.feed(mark)
        assert ended is None  # no region ends inside its marker
        return text[begun + len(mark) :]

    def _open(self, at: int, marker: int) -> Region:
        self._begun, self._marker = at, marker
        self._region = region = self._format.region()
        return region

    def _blanks_of(self, text: str) -> int:
        """How many characters may stand before the next region."""
        at = _end_of(text, 0)
        separator = self._format.separator
        if separator and self._called and not self._separated and text.startswith(separator, at):
            self._separated = True
            at = _end_of(text, at + len(separator))
        return at

    def _say(self, text: str) -> None:
        """Text of no region."""
        if not text:
            return
        if self._fresh:
            if not text.strip():
                self._hold(text)
                return
            text = self._unblanked() + text
            self._fresh = False
        self._pass(text)

    def _hold(self, blank: str) -> None:
        """Keep white space that may belong to a call; too much of it is content."""
        self._blank.append(blank)
        self._blanks += len(blank)
        if self._blanks > MAX_BLANK:
            self._say_blank()

    def _unblanked(self) -> str:
        blank = "".join(self._blank)
        self._blank.clear()
        self._blanks = 0
        self._separated = False
        return blank

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
            if self.waiting + len(text) <= MAX_REGION:
                return ""
            ended = len(text)
            self._held.pop()
        before = "".join(self._held)
        whole, end = before + text, len(before) + ended
        return self._close(whole[:end], whole=region.whole) + whole[end:]

    def _close(self, region: str, *, whole: bool, closing: str = "") -> str:
        """What of the region is to be looked at once more. ``closing``: what may be missing at its end."""
        self._region = None
        self._held.clear()
        calls = self._format.read(region) if len(region) <= MAX_REGION else None
        if calls is None and closing and len(region) <= MAX_REGION:
            calls = self._format.read(region + closing)
        if calls and self._called + len(calls) <= MAX_CALLS and all(call.name in self._names for call in calls):
            self._made(calls)
            return ""
        rest = ""
        tells = any(told in region for told in self._format.telling)
        if not whole:
            self._again += len(region)
            if self._again <= AGAIN_AT_LEAST + AGAIN * (self._begun + len(region)):
                region, rest = region[: self._marker], region[self._marker :]
        if tells:
            self._say_blank()
            self._pass_unread(region)
        else:
            self._say(region)
        return rest

    def _made(self, calls: Calls) -> None:
        self._out.extend(calls)
        self._unblanked()
        self._line = False
        self._fresh = True
        self._called += len(calls)

    def _say_blank(self) -> None:
        blank = self._unblanked()
        self._fresh = False
        if blank:
            self._pass(blank)

    def _pass_unread(self, region: str) -> None:
        if self._line:
            self._line = False
            region = region[1:]
        if region:
            self._out.append(Unread(region))


def _end_of(text: str, at: int) -> int:
    blank = _BLANK.match(text, at)
    assert blank is not None
    return blank.end()
