"""What do the functions of a Go template give? Truth, equality, order and texts by Go's rules; nothing is guessed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gateway.importer.go.tree import GoError

MOST_TEXT = 2 * 1024 * 1024
"""Characters of one text, and of all that a rendering puts together."""


class Struct(dict[str, Any]):
    """A value with fixed fields: another field is an error, as in Go; a plain mapping lacks none."""


def true(value: Any) -> bool:
    """Go's truth: empty texts and lists, zero and nil are false, a struct never is."""
    return isinstance(value, Struct) or bool(value)


def _basic(line: int, *values: Any) -> None:
    for value in values:
        if not isinstance(value, str | int | bool):
            raise GoError(line, "compares what cannot be compared")
    if len({str if isinstance(value, str) else type(value) for value in values}) > 1:
        raise GoError(line, "compares values of different types")


def _eq(line: int, one: Any, *others: Any) -> bool:
    if not others:
        raise GoError(line, "`eq` needs something to compare with")
    _basic(line, one, *others)
    return one in others


def _ne(line: int, one: Any, other: Any) -> bool:
    _basic(line, one, other)
    return bool(one != other)


def _ordered(holds: Callable[[Any, Any], bool]) -> Callable[..., bool]:
    def compared(line: int, one: Any, other: Any) -> bool:
        _basic(line, one, other)
        if isinstance(one, bool):
            raise GoError(line, "puts true and false in an order, and they have none")
        if isinstance(one, str):
            one, other = one.encode(), other.encode()
        return holds(one, other)

    return compared


def _len(line: int, value: Any) -> int:
    if isinstance(value, str):
        return len(value.encode())
    if isinstance(value, list):
        return len(value)
    raise GoError(line, "`len` of what is no text and no list")


def _index(line: int, value: Any, *places: Any) -> Any:
    for place in places:
        if not isinstance(value, list) or type(place) is not int or not 0 <= place < len(value):
            raise GoError(line, "`index` of what is not there")
        value = value[place]
    return value


def _slice(line: int, value: Any, *places: Any) -> Any:
    if not isinstance(value, list) or not all(type(place) is int and 0 <= place <= len(value) for place in places):
        raise GoError(line, "`slice` of what is no list, or beyond its ends")
    start, end = [*places, *[0, len(value)][len(places) :]][:2]
    if len(places) > 2 or start > end:
        raise GoError(line, "`slice` with such places is not read")
    return value[start:end]


def _json(line: int, *values: Any) -> str:
    raise GoError(line, "`json` is used without tools, and only tools are left out here")


def _concatenated(line: int, *values: Any) -> str:
    if not all(isinstance(value, str) for value in values):
        raise GoError(line, "`print` of what is no text")
    return _bounded(line, values)


def _bounded(line: int, values: Sequence[str]) -> str:
    if sum([len(value) for value in values]) > MOST_TEXT:
        raise GoError(line, f"a text grows beyond {MOST_TEXT} characters")
    return "".join(values)


def _formatted(line: int, form: Any, *values: Any) -> str:
    parts = form.split("%s") if isinstance(form, str) else []
    texts = all(isinstance(value, str) for value in values)
    if len(parts) != len(values) + 1 or any("%" in part for part in parts) or not texts:
        raise GoError(line, "`printf` is read with %s and as many texts only")
    return _bounded(line, [parts[0], *[text for pair in zip(values, parts[1:], strict=True) for text in pair]])


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "not": lambda line, value: not true(value),
    "eq": _eq,
    "ne": _ne,
    "lt": _ordered(lambda one, other: one < other),
    "le": _ordered(lambda one, other: one <= other),
    "gt": _ordered(lambda one, other: one > other),
    "ge": _ordered(lambda one, other: one >= other),
    "len": _len,
    "index": _index,
    "slice": _slice,
    "json": _json,
    "print": _concatenated,
    "printf": _formatted,
}
"""By name; each is given its line first, for what it refuses."""

NAMES = frozenset({"and", "or", *FUNCTIONS})
"""All that are read: ``and`` and ``or`` leave arguments unread, so they are no function here but in ``go_render``."""
