"""The schemas inside a JSON Schema, and their places. Nothing here is recursive, because a client writes the schema."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from metatemplate.values.json_values import KeyPath
from metatemplate.values.words import plain

ONE_SCHEMA = frozenset(
    {
        "additionalProperties",
        "contains",
        "contentSchema",
        "else",
        "if",
        "items",
        "not",
        "propertyNames",
        "then",
        "unevaluatedItems",
        "unevaluatedProperties",
    }
)
"""Keywords of draft 2020-12 whose value is a schema."""
LIST_OF_SCHEMAS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
NAMED_SCHEMAS = frozenset({"$defs", "definitions", "dependentSchemas", "patternProperties", "properties"})
"""Keywords whose value is an object of schemas. ``definitions`` is the older name of ``$defs``."""
SAME_VALUE = frozenset({"allOf", "anyOf", "dependentSchemas", "else", "if", "not", "oneOf", "then"})
"""Keywords whose schemas apply to the same value as the schema that has the keyword."""

MAX_PLACE = 160
"""The largest number of characters of a place, without the place of the whole schema."""


@dataclass(eq=False, slots=True)
class Subschema:
    """A schema inside a schema, or the whole schema."""

    value: Any
    """An object, or a boolean."""
    parent: Subschema | None
    """The schema around this schema; None for the whole schema."""
    keys: KeyPath
    """The keys from the parent to this schema: a keyword, and for most keywords a name or an index."""
    container: Any
    """The object or list whose item with the last key is this schema."""

    def place(self, where: str) -> str:
        """Return the place for messages, such as ``schema.properties.name``. ``where``: that of the whole schema."""
        keys: list[str | int] = []
        one: Subschema | None = self
        while one is not None:
            keys.extend(reversed(one.keys))
            one = one.parent
        return place_in(where, reversed(keys))


def place_in(where: str, keys: Iterable[str | int]) -> str:
    """Return the place of a value inside the value at ``where``. Of a long place, the middle is left out."""
    inside = "".join([f"[{key}]" if isinstance(key, int) else f".{plain(key)}" for key in keys])
    return where + (inside if len(inside) <= MAX_PLACE else f"….{inside[-MAX_PLACE:].partition('.')[2]}")


def subschemas(schema: Any) -> Iterator[Subschema]:
    """Yield the schema, and then all schemas inside it, each before those inside it.

    A keyword whose value has a wrong type is passed over: the check against the metaschema finds such a value.
    """
    rows = [iter([Subschema(schema, None, (), None)])]
    while rows:
        one = next(rows[-1], None)
        if one is None:
            rows.pop()
            continue
        yield one
        if isinstance(one.value, dict):
            rows.append(_inside(one, one.value))


def _inside(parent: Subschema, schema: dict[str, Any]) -> Iterator[Subschema]:
    for keyword, value in schema.items():
        inner: Iterable[tuple[str | int, Any]] = ()
        if keyword in ONE_SCHEMA and isinstance(value, (dict, bool)):
            yield Subschema(value, parent, (keyword,), schema)
        elif keyword in LIST_OF_SCHEMAS and isinstance(value, list):
            inner = enumerate(value)
        elif keyword in NAMED_SCHEMAS and isinstance(value, dict):
            inner = value.items()
        for key, one in inner:
            if isinstance(one, (dict, bool)):
                yield Subschema(one, parent, (keyword, key), value)
