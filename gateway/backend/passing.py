"""Which pieces of a stream are nothing but more text? What recognises them, and passes them on.

The events of a stream differ in their text alone. So an event that has been read once, in full, shows what the next
one looks like: the same bytes before the text's JSON string and behind it. Where they are the same, and between them
stands one string without escapes, the event has been read, and its text needs no other form: it goes into the client's
frame as it came. Every other event is parsed, and what is not plain text stops the passage.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from time import monotonic

import orjson

from gateway.backend.answers import Answer
from gateway.core.passage import Lane, Passage
from gateway.stream.sse import MAX_EVENT

_STRING = re.compile(rb'"[^"\\\x00-\x1f]+"')
"""A JSON string that holds something and no escapes. (What ``orjson`` makes of such a text are the same bytes.)"""
ATTEMPTS = 4
"""Events in a row that may look unlike the one before; after that nothing is learnt any more."""


def passing(answer: Answer, passage: Passage) -> Callable[[bytes], bool]:
    """Passes on a piece of the body that is one event with nothing but text; False: nothing has been done with it."""
    ordinary, key, loads, string = answer.ordinary, answer.text_key, orjson.loads, _STRING.fullmatch
    lanes, halts, write, moments = passage.lanes, passage.halts, passage.write, passage.moments
    head, tail, first, last = b"\n", b"\n", 0, 0  # no event begins so
    attempts = ATTEMPTS
    lane = Lane(b"", b"")
    before = behind = b""

    def parsed(data: bytes) -> bool:
        nonlocal head, tail, first, last, attempts, lane, before, behind
        # One event of one line, as ``SseParser.plain`` has it; orjson refuses what is not UTF-8.
        if not data.startswith(b"data: {") or not data.endswith(b"}\n\n") or data.count(b"\n") != 2:
            return False
        if b"\r" in data or b"\\ud" in data or b"\\uD" in data or len(data) > MAX_EVENT:
            return False
        try:
            delta = ordinary(loads(data[6:-2]))
        except ValueError:
            return False
        if delta is None:
            return False
        text, its_lane = delta.text, lanes.get(delta.index)
        if its_lane is None or (halts is not None and halts(text) is not None):
            return False
        said = orjson.dumps(text)
        if not write(its_lane.before + said + its_lane.behind):
            return False
        its_lane.passed += len(text)
        moments.append(monotonic())
        if attempts and data.count(key) == 1:
            attempts -= 1
            at = data.find(said, data.find(key) + len(key))
            if at >= 0 and data[:at].rstrip(b" ").endswith(key):
                # The quotes stay outside: what stands between them is all that changes.
                first, last = at + 1, len(data) - at - len(said) + 1
                head, tail, lane = data[:first], data[-last:], its_lane
                before, behind = lane.before + b'"', b'"' + lane.behind
        return True

    def passes(data: bytes) -> bool:
        nonlocal attempts
        if not (data.startswith(head) and data.endswith(tail)):
            return parsed(data)
        size = len(data)
        end = size - last
        if string(data, first - 1, end + 1) is None or size > MAX_EVENT:
            return parsed(data)
        said = data[first:end]
        try:
            text = said.decode()
        except ValueError:
            return False
        if (halts is not None and halts(text) is not None) or not write(before + said + behind):
            return False
        lane.passed += len(text)
        moments.append(monotonic())
        attempts = ATTEMPTS
        return True

    return passes
