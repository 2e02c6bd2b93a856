"""How is one JSON value found in a text, and a call in a value? Strictly, and word for word."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Sequence
from typing import Any, NoReturn

from gateway.stream.tool_calls.base import MAX_CALLS, Called, Calls, Region

BESIDE = frozenset({"id", "type"})
"""Keys that models write beside a call's name and arguments, and that say nothing: the gateway gives ids itself."""

_BLANK = re.compile(r"[ \t\r\n]*")
_IN_STRING = {quote: re.compile(rf"[{quote}\\]") for quote in "\"'"}
_OUTSIDE = {
    # Numbers, ``true``, ``false`` and ``null`` have no other letters.
    '"': (re.compile(r"[^ \t\r\n,:0-9+\-.eEtrufalsn]"), "[{", "]}"),
    "\"'": (re.compile(r"[^\s\w,:+\-.=]"), "[{(", "]})"),
}
"""By the quotes: what is looked at outside strings, and the brackets; anything else that is found there is an end."""


class Balance:
    """Follows a text from its first bracket to the one that closes it; the work is linear in the text.

    It ends early at a sign that no value has outside its strings, such as a marker's. Apart from that it trusts the
    brackets: whether what lies between is a value, whoever reads it says.
    """

    __slots__ = ("_closing", "_depth", "_escaped", "_opening", "_outside", "_quote", "_quotes", "whole")

    def __init__(self, quotes: str = '"') -> None:
        """``quotes``: the signs that stand around strings: ``"`` in JSON, both in Python and JSON5."""
        self._quotes = quotes
        self._outside, self._opening, self._closing = _OUTSIDE[quotes]
        self._depth = 0
        self._quote = ""
        """The sign that ends the string we are in."""
        self._escaped = False
        self.whole = False
        """See ``Region``."""

    def feed(self, text: str) -> int | None:
        """See ``Region``."""
        at = 0
        if self._escaped and text:
            at, self._escaped = 1, False
        while True:
            found = (_IN_STRING[self._quote] if self._quote else self._outside).search(text, at)
            if found is None:
                return None
            at, sign = found.end(), found[0]
            if self._quote and sign == "\\":
                if at == len(text):
                    self._escaped = True
                    return None
                at += 1
            elif self._quote:
                self._quote = ""
            elif sign in self._quotes:
                self._quote = sign
            elif sign in self._opening:
                self._depth += 1
            elif sign in self._closing:
                self._depth -= 1
                if self._depth <= 0:
                    self.whole = True
                    return at
            else:
                return at - 1


class Value:
    """A region that is a marker or none, blanks, and one object or list of objects; it ends before anything else."""

    __slots__ = ("_balance", "_begun", "_lists", "_skip")

    def __init__(self, marker: str = "", quotes: str = '"') -> None:
        self._balance = Balance(quotes)
        self._begun = False
        self._lists = False
        """A list has begun, and nothing stands in it yet."""
        self._skip = len(marker)

    @property
    def whole(self) -> bool:
        """See ``Region``."""
        return self._balance.whole

    def feed(self, text: str) -> int | None:
        """See ``Region``."""
        at, self._skip = self._skip, 0
        first = at
        if not self._begun:
            at = blank_to(text, at)
            if at == len(text):
                return None
            if text[at] not in "{[":
                return at
            self._begun, self._lists = True, text[at] == "["
            first = at + 1
        if self._lists:
            first = blank_to(text, first)
            if first < len(text):
                self._lists = False
                if text[first] not in "{]":
                    return first
        ended = self._balance.feed(text[at:])
        return None if ended is None else at + ended


class Closed:
    """A region, then blanks and the marker that closes it; without that marker it ends where the region inside does."""

    __slots__ = ("_inner", "_marker", "_over", "_since", "_tail")

    def __init__(self, inner: Region, marker: str) -> None:
        self._inner = inner
        self._marker = marker
        self._over = False
        """The inner region has ended."""
        self._since = 0
        """How much has come since then."""
        self._tail = ""
        """The last of that, as far as the marker may begin in it."""

    @property
    def whole(self) -> bool:
        """See ``Region``."""
        return self._inner.whole

    def feed(self, text: str) -> int | None:
        """See ``Region``."""
        at = 0
        marker = self._marker
        if not self._over:
            ended = self._inner.feed(text)
            if ended is None:
                return None
            at, self._over = ended, True
        before, tail = len(self._tail), self._tail + text[at:]
        blanks = blank_to(tail, 0)
        closes = tail.find(marker, 0, blanks + len(marker))
        if closes >= 0:
            return at + closes + len(marker) - before
        if blanks < len(tail) and not marker.startswith(tail[blanks:]):
            return at - self._since
        self._since += len(text) - at
        self._tail = tail[max(0, blanks - len(marker)) :]
        return None


# ---------------------------------------------------------------- whole values


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


def _finite(number: str) -> float:
    value = float(number)
    if not math.isfinite(value):
        raise ValueError(f"{number} is larger than a float")
    return value


_DECODER = json.JSONDecoder(parse_constant=_refuse, parse_float=_finite)


def blank_to(text: str, at: int) -> int:
    """Where the next thing begins."""
    blank = _BLANK.match(text, at)
    assert blank is not None
    return blank.end()


def value_at(text: str, at: int) -> tuple[Any, int]:
    """The value that begins here, and where it ends. Raises ValueError."""
    try:
        value, end = _DECODER.raw_decode(text, at)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return value, end


def object_to(text: str, at: int = 0) -> int:
    """Where the object ends that begins here. Raises ValueError where it is none that a client can send back."""
    value, end = value_at(text, at)
    if not isinstance(value, dict):
        raise ValueError("no object")
    as_json(value)
    return end


def as_json(value: Any) -> str:
    """The value as JSON. Raises ValueError for what is none, half a character included."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        text.encode()
        return text
    except RecursionError:
        raise ValueError("nested too deeply") from None


def spans(text: str, at: int, keys: Collection[str]) -> tuple[dict[str, tuple[int, int, Any]], int]:
    """The members of the object that begins here, each as (start, end, value), and where the object ends.

    Raises ValueError for what is no object, for a key that comes twice, and for one that is not among ``keys``.
    """
    if text[at : at + 1] != "{":
        raise ValueError("no object")
    found: dict[str, tuple[int, int, Any]] = {}
    at = blank_to(text, at + 1)
    if text[at : at + 1] == "}":
        return found, at + 1
    while True:
        key, at = value_at(text, at)
        at = blank_to(text, at)
        if not isinstance(key, str) or key not in keys or key in found or text[at : at + 1] != ":":
            raise ValueError("no member of an object")
        start = blank_to(text, at + 1)
        value, end = value_at(text, start)
        found[key] = (start, end, value)
        at = blank_to(text, end)
        sign = text[at : at + 1]
        if sign == "}":
            return found, at + 1
        if sign != ",":
            raise ValueError("neither an end nor a comma")
        at = blank_to(text, at + 1)


def call_at(text: str, at: int, keys: Sequence[str]) -> tuple[Called, int]:
    """The call whose object begins here; its arguments stand under one of ``keys``. Raises ValueError."""
    members, end = spans(text, at, {"name", *keys, *BESIDE})
    given = [key for key in keys if key in members]
    if len(given) != 1:
        raise ValueError("not the members of a call")
    name = members["name"][2] if "name" in members else None
    start, stop, arguments = members[given[0]]
    if not isinstance(name, str) or not name or not isinstance(arguments, dict):
        raise ValueError("no name, or arguments that are no object")
    as_json(arguments)
    return Called(name, text[start:stop]), end


def calls_in(text: str, keys: Sequence[str] = ("arguments",)) -> Calls | None:
    """All of the text as one call's object, or a list of them; None: it is neither."""
    try:
        at = blank_to(text, 0)
        calls: list[Called] = []
        if text[at : at + 1] == "[":
            at = blank_to(text, at + 1)
            while True:
                call, at = call_at(text, at, keys)
                calls.append(call)
                if len(calls) > MAX_CALLS:
                    return None
                at = blank_to(text, at)
                sign, at = text[at : at + 1], blank_to(text, at + 1)
                if sign == "]":
                    break
                if sign != ",":
                    return None
        else:
            call, at = call_at(text, at, keys)
            calls.append(call)
            at = blank_to(text, at)
    except ValueError:
        return None
    return tuple(calls) if at >= len(text) else None
