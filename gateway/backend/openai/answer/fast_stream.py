"""Fast path of streams: events that have only further text are written to the client without reading their chunks.

Most events of a stream differ only in their text. One event that was read gives the bytes before and after the text. If
a piece of the body consists of events with these bytes, only the JSON strings between these bytes are parsed, or not
even these if they have only plain ASCII characters. The first piece with other bytes ends the forwarding.

The general implementation is ``BodyEvents.next_batch``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

import orjson

from gateway.backend.openai.answer.events import ChoiceFormat
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
        "_format",
        "_frame",
        "_frames_after",
        "_frames_before",
        "_plain",
        "_splice",
    )

    def __init__(self, format: ChoiceFormat) -> None:
        self._format = format
        self._around: dict[int, AroundText] = {}
        """Index of a choice → the bytes around its text in the last event that showed them."""
        self._attempts = ATTEMPTS
        self._before = self._after = b""
        """The bytes around the text in the events that ``take`` forwards."""
        self._plain = b""
        """See ``plain_text_table``."""
        self._frame: ChoiceFrame
        self._splice = CLOSED

    def begin(self, splice: TextSplice, data: bytes, events: Sequence[Event]) -> bool:
        """Let ``take`` forward events like one that was read. Return False if no event can be forwarded.

        ``data``: the data of the event. ``events``: what was read from these data; no byte of the stream was read
        since then.
        """
        delta = events[-1] if events else None
        if type(delta) is not Delta or not delta.text or delta.logprobs or delta.fields or delta.extras:
            return False
        frame = splice.frames.get(delta.index)
        if frame is None or maybe_lone(data) or b"\n" in data:  # data of several lines
            return False
        event, around = b"data: " + data + b"\n\n", self._around.get(delta.index)
        if around is None or not (event.startswith(around[0]) and event.endswith(around[1])):
            around = bytes_around_text(data, delta, self._format) if self._attempts else None
            if around is None:
                return False
            self._attempts -= 1
            self._around[delta.index] = around
        self._before, self._after = around
        self._around_size = len(self._before) + len(self._after)
        self._frames_before, self._frames_after = frame.before + b'"', b'"' + frame.after
        self._plain = plain_text_table(splice.halts)
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
        size, count = len(texts), 1
        if size + self._around_size != len(data):
            return False
        # A text of at most ``_around_size`` bytes is that of one event.
        if size > self._around_size or not size or texts.translate(self._plain) != texts:
            try:
                texts, size, count = self._read_texts(texts)
            except (ValueError, TypeError):
                return False
        splice = self._splice
        if not splice.write(self._frames_before + texts + self._frames_after):
            return False
        self._frame.forwarded += size
        if count == 1:
            splice.moments.append(splice.now())
        else:
            splice.moments += [splice.now()] * count
        return True

    def _read_texts(self, texts: bytes) -> tuple[bytes, int, int]:
        """Return the texts of several events with the bytes between the client's frames, their length and number.

        ``texts``: JSON strings without their outer quotes, with the bytes between the events. Raises ``ValueError`` or
        ``TypeError`` if a part is not one JSON string with text, or if the text must not be forwarded.
        """
        parts = texts.split(self._after + self._before)
        joined = b'",\n"'.join(parts)
        # No JSON string contains a line end. So if the list has one string for each part, each part is one string.
        strings = orjson.loads(b'["' + joined + b'"]')
        text = "".join(strings)
        if len(strings) != len(parts) or "" in strings or self._splice.halts.search(text) is not None:
            raise ValueError("not one text that can be forwarded in each event")
        if len(joined) != len(text) + 4 * (len(parts) - 1):  # not only ASCII without escapes
            parts = [orjson.dumps(string)[1:-1] for string in strings]
        return (self._frames_after + self._frames_before).join(parts), len(text), len(parts)


@lru_cache(64)
def plain_text_table(halts: re.Pattern[str]) -> bytes:
    """Return a table with which ``bytes.translate`` changes every text that has other than plain characters.

    Plain are the ASCII characters that stand for themselves in a JSON string, and that may be forwarded.
    """
    plain = {one for one in range(0x20, 0x7F) if chr(one) not in '"\\' and halts.search(chr(one)) is None}
    return bytes([one if one in plain else one ^ 1 for one in range(256)])


def bytes_around_text(data: bytes, delta: Delta, format: ChoiceFormat) -> AroundText | None:
    """Return the bytes around the text of an event; None if no such bytes are found.

    ``data``: the data of the event. ``delta``: the last event that was read from these data, with only text. A
    different text between the bytes changes only the text of the delta.
    """
    text, other, at = orjson.dumps(delta.text), delta.text + PROBE, -1
    for _ in range(MAX_PLACES):
        at = data.find(text, at + 1)
        if at < 0:
            break
        before, after = data[:at], data[at + len(text) :]
        try:
            chunk = orjson.loads(before + orjson.dumps(other) + after)
            (choice,) = chunk["choices"]
            holder, key = (choice, "text") if format.message is None else (choice["delta"], "content")
            found, holder[key] = holder[key], delta.text
            if found == other and chunk == orjson.loads(data):
                return b"data: " + before + b'"', b'"' + after + b"\n\n"
        except (ValueError, TypeError, KeyError, RecursionError):  # the last for a chunk that nests too deeply
            continue
    return None
