"""Which pieces of a stream are nothing but more text? What recognises them, and passes them on.

The events of a stream differ in their text alone. So an event that has been read once, in full, shows what the next
one looks like: the same bytes before the text's JSON string and behind it. Where they are the same, and between them
stands one string without escapes, the event has been read, and its text needs no other form: it goes into the client's
frame as it came. Every other event is parsed, and what is not plain text ends the passage.
"""

from __future__ import annotations

import re

import orjson

from gateway.backend.openai.events import Answer
from gateway.core.events import Delta
from gateway.core.text_splice import ChoiceFrame, TextSplice
from gateway.stream.sse import MAX_EVENT, SseParser
from gateway.stream.surrogates import maybe_lone

_is_string = re.compile(rb'"[^"\\\x00-\x1f]+"').fullmatch
"""Is there a JSON string that holds something and no escapes? (What ``orjson`` makes of it are the same bytes.)"""
_BEGIN, _END = len(b"data: "), len(b"\n\n")
"""Around the JSON of an event that ``SseParser.plain`` takes."""
Sample = tuple[bytes, Delta]
"""An event as it came, and what it says."""
PROBE = "\N{WHITE SQUARE}"
"""A text to try with; it is put behind the one that came, so that it is another."""
PLACES = 4
"""Where the text's string occurs in an event: so many places are tried."""
ATTEMPTS = 4
"""Events in a row that may look unlike the one before; after that nothing is learnt any more."""


class SseSplicer:
    """Passes on pieces of a body while they are events with nothing but text."""

    __slots__ = (
        "_answer",
        "_attempts",
        "_before",
        "_behind",
        "_first",
        "_halts",
        "_head",
        "_lane",
        "_last",
        "_note",
        "_now",
        "_parser",
        "_passage",
        "_tail",
        "_write",
    )

    def __init__(self, answer: Answer, parser: SseParser, passage: TextSplice, sample: Sample | None = None) -> None:
        """``parser``: idle, as the passage ends with the first piece that it would keep some of.

        ``sample``: an event of this answer that has been read in full; events are expected to look like it.
        """
        self._answer = answer
        self._parser = parser
        self._passage = passage
        self._halts = None if passage.halts is None else passage.halts.search
        self._write = passage.write
        self._now = passage.now
        self._note = passage.moments.append
        self._lane: ChoiceFrame | None = None
        """The lane of the events whose look is known; None: none is."""
        self._attempts = ATTEMPTS
        if sample is not None:
            data, delta = sample
            lane = passage.lanes.get(delta.index)
            if lane is not None:
                self._learn(data, delta, lane)

    def take(self, data: bytes) -> bool:
        """Pass a piece of the body on; False: nothing has been done with it."""
        lane = self._lane
        if lane is None or not (data.startswith(self._head) and data.endswith(self._tail)):
            return self._parsed(data)
        size = len(data)
        end = size - self._last
        # Both quotes belong to what is known, so the string begins one byte before its text and ends one behind it.
        if size > MAX_EVENT or _is_string(data, self._first - 1, end + 1) is None:
            return self._parsed(data)
        said = data[self._first : end]
        try:
            text = said.decode()
        except UnicodeDecodeError:
            return False
        halts = self._halts
        if (halts is not None and halts(text) is not None) or not self._write(self._before + said + self._behind):
            return False
        lane.passed += len(text)
        self._note(self._now())
        self._attempts = ATTEMPTS
        return True

    def _parsed(self, data: bytes) -> bool:
        delta = self._read(data)
        if delta is None:
            return False
        text, lane = delta.text, self._passage.lanes.get(delta.index)
        if lane is None or (self._halts is not None and self._halts(text) is not None):
            return False
        if not self._write(lane.before + orjson.dumps(text) + lane.behind):
            return False
        lane.passed += len(text)
        self._note(self._now())
        if self._attempts:
            self._attempts -= 1
            self._learn(data, delta, lane)
        return True

    def _read(self, data: bytes) -> Delta | None:
        """What one event says, if it is one event that only says more of a choice."""
        said = None if maybe_lone(data) else self._parser.plain(data)
        if said is None or len(said) != 1:
            return None
        try:
            return self._answer.ordinary(orjson.loads(said[0]))
        except ValueError:
            return None

    def _says(self, event: bytes, index: int, text: str) -> bool:
        """Does this event, made of one that could be read, say that text?"""
        try:
            delta = self._answer.ordinary(orjson.loads(event[_BEGIN:-_END]))
        except ValueError:
            return False
        return delta is not None and delta.index == index and delta.text == text

    def _learn(self, data: bytes, delta: Delta, lane: ChoiceFrame) -> None:
        """What do events look like whose text alone is another? Found by putting another one in."""
        said, other = orjson.dumps(delta.text), delta.text + PROBE
        probe = orjson.dumps(other)[1:-1]
        at = data.find(said)
        for _ in range(PLACES):
            if at < 0:
                return
            first, last = at + 1, len(data) - at - len(said) + 1
            head, tail = data[:first], data[-last:]
            if self._says(head + probe + tail, delta.index, other):
                self._head, self._tail, self._first, self._last = head, tail, first, last
                self._before, self._behind = lane.before + b'"', b'"' + lane.behind
                self._lane = lane
                return
            at = data.find(said, at + 1)
