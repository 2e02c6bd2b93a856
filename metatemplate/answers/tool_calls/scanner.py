"""Finds the tool calls in one choice's text, which may arrive in pieces of any length.

The text is sent unchanged, with two exceptions:

- A region that contains only complete calls of the request's tools is sent as calls.
- White space is dropped if it is the only text between two calls, or between a call and the start or end of the text.

Only text that may become a call is held back. A region without calls is sent as text. If the region ended as a call
ends, all its text is sent; otherwise only its marker is sent, and the rest is scanned again.

The work is linear in the text. Text is scanned in slices, so a region costs at most its length and one slice. The text
that is scanned again is limited to a multiple of all text; beyond the limit a region is sent without another scan.
"""

from __future__ import annotations

from itertools import groupby

from metatemplate.answers.stops.stop_search import StopScanner
from metatemplate.answers.tool_calls.format import (
    FAULTS,
    BrokenCall,
    Format,
    Found,
    ParsedCall,
    Piece,
    Region,
    Thought,
    ToolSchemas,
    UnparsedCall,
)

SLICE = 4096
"""Maximum characters that are scanned in one step."""
MAX_CALLS = 256
"""Maximum calls in one answer; further calls are sent as text."""
MAX_REGION = 1024 * 1024
"""Maximum characters of a region, which can be read in 0.1 s. A longer region is sent as text."""
MAX_BLANK = 64 * 1024
"""Maximum characters of white space that are held before a possible call."""
AGAIN, AGAIN_AT_LEAST = 4, 65536
"""Maximum repeated scans per character on average, and number of characters that may be scanned again in any answer."""


class Scanner:
    """Divides the text of one choice into content, calls, failed calls and reasoning."""

    def __init__(self, format_: Format, tools: ToolSchemas) -> None:
        """``tools``: the tools that may be called."""
        self._format = format_
        self._tools = tools
        self._markers = StopScanner(format_.markers)
        self._out: list[Piece] = []
        self._at = 0
        """Number of characters scanned so far."""
        self._again = 0
        """Number of characters in regions without calls, which were or would be scanned again."""
        self._called = 0
        """Number of calls so far."""
        self._region: Region | None = None
        """The open region; None if no region is open."""
        self._fresh = True
        """True: since the start of the text, or since the last call, only white space or a separator has arrived."""
        self._blank = ""
        """The held white space since the start or the last call; used only while ``_fresh`` is true."""
        self._separated = False
        """True: ``_blank`` contains a separator."""
        self._prefix = len(format_.prefix)
        """Number of characters that were added before the text, and must be removed from the first text sent."""
        self._scan(format_.prefix)

    @property
    def held(self) -> int:
        """Number of characters that were received but not yet returned."""
        return len(self._blank) + self.waiting + self._markers.held - self._prefix

    @property
    def waiting(self) -> int:
        """Number of characters of the open region; 0 if no region is open."""
        return 0 if self._region is None else self._region.size

    def feed(self, text: str) -> list[Piece]:
        """Add text. Returns the pieces that are certain now."""
        self._scan(text)
        return self._take_pieces()

    def end(self, *, stopped: bool = False) -> list[Piece]:
        """Return the last pieces: the calls of an open region, and all held text. Call when the text has ended.

        ``stopped``: the model ended the answer itself, or at a stop, so the closing marker of a call may be missing.
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
        for is_text, pieces in groupby(out, lambda piece: isinstance(piece, str)):  # joins text that the slices divided
            if is_text:
                joined.append("".join(map(str, pieces)))
            else:
                joined += pieces
        return joined

    # ---------------------------------------------------------------- text outside regions

    def _scan_text(self, text: str) -> str:
        """Scan text while no region is open. Returns the rest of the text, which must still be scanned."""
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
        """Return the number of characters to skip before a region: white space, and one separator after a call."""
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
        """Send the held white space as content, because it belongs to no call."""
        self._emit(self._blank)
        self._blank = ""
        self._fresh = self._separated = False

    def _emit(self, text: str, *, failed: bool = False) -> None:
        if text and self._prefix:
            text, self._prefix = text[self._prefix :], 0
        if text:
            self._out.append(UnparsedCall(text) if failed else text)

    # ---------------------------------------------------------------- regions

    def _scan_region(self, region: Region, text: str) -> str:
        """Scan text of the open region. Returns the rest of the text, which must still be scanned."""
        length = region.feed(text)
        if length is None and region.size <= MAX_REGION:
            return ""
        return self._close(region, region.size if length is None else length)

    def _close(self, region: Region, length: int, closing: str = "") -> str:
        """Read a region of this length. Returns the rest to scan. ``closing``: the end marker, if it may be missing."""
        self._region = None
        text = "".join(region.pieces)
        text, rest = text[:length], text[length:]
        found = self._read(region, text) or (self._read(region, text + closing) if closing else ())
        calls = [piece for piece in found if isinstance(piece, ParsedCall)]
        if found and self._called + len(calls) <= MAX_CALLS and all(call.name in self._tools for call in calls):
            self._out += [piece for piece in found if piece != Thought("")]
            self._called += len(calls)
            self._blank = ""
            self._fresh, self._separated, self._prefix = True, False, 0
            return rest
        signs = self._format.failure_signs
        has_failed = any(sign in text for sign in signs)
        if not region.whole:
            self._again += length
            if self._again <= AGAIN_AT_LEAST + AGAIN * (region.begin + length):
                text, rest = text[: region.marker], text[region.marker :] + rest
            if not self._format.openers and rest.lstrip().startswith(signs):
                has_failed = False  # the sign is scanned again, and counted then
        if has_failed:
            self._emit_blank()
            self._emit(text, failed=True)
        else:
            self._add_text(text)
        return rest

    def _read(self, region: Region, text: str) -> Found:
        """Return the content of a complete region; empty if the region contains anything else."""
        try:
            return self._format.read(text, self._tools) if len(text) <= MAX_REGION else ()
        except FAULTS as error:
            region.whole = region.whole and not isinstance(error, BrokenCall)
            return ()
