"""Fast path of streams: events that have only further text are written to the client without reading their chunks.

Most events of a stream differ only in their text. One event that was read gives the bytes before and after the text. If
a piece of the body consists of events with these bytes, only the JSON strings between these bytes are parsed. The first
piece with other bytes ends the forwarding.

The general implementation is ``BodyEvents.next_batch``.
"""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from gateway.backend.openai.answer.events import ChoiceFormat, ChunkReader
from gateway.core.errors import GatewayError
from gateway.core.text_splice import ChoiceFrame, TextSplice
from gateway.stream.surrogates import maybe_lone
from metatemplate.values.events import Delta, Event

PROBE = "\N{WHITE SQUARE}"
"""This text is appended to another text to obtain a different text."""
MAX_PLACES = 4
"""The maximum number of places that are tried if the text occurs several times in an event."""
ATTEMPTS = 4
"""After this many consecutive events with new bytes around their text, no more bytes are learned."""
CLOSED = TextSplice(lambda _: False, {})
"""The splice while nothing is forwarded, because a splice refers to the client's request."""
AroundText = tuple[bytes, bytes]
"""The bytes of an event before and after its text, including the quotes of the JSON string."""


class SseSplicer:
    """Forwards pieces of one stream while each piece has only events that differ from a read event in their text."""

    __slots__ = (
        "_after",
        "_around",
        "_around_size",
        "_attempts",
        "_before",
        "_between",
        "_format",
        "_frame",
        "_frames_after",
        "_frames_before",
        "_frames_between",
        "_splice",
    )

    def __init__(self, format: ChoiceFormat) -> None:
        self._format = format
        self._around: dict[int, AroundText] = {}
        """Index of a choice → the bytes around its text in the last event that showed them."""
        self._attempts = ATTEMPTS
        self._before = self._after = b""
        """The bytes around the text in the events that ``take`` forwards."""
        self._frame: ChoiceFrame
        self._splice = CLOSED

    def begin(self, splice: TextSplice, data: bytes, events: Sequence[Event]) -> bool:
        """Let ``take`` forward events like one that was read. Return False if no event can be forwarded.

        ``data``: the data of the event. ``events``: what was read from these data; no byte of the stream was read
        since then.
        """
        delta = events[-1] if events else None
        if type(delta) is not Delta or not delta.text or maybe_lone(data) or b"\n" in data:  # data of several lines
            return False
        frame = splice.frames.get(delta.index)
        if frame is None:
            return False
        event, around = b"data: " + data + b"\n\n", self._around.get(delta.index)
        if around is None or not (event.startswith(around[0]) and event.endswith(around[1])):
            around = bytes_around_text(event, delta, self._format) if self._attempts else None
            if around is None:
                return False
            self._attempts -= 1
            self._around[delta.index] = around
        self._before, self._after = around
        self._between, self._around_size = around[1] + around[0], len(around[0]) + len(around[1])
        self._frames_before, self._frames_after = frame.before + b'"', b'"' + frame.after
        self._frames_between = self._frames_after + self._frames_before
        self._frame, self._splice = frame, splice
        return True

    def end(self) -> None:
        """End the forwarding that ``begin`` has allowed."""
        if self._frame.forwarded:
            self._attempts = ATTEMPTS
        self._splice = CLOSED

    def take(self, data: bytes) -> bool:
        """Forward a piece of the body and return True. If the piece cannot be forwarded, return False."""
        texts = data.removeprefix(self._before).removesuffix(self._after)
        if len(texts) + self._around_size != len(data):
            return False
        parts = texts.split(self._between)
        count = len(parts)
        joined = b'",\n"'.join(parts)
        try:
            # No JSON string contains a line end. So if the list has one string for each part, each part is one string.
            strings = orjson.loads(b'["' + joined + b'"]')
            text = "".join(strings)
        except (ValueError, TypeError):
            return False
        splice = self._splice
        if len(strings) != count or "" in strings or splice.halts.search(text) is not None:
            return False
        if len(joined) != len(text) + 4 * (count - 1):  # not only ASCII without escapes
            parts = [orjson.dumps(string)[1:-1] for string in strings]
        if not splice.write(self._frames_before + self._frames_between.join(parts) + self._frames_after):
            return False
        self._frame.forwarded += len(text)
        splice.moments += [splice.now()] * count
        return True


def bytes_around_text(event: bytes, delta: Delta, format: ChoiceFormat) -> AroundText | None:
    """Return the bytes around the text of an event; None if no such bytes are found.

    ``delta``: the last event that was read from the chunk in ``event``. A different text between the bytes changes only
    the text of the delta.
    """
    text, other = orjson.dumps(delta.text), delta.text + PROBE
    at = event.find(text)
    for _ in range(MAX_PLACES):
        if at < 0:
            break
        before, after = event[:at], event[at + len(text) :]
        try:
            chunk = orjson.loads((before + orjson.dumps(other) + after)[len(b"data: ") :])
            read = ChunkReader(format, "", delta.index + 1).read(chunk)
        except (ValueError, GatewayError):
            read = []
        if read[1:] == [Delta(delta.index, other)]:
            return before + b'"', b'"' + after
        at = event.find(text, at + 1)
    return None
