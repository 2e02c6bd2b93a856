"""Nesting depth of JSON values, measured without recursion, and the texts inside them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain

MAX_DEPTH = 64
"""The greatest nesting depth of a request body, and of each JSON document of an answer."""
CONTAINERS = frozenset({dict, list})


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


def texts_with_keys(value: object, key: str = "") -> Iterator[tuple[str | None, str]]:
    """Yield (key, text) for every text in a JSON value, and (None, name) for the name of every field.

    A text in a list has the key of the list.
    """
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield None, str(name)
            yield from texts_with_keys(inner, name)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from texts_with_keys(inner, key)


def count_brackets(data: bytes) -> int:
    """Return the number of opening brackets in JSON. Depth and number of objects and lists cannot be larger."""
    return data.count(b"{") + data.count(b"[")
