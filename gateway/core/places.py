"""Places inside values of JSON and YAML, and inside the JSON Schema of such a value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

REMOVED = object()
"""Replaces a value that is removed."""


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


def corrected(value: Any, changes: Mapping[tuple[str | int, ...], Any], path: tuple[str | int, ...] = ()) -> Any:
    """Return a copy of the value at ``path`` with other values at some paths. ``REMOVED`` removes a key."""
    if path in changes:
        return changes[path]
    if isinstance(value, (list, tuple)):
        return [corrected(entry, changes, (*path, number)) for number, entry in enumerate(value)]
    if not isinstance(value, Mapping):
        return value
    keys = dict.fromkeys([*value, *[one[-1] for one in changes if one[:-1] == path]])
    found = {key: corrected(value.get(key), changes, (*path, key)) for key in keys}
    return {key: entry for key, entry in found.items() if entry is not REMOVED}
