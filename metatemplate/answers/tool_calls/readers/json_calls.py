"""Reads tool calls from a complete JSON text. The text of the arguments is not changed.

Each function raises ``ValueError`` for invalid text, and ``RecursionError`` for text that nests too deeply.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from metatemplate.answers.tool_calls.format import Calls, ParsedCall, blank_to

UNUSED_KEYS = frozenset({"id", "type"})
"""Further keys that models write in a call. The keys are dropped, because the gateway assigns ids."""

_value_at = json.JSONDecoder().raw_decode


def as_json(value: Any) -> str:
    """Return the value as JSON text. Raises ``ValueError`` for values such as NaN or a lone surrogate."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    text.encode()
    return text


def one_object(text: str) -> str:
    """Return the text unchanged. Raises ``ValueError`` if the text is not one valid JSON object."""
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError("the arguments are not an object")
    as_json(value)
    return text


def calls_in(text: str, keys: Sequence[str] = ("arguments",)) -> Calls:
    """Return the calls in an object or list of objects. Each has ``name``, and arguments under one of ``keys``."""
    calls: list[ParsedCall] = []

    def read(at: int) -> int:
        call, end = _call_at(text, at, keys)
        calls.append(call)
        return end

    at = blank_to(text, 0)
    end = _read_items(text, at, "[]", read) if text[at : at + 1] == "[" else read(at)
    if blank_to(text, end) < len(text):
        raise ValueError("the text continues after the calls")
    return tuple(calls)


def _call_at(text: str, at: int, keys: Sequence[str]) -> tuple[ParsedCall, int]:
    """Return the call in the object that starts at index ``at``, and the index where the object ends."""
    members: dict[str, tuple[Any, str]] = {}

    def read(at: int) -> int:
        key, at = _value_at(text, at)
        at = blank_to(text, at)
        if not isinstance(key, str) or key in members or text[at : at + 1] != ":":
            raise ValueError("an object has an invalid or repeated key")
        at = blank_to(text, at + 1)
        value, end = _value_at(text, at)
        members[key] = value, text[at:end]
        return end

    end = _read_items(text, at, "{}", read)
    given = [key for key in keys if key in members]
    if len(given) != 1 or not members.keys() <= {"name", *given} | UNUSED_KEYS:
        raise ValueError("a tool call has missing or unknown keys")
    (name, _), (arguments, written) = members.get("name", (None, "")), members[given[0]]
    if not isinstance(name, str) or not name or not isinstance(arguments, dict):
        raise ValueError("a tool call has no name, or its arguments are not an object")
    as_json(arguments)
    return ParsedCall(name, written), end


def _read_items(text: str, at: int, brackets: str, read: Callable[[int], int]) -> int:
    """Return the end of the list or object that starts at ``at``. ``read``: maps an item's start to the item's end."""
    if text[at : at + 1] != brackets[0]:
        raise ValueError("the opening bracket is missing")
    while True:
        at = blank_to(text, read(blank_to(text, at + 1)))
        sign = text[at : at + 1]
        if sign == brackets[1]:
            return at + 1
        if sign != ",":
            raise ValueError("no comma and no closing bracket after a tool call")
