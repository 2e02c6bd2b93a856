"""Values of JSON and YAML: depth (measured without recursion), texts inside, and places in values and schemas."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

from metatemplate.values.words import closest, plain, quoted, suggest

MAX_DEPTH = 64
"""The greatest nesting depth of a request body, and of each JSON document of an answer."""
CONTAINERS = frozenset({dict, list})
KeyPath = tuple[str | int, ...]
"""A place in a value: the keys and indexes on the way to it."""
JSON_TYPES: Mapping[type, str] = {
    str: "a string",
    bool: "a boolean",
    int: "a number",
    float: "a decimal number",
    list: "a list",
    dict: "an object",
    type(None): "null",
}
"""The types of JSON values, in words."""
FILE_TYPES: Mapping[type, str] = {
    str: "text",
    bool: "true or false",
    int: "a number",
    float: "a number",
    list: "a list",
    tuple: "a list",
    dict: "a mapping",
    type(None): "null",
}
"""The types of values in files, in words."""
REMOVED = object()
"""Replaces a value that is removed."""
UNKNOWN = ("unexpected_keyword_argument", "extra_forbidden")
"""Pydantic's types of the error for an unknown key."""


def deeper_than(value: object, limit: int) -> bool:
    """Return whether objects and lists are nested in more than ``limit`` levels. Linear in the number of values."""
    level = [value]
    for _ in range(limit):
        objects = [item for item in level if type(item) is dict]
        items = list(chain.from_iterable(map(dict.values, objects)))
        if len(objects) < len(level):
            items.extend(chain.from_iterable([item for item in level if type(item) is list]))
        if CONTAINERS.isdisjoint(map(type, items)):  # only plain values, as at the end of nearly every body
            return False
        level = [item for item in items if type(item) in CONTAINERS]
    return True


def values_with_keys(value: Any, key: object = "") -> Iterator[tuple[object, Any]]:
    """Yield (key, value) for a JSON value and for every value inside, and (None, name) for the name of every field.

    A value in a list has the key of the list.
    """
    yield key, value
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield None, str(name)
            yield from values_with_keys(inner, name)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from values_with_keys(inner, key)


def texts_with_keys(value: Any) -> Iterator[tuple[object, str]]:
    """Yield (key, text) for every text of ``values_with_keys``."""
    return ((key, inner) for key, inner in values_with_keys(value) if isinstance(inner, str))


def texts_in_values(value: Any) -> list[str]:
    """Return every text in a JSON value, without the names of fields."""
    return [text for key, text in texts_with_keys(value) if key is not None]


def changed(value: Any, change: Callable[[Any, object], Any], key: object = "") -> Any:
    """Return a copy of a JSON value with other values inside.

    ``change(value, key)``: the new value, or ``REMOVED``, or the value itself, of which a copy with changes is made. A
    value in a list has the key of the list. The depth of the value limits the recursion.
    """
    found = change(value, key)
    if found is not value:
        return found
    if isinstance(value, Mapping):
        copies = [(name, changed(inner, change, name)) for name, inner in value.items()]
        return {name: inner for name, inner in copies if inner is not REMOVED}
    return [changed(inner, change, key) for inner in value] if isinstance(value, (list, tuple)) else value


def path_text(path: KeyPath, where: str = "") -> str:
    """Return a place in a request as the client writes it, such as ``messages[0].role``. ``where``: its beginning."""
    steps = [f"[{step}]" if isinstance(step, int) else f".{plain(step)}" for step in path]
    return "".join([where, *steps]).lstrip(".")


_OTHER_CHARACTERS = bytes(set(range(256)) - set(b'{[",'))


def structure(data: bytes) -> bytes:
    """Return only the opening brackets, quotes and commas of a JSON text, in order.

    Counting in this copy takes half of the time of counting each of them in a long text, or less.
    """
    return data.translate(None, _OTHER_CHARACTERS)


def count_brackets(data: bytes) -> int:
    """Return the number of opening brackets in JSON. Depth and number of objects and lists cannot be larger."""
    return data.count(b"{") + data.count(b"[")


def type_words(value: object, types: Mapping[type, str] = FILE_TYPES) -> str:
    """Return the type of a value in plain words."""
    return types.get(type(value), type(value).__name__)


def not_one_of(words: Iterable[str], value: object, types: Mapping[type, str] = FILE_TYPES) -> str:
    """Return the problem of a value that must be one of several words, with the word that was probably meant."""
    near = closest(value, list(words)) if isinstance(value, str) else None
    meant = f" (did you mean {quoted(near)}?)" if near is not None else ""
    given = quoted(value) if isinstance(value, str) else type_words(value, types)
    return f"must be one of {', '.join(words)}, not {given}{meant}"


def problem_text(
    error: Mapping[str, Any],
    expected: Iterable[str] = (),
    known: Iterable[str] = (),
    types: Mapping[type, str] = FILE_TYPES,
) -> str:
    """Return what is wrong with a value that pydantic refused, as it is written after the place of the value.

    ``error``: one of pydantic's details. ``expected``: the types that the value may have, in words. ``known``: the keys
    beside an unknown one. The text has no value but a word that is none of a few, because a value may be a secret.
    """
    kind, value, message = error["type"], error["input"], error["msg"].removeprefix("Value error, ")
    if kind in UNKNOWN:
        return f"unknown key{suggest(error['loc'][-1], known)}"
    if kind == "missing":
        return "is missing"
    if kind == "literal_error":
        return not_one_of(re.findall("'([^']*)'", error["ctx"]["expected"]), value, types)
    if expected:
        return f"must be {' or '.join(expected)}, not {type_words(value, types)}"
    if kind in ("too_short", "string_too_short"):
        return "is empty"
    should = "Input should "
    rest = message.removeprefix(should)
    return f"must {rest}" if message.startswith(should) else f"{message[:1].lower()}{message[1:]}"


def part(schema: dict[str, Any], path: Iterable[str | int]) -> dict[str, Any]:
    """Return the part of a JSON Schema for the value at ``path``. Of several forms, it is the mapping."""

    def forms(node: dict[str, Any]) -> list[dict[str, Any]]:
        return [
            schema["$defs"][one["$ref"].rpartition("/")[2]] if "$ref" in one else one
            for one in node.get("anyOf", [node])
        ]

    node = schema
    for step in path:
        key = "items" if isinstance(step, int) else "additionalProperties"
        found = [one.get("properties", {}).get(step) or one.get(key) for one in forms(node)]
        node = next(filter(None, found), {})
    return next((one for one in forms(node) if "properties" in one), node)


def corrected(value: Any, changes: Mapping[KeyPath, Any], path: KeyPath = ()) -> Any:
    """Return a copy of the value at ``path`` with other values at some paths. ``REMOVED`` removes a key."""
    value = changes.get(path, value)
    if any(one[: len(path)] == path and one != path for one in changes):
        value = {} if value is None else [value] if isinstance(value, str) else value  # an empty section, a single text
    if isinstance(value, (list, tuple)):
        return [corrected(entry, changes, (*path, number)) for number, entry in enumerate(value)]
    if not isinstance(value, Mapping):
        return value
    keys = dict.fromkeys([*value, *[one[-1] for one in changes if one[:-1] == path]])
    found = {key: corrected(value.get(key), changes, (*path, key)) for key in keys}
    return {key: entry for key, entry in found.items() if entry is not REMOVED}
