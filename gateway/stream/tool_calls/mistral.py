"""``mistral``: ``[TOOL_CALLS]`` and a list of calls; or, since tokenizer v11, a name and its arguments.

Three ways to write the same::

    [TOOL_CALLS][{"name": "add", "arguments": {"a": 1}}]
    [TOOL_CALLS]add{"a": 1}
    [TOOL_CALLS]add[CALL_ID]k3x9q2f7a[ARGS]{"a": 1}

The last two are repeated, marker and all, for each further call. A call id of the model's own is not kept: the gateway
gives ids itself.
"""

from __future__ import annotations

import re

from gateway.stream.stop_search import StopSet
from gateway.stream.tool_calls.base import Called, Calls, Format
from gateway.stream.tool_calls.values import Balance, blank_to, calls_in, object_to

MARKER = "[TOOL_CALLS]"
HEADER = re.compile(r"\s*([\w.-]{1,64})\s*(?:\[CALL_ID\]\w{1,64})?(?:\[ARGS\])?\s*")
MAX_HEADER = 256


class _Region:
    """The marker, a name if the calls are no list, and one JSON value; without a value in sight the marker alone."""

    __slots__ = ("_balance", "_header", "_skip")

    def __init__(self) -> None:
        self._skip = len(MARKER)
        self._header = ""
        """What stands before the value so far."""
        self._balance: Balance | None = None

    @property
    def whole(self) -> bool:
        """See ``base.Region``."""
        return self._balance is not None and self._balance.whole

    def feed(self, text: str) -> int | None:
        """See ``base.Region``."""
        at, self._skip = self._skip, 0
        if self._balance is None:
            before, header = len(self._header), self._header + text[at : at + MAX_HEADER + 1]
            blanks = blank_to(header, 0)
            opens = blanks if header[blanks : blanks + 1] == "[" else header.find("{")
            if opens < 0 and len(header) <= MAX_HEADER:
                self._header = header
                return None
            if not 0 <= opens <= MAX_HEADER or (header[opens] == "{" and not HEADER.fullmatch(header, 0, opens)):
                return at - before
            at += opens - before
            self._balance = Balance()
        ended = self._balance.feed(text[at:])
        return None if ended is None else at + ended


def _read(region: str) -> Calls | None:
    body = region.removeprefix(MARKER)
    if body.lstrip().startswith("["):
        return calls_in(body)
    header = HEADER.match(body)
    if header is None:
        return None
    try:
        end = object_to(body, header.end())
    except ValueError:
        return None
    return (Called(header[1], body[header.end() : end]),) if end == len(body) else None


MISTRAL = Format(_Region, _read, markers=StopSet((MARKER,)), telling=(MARKER,))
