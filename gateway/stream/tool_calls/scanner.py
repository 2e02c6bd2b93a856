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

from collections.abc import Collection
from itertools import groupby

from gateway.stream.stop_search import StopScanner
from gateway.stream.tool_calls.format import FAULTS, Calls, Format, Piece, Region, UnparsedCall

SLICE = 4096
"""Characters that are scanned in one go."""
MAX_CALLS = 256
"""Calls in one answer; further ones stay text."""
MAX_REGION = 1024 * 1024
"""Characters of a region that may hold calls; reading them takes up to 0.1 s. A longer region is text."""
MAX_BLANK = 64 * 1024
"""Characters of white space that are held as belonging to a call."""
AGAIN, AGAIN_AT_LEAST = 4, 65536
"""Repeated scans per character of the text, at most on average; and characters exempt from that limit."""


class Scanner:
    """Divides the text of one choice into pieces."""

    __slots__ = (
        "_again", "_at", "_blank", "_called", "_format", "_fresh", "_line_break", "_markers", "_names", "_out",
        "_region", "_separated",
    )  # fmt: skip

    def __init__(self, format_: Format, names: Collection[str]) -> None:
        """``names``: the tools that may be called."""
        self._format = format_
        self._names = names
        self._markers = StopScanner(format_.markers)
        self._out: list[Piece] = []
        self._at = 0
        """Characters that were scanned."""
        self._again = 0
        """Characters that were scanned in vain, and again."""
        self._called = 0
        """Calls so far."""
        self._region: Region | None = None
        """The open region."""
        self._fresh = True
        """Only calls and white space have come."""
        self._blank = ""
        """While fresh: the white space since the beginning, or since the last call."""
        self._separated = False
        """It contains a separator."""
        self._line_break = format_.markers_begin_lines
        """The first thing to go out begins with a line break that was added here, to be taken off."""
        if self._line_break:
            self._markers.feed("\n")

    @property
    def held(self) -> int:
        """Characters that have come and not gone out."""
        return len(self._blank) + self.waiting + self._markers.held - self._line_break

    @property
    def waiting(self) -> int:
        """Characters of an open region."""
        return 0 if self._region is None else self._region.size

    def feed(self, text: str) -> list[Piece]:
        """The pieces that are certain now."""
        self._scan(text)
        return self._take_pieces()

    def end(self, *, stopped: bool = False) -> list[Piece]:
        """The last pieces: an open region is read as it is, and held text goes out.

        ``stopped``: the model ended its answer itself or at a stop; a region may lack its closing marker then.
        """
        while self._region is not None:
            rest = self._close(self._region, self._region.size, self._format.closing if stopped else "")
            self._at -= len(rest)
            self._scan(rest)
        self._add_text(self._markers.flush())
        if not self._called or self._blank.strip():
            self._emit(self._blank)
        self._blank = ""
        return self._take_pieces()

    def _scan(self, text: str) -> None:
        left = [text]
        while left:
            text = left.pop()
            if len(text) > SLICE:
                left += [text[at : at + SLICE] for at in range(0, len(text), SLICE)][::-1]
            elif text:
                rest = self._scan_text(text) if self._region is None else self._scan_region(self._region, text)
                self._at += len(text) - len(rest)
                left.append(rest)

    def _take_pieces(self) -> list[Piece]:
        out, self._out = self._out, []
        if len(out) < 2:
            return out
        joined: list[Piece] = []
        for is_text, pieces in groupby(out, lambda piece: isinstance(piece, str)):  # slices divide text
            if is_text:
                joined.append("".join(map(str, pieces)))
            else:
                joined += pieces
        return joined

    # ---------------------------------------------------------------- text outside regions

    def _scan_text(self, text: str) -> str:
        """Scan text where no region is open, and return the rest that is still to be scanned."""
        if self._format.openers and self._fresh and not self._markers.node:
            blanks = self._blanks_of(text)
            if blanks:
                self._add_blank(text[:blanks])
                return text[blanks:]
            if text[0] in self._format.openers:
                self._region = Region(self._format.rule, self._at, text[0])
                return text[1:]
        held = self._markers.held
        out, marker = self._markers.feed(text)
        self._add_text(out)
        if marker is None:
            return ""
        begin = len(out) - held
        self._region = Region(self._format.rule, self._at + begin, marker)
        return text[begin + len(marker) :]

    def _blanks_of(self, text: str) -> int:
        """Number of characters to skip before the next region: white space, and one separator behind a call."""
        rest = text.lstrip()
        separator = self._format.separator
        if separator and self._called and not self._separated and rest.startswith(separator):
            self._separated = True
            rest = rest[len(separator) :].lstrip()
        return len(text) - len(rest)

    def _add_text(self, text: str) -> None:
        if self._fresh and not text.strip():
            self._add_blank(text)
        else:
            self._emit_blank()
            self._emit(text)

    def _add_blank(self, blank: str) -> None:
        self._blank += blank
        if len(self._blank) > MAX_BLANK:
            self._emit_blank()

    def _emit_blank(self) -> None:
        """White space that belongs to no call."""
        self._emit(self._blank)
        self._blank = ""
        self._fresh = self._separated = False

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
        if length is None and region.size <= MAX_REGION:
            return ""
        return self._close(region, region.size if length is None else length)

    def _close(self, region: Region, length: int, closing: str = "") -> str:
        """Read a region of this length; return the rest to be scanned. ``closing``: its end marker may be missing."""
        self._region = None
        text = "".join(region.pieces)
        text, rest = text[:length], text[length:]
        calls = self._read(text) or (self._read(text + closing) if closing else ())
        if calls and self._called + len(calls) <= MAX_CALLS and all(call.name in self._names for call in calls):
            self._out += calls
            self._called += len(calls)
            self._blank = ""
            self._fresh, self._separated, self._line_break = True, False, False
            return rest
        has_failed = any(sign in text for sign in self._format.failure_signs)
        if not region.whole:
            self._again += length
            if self._again <= AGAIN_AT_LEAST + AGAIN * (region.begin + length):
                text, rest = text[: region.marker], text[region.marker :] + rest
        if has_failed:
            self._emit_blank()
            self._emit(text, failed=True)
        else:
            self._add_text(text)
        return rest

    def _read(self, region: str) -> Calls:
        """The calls of an ended region; none if it holds anything beside them."""
        try:
            return self._format.read(region) if len(region) <= MAX_REGION else ()
        except FAULTS:
            return ()
