"""Finds the calls in one choice's text as it arrives, in any slicing.

The text goes out unchanged, except for:

- complete and correct calls: they name tools of the request, and their region holds nothing else
- white space alone between two calls, or between a call and either end of the text: it belongs to the calls

Text that may still become a call is held back, and no more. A region without calls goes out as it was: all of it if it
has reached its own end; otherwise its marker, and the rest is scanned again.

The work is linear in the text: it is done in slices, so that a region costs itself and one slice at most, and what is
scanned again is limited to a share of the text; beyond it a region is given up whole.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from itertools import groupby

from gateway.stream.stop_search import StopScanner
from gateway.stream.tool_calls.format import MAX_CALLS, Calls, Format, Piece, UnparsedCall
from gateway.stream.tool_calls.region import Region

_BLANK = re.compile(r"\s*")
SLICE = 4096
"""Characters that are scanned in one go."""
MAX_REGION = 1024 * 1024
"""Characters of a region that may hold calls; reading them takes up to 0.1 s. A longer region is text."""
MAX_BLANK = 64 * 1024
"""Characters of white space that are held as belonging to a call."""
AGAIN, AGAIN_AT_LEAST = 4, 65536
"""Repeated scans per character of the text, at most on average; and characters exempt from that limit."""


class Scanner:
    """Divides the text of one choice into pieces."""

    __slots__ = (
        "_again", "_at", "_begin", "_blank", "_blanks", "_called", "_format", "_fresh", "_held", "_left", "_line_break",
        "_marker", "_markers", "_names", "_out", "_region", "_separated",
    )  # fmt: skip

    def __init__(self, format_: Format, names: Collection[str]) -> None:
        """``names``: the tools that may be called."""
        self._format = format_
        self._names = names
        self._markers = StopScanner(format_.markers)
        self._out: list[Piece] = []
        self._left: list[str] = []
        """Slices that are still to be scanned, the last one first."""
        self._at = 0
        """Characters that were scanned."""
        self._again = 0
        """Characters that were scanned in vain, and again."""
        self._called = 0
        """Calls so far."""
        self._region: Region | None = None
        self._held: list[str] = []
        """The text of the open region."""
        self._begin = 0
        """Characters before the region."""
        self._marker = 0
        """Characters of the region that opened it."""
        self._fresh = True
        """Only calls and white space have come."""
        self._blank: list[str] = []
        """While fresh: the white space since the beginning, or since the last call."""
        self._blanks = 0
        """Characters of it."""
        self._separated = False
        """It contains a separator."""
        self._line_break = format_.markers_begin_lines
        """The first thing to go out begins with a line break that was added here, to be taken off."""
        if self._line_break:
            self._markers.feed("\n")

    @property
    def held(self) -> int:
        """Characters that have come and not gone out."""
        return self._blanks + self.waiting + self._markers.held - self._line_break

    @property
    def waiting(self) -> int:
        """Characters of an open region."""
        return 0 if self._region is None else self._at - self._begin

    def feed(self, text: str) -> list[Piece]:
        """The pieces that are certain now."""
        self._scan(text)
        return self._take_pieces()

    def end(self, *, stopped: bool = False) -> list[Piece]:
        """The last pieces: an open region is read as it is, and held text goes out.

        ``stopped``: the model ended its answer itself or at a stop; a region may lack its closing marker then.
        """
        closing = self._format.closing if stopped else ""
        while self._region is not None:
            rest = self._close("".join(self._held), whole=self._region.whole, closing=closing)
            self._at -= len(rest)
            self._scan(rest)
        self._add_text(self._markers.flush())
        blank = self._take_blank()
        if blank and (not self._called or blank.strip()):
            self._emit(blank)
        return self._take_pieces()

    def _scan(self, text: str) -> None:
        left = self._left
        while text or left:
            if len(text) > SLICE:
                left += [text[at : at + SLICE] for at in range(0, len(text), SLICE)][::-1]
                text = ""
            text = text or left.pop()
            rest = self._scan_text(text) if self._region is None else self._scan_region(self._region, text)
            self._at += len(text) - len(rest)
            text = rest

    def _take_pieces(self) -> list[Piece]:
        out, self._out = self._out, []
        if len(out) < 2:
            return out
        joined: list[Piece] = []
        for is_text, pieces in groupby(out, lambda piece: isinstance(piece, str)):  # slices divide text
            if is_text:
                joined.append("".join(map(str, pieces)))
            else:
                joined.extend(pieces)
        return joined

    # ---------------------------------------------------------------- text outside regions

    def _scan_text(self, text: str) -> str:
        """Scan text where no region is open, and return the rest that is still to be scanned."""
        if self._format.openers and self._fresh and not self._markers.node:
            blanks = self._blanks_of(text)
            if blanks:
                self._hold_blank(text[:blanks])
                return text[blanks:]
            if text[0] in self._format.openers:
                self._open(self._at, 1)
                return text
        held = self._markers.held
        out, marker = self._markers.feed(text)
        self._add_text(out)
        if marker is None:
            return ""
        begin = len(out) - held
        region = self._open(self._at + begin, len(marker))
        self._held.append(marker)
        ended = region.feed(marker)
        assert ended is None  # no region ends inside its marker
        return text[begin + len(marker) :]

    def _open(self, begin: int, marker: int) -> Region:
        self._begin, self._marker = begin, marker
        self._region = region = Region(self._format.rule)
        return region

    def _blanks_of(self, text: str) -> int:
        """Number of characters to skip before the next region: white space, and one separator behind a call."""
        at = _end_of_blank(text, 0)
        separator = self._format.separator
        if separator and self._called and not self._separated and text.startswith(separator, at):
            self._separated = True
            at = _end_of_blank(text, at + len(separator))
        return at

    def _add_text(self, text: str) -> None:
        if not text:
            return
        if self._fresh:
            if not text.strip():
                self._hold_blank(text)
                return
            text = self._take_blank() + text
            self._fresh = False
        self._emit(text)

    def _hold_blank(self, blank: str) -> None:
        self._blank.append(blank)
        self._blanks += len(blank)
        if self._blanks > MAX_BLANK:
            self._emit_blank()

    def _take_blank(self) -> str:
        blank = "".join(self._blank)
        self._blank.clear()
        self._blanks = 0
        self._separated = False
        return blank

    def _emit_blank(self) -> None:
        """White space that belongs to no call."""
        self._fresh = False
        self._emit(self._take_blank())

    def _emit(self, text: str, *, failed: bool = False) -> None:
        if text and self._line_break:
            self._line_break = False
            text = text[1:]
        if text:
            self._out.append(UnparsedCall(text) if failed else text)

    # ---------------------------------------------------------------- regions

    def _scan_region(self, region: Region, text: str) -> str:
        """Scan text of the open region, and return the rest that is still to be scanned."""
        length = region.feed(text)
        if length is None and self.waiting + len(text) <= MAX_REGION:
            self._held.append(text)
            return ""
        text = "".join(self._held) + text
        length = len(text) if length is None else length
        return self._close(text[:length], whole=region.whole) + text[length:]

    def _close(self, region: str, *, whole: bool, closing: str = "") -> str:
        """Read an ended region; return the rest to be scanned again. ``closing``: its end marker may be missing."""
        self._region = None
        self._held.clear()
        calls = self._format.read(region) if len(region) <= MAX_REGION else None
        if calls is None and closing and len(region) <= MAX_REGION:
            calls = self._format.read(region + closing)
        if calls and self._called + len(calls) <= MAX_CALLS and all(call.name in self._names for call in calls):
            self._add_calls(calls)
            return ""
        rest = ""
        has_failed = any(sign in region for sign in self._format.failure_signs)
        if not whole:
            self._again += len(region)
            if self._again <= AGAIN_AT_LEAST + AGAIN * (self._begin + len(region)):
                region, rest = region[: self._marker], region[self._marker :]
        if has_failed:
            self._emit_blank()
            self._emit(region, failed=True)
        else:
            self._add_text(region)
        return rest

    def _add_calls(self, calls: Calls) -> None:
        self._out.extend(calls)
        self._take_blank()
        self._line_break = False
        self._fresh = True
        self._called += len(calls)


def _end_of_blank(text: str, at: int) -> int:
    blank = _BLANK.match(text, at)
    assert blank is not None
    return blank.end()
