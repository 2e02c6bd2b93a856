"""Fast path of streams: events that have only further text are written to the client without being parsed.

Most events of a stream differ only in their text. One parsed event gives the bytes before and after the text. If an
event has the same bytes around one JSON string without escapes, the string is copied into the client's frame without
parsing. Every other event is parsed, and the first event that is not plain text ends the forwarding.

The general implementation is ``BodyEvents.next_batch``.
"""

from __future__ import annotations

import re

import orjson

from gateway.backend.openai.answer.events import ChunkReader
from gateway.core.events import Delta
from gateway.core.text_splice import ChoiceFrame, TextSplice
from gateway.stream.sse import MAX_EVENT, SseParser
from gateway.stream.surrogates import maybe_lone

_match_string = re.compile(rb'"[^"\\\x00-\x1f]+"').fullmatch
"""Matches a JSON string that is not empty and has no escapes; ``orjson`` writes it with the same bytes."""
_PREFIX, _SUFFIX = len(b"data: "), len(b"\n\n")
"""The numbers of bytes before and after the JSON of an event that ``SseParser.fast_feed`` accepts."""
Sample = tuple[bytes, Delta]
"""The bytes of an event, and the delta parsed from these bytes."""
PROBE = "\N{WHITE SQUARE}"
"""This text is appended to another text to obtain a different text."""
MAX_PLACES = 4
"""The maximum number of places that are tried if the text occurs several times in an event."""
ATTEMPTS = 4
"""After this many consecutive events that differ from the event before, the splicer stops learning from events."""


class SseSplicer:
    """Forwards pieces of a body while each piece is one event that has only text."""

    __slots__ = (
        "_after", "_attempts", "_before", "_first", "_frame", "_head", "_last", "_now", "_parser", "_reader",
        "_record", "_search_halt", "_splice", "_tail", "_write",
    )  # fmt: skip

    def __init__(
        self, reader: ChunkReader, parser: SseParser, splice: TextSplice, sample: Sample | None = None
    ) -> None:
        """``parser`` must not hold a part of an event. ``sample``: a parsed event of this response."""
        self._reader = reader
        self._parser = parser
        self._splice = splice
        self._search_halt = None if splice.halts is None else splice.halts.search
        self._write = splice.write
        self._now = splice.now
        self._record = splice.moments.append
        self._frame: ChoiceFrame | None = None
        """The frame of events that begin with ``_head`` and end with ``_tail``; None: no such bytes are known yet."""
        self._attempts = ATTEMPTS
        if sample is not None:
            data, delta = sample
            frame = splice.frames.get(delta.index)
            if frame is not None:
                self._learn(data, delta, frame)

    def take(self, data: bytes) -> bool:
        """Forward a piece of the body and return True. If the piece cannot be forwarded, return False."""
        frame = self._frame
        if frame is None or not (data.startswith(self._head) and data.endswith(self._tail)):
            return self._take_parsed(data)
        size = len(data)
        end = size - self._last
        # Head and tail include the quotes, so the string is one byte longer than its text at both ends.
        if size > MAX_EVENT or _match_string(data, self._first - 1, end + 1) is None:
            return self._take_parsed(data)
        raw = data[self._first : end]
        try:
            text = raw.decode()
        except UnicodeDecodeError:
            return False
        search_halt = self._search_halt
        if search_halt is not None and search_halt(text) is not None:
            return False
        if not self._write(self._before + raw + self._after):
            return False
        frame.forwarded += len(text)
        self._record(self._now())
        self._attempts = ATTEMPTS
        return True

    def _take_parsed(self, data: bytes) -> bool:
        lines = None if maybe_lone(data) else self._parser.fast_feed(data)
        delta = self._parse(lines[0]) if lines is not None and len(lines) == 1 else None
        if delta is None:
            return False
        text, frame = delta.text, self._splice.frames.get(delta.index)
        if frame is None or (self._search_halt is not None and self._search_halt(text) is not None):
            return False
        if not self._write(frame.before + orjson.dumps(text) + frame.after):
            return False
        frame.forwarded += len(text)
        self._record(self._now())
        if self._attempts:
            self._attempts -= 1
            self._learn(data, delta, frame)
        return True

    def _parse(self, line: bytes) -> Delta | None:
        try:
            return self._reader.fast_text_delta(orjson.loads(line))
        except ValueError:
            return None

    def _learn(self, data: bytes, delta: Delta, frame: ChoiceFrame) -> None:
        """Find the bytes around an event's text. A different text between these bytes must change only the delta."""
        text, other = orjson.dumps(delta.text), delta.text + PROBE
        probe = orjson.dumps(other)[1:-1]
        at = data.find(text)
        for _ in range(MAX_PLACES):
            if at < 0:
                return
            first, last = at + 1, len(data) - at - len(text) + 1
            head, tail = data[:first], data[-last:]
            if self._parse((head + probe + tail)[_PREFIX:-_SUFFIX]) == Delta(delta.index, other):
                self._head, self._tail, self._first, self._last = head, tail, first, last
                self._before, self._after = frame.before + b'"', b'"' + frame.after
                self._frame = frame
                return
            at = data.find(text, at + 1)
