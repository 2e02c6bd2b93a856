"""Reads a whole JSON text as calls: strictly, and without changing a character of the arguments."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Sequence
from typing import Any, NoReturn

from gateway.stream.tool_calls.format import MAX_CALLS, Calls, ParsedCall
from gateway.stream.tool_calls.region import blank_to

UNUSED_KEYS = frozenset({"id", "type"})
"""Keys that models write beside a call's name and arguments. They are dropped, because the gateway assigns ids."""


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _finite(number: str) -> float:
    value = float(number)
    if not math.isfinite(value):
        raise ValueError(f"{number} is larger than a float")
    return value


_DECODER = json.JSONDecoder(parse_constant=_refuse, parse_float=_finite)


def value_at(text: str, at: int) -> tuple[Any, int]:
    """The value at this index, and where it ends. Raises ValueError."""
    try:
        value, end = _DECODER.raw_decode(text, at)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return value, end


def object_to(text: str, at: int = 0) -> int:
    """The end of the object that starts at this index. Raises ValueError unless a client can send it back as JSON."""
    value, end = value_at(text, at)
    if not isinstance(value, dict):
        raise ValueError("not an object")
    as_json(value)
    return end


def as_json(value: Any) -> str:
    """The value as JSON. Raises ValueError for what JSON cannot hold, such as a lone surrogate half."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        text.encode()
        return text
    except RecursionError:
        raise ValueError("nested too deeply") from None


def spans(text: str, at: int, keys: Collection[str]) -> tuple[dict[str, tuple[int, int, Any]], int]:
    """The members of the object at this index, each as (start, end, value), and where the object ends.

    Raises ValueError for anything but an object, and for a key that is repeated or not among ``keys``.
    """
    if text[at : at + 1] != "{":
        raise ValueError("not an object")
    found: dict[str, tuple[int, int, Any]] = {}
    at = blank_to(text, at + 1)
    if text[at : at + 1] == "}":
        return found, at + 1
    while True:
        key, at = value_at(text, at)
        at = blank_to(text, at)
        if not isinstance(key, str) or key not in keys or key in found or text[at : at + 1] != ":":
            raise ValueError("not a member of a call")
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


def call_at(text: str, at: int, keys: Sequence[str]) -> tuple[ParsedCall, int]:
    """The call of the object at this index; its arguments stand under one of ``keys``. Raises ValueError."""
    members, end = spans(text, at, {"name", *keys, *UNUSED_KEYS})
    given = [key for key in keys if key in members]
    if len(given) != 1:
        raise ValueError("a call does not have these members")
    name = members["name"][2] if "name" in members else None
    start, stop, arguments = members[given[0]]
    if not isinstance(name, str) or not name or not isinstance(arguments, dict):
        raise ValueError("no name, or arguments that are not an object")
    as_json(arguments)
    return ParsedCall(name, text[start:stop]), end


def calls_in(text: str, keys: Sequence[str] = ("arguments",)) -> Calls | None:
    """The calls of a text that is one call's object or a list of such objects; None for any other text."""
    try:
        at = blank_to(text, 0)
        calls: list[ParsedCall] = []
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
