"""How many alternatives of a JSON Schema's ``anyOf`` begin alike, so that an engine must follow all of them at once.

llama.cpp keeps one stack of rules for each alternative that is still possible. If a value inside an alternative has
such alternatives too, the numbers are multiplied: with 6 lists in an ``anyOf``, inside each other, the sixth token took
more than a minute. Alternatives are told apart by the type, by the next property, or by a property with another
``const``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

SCALARS = frozenset({"string", "number", "integer", "boolean", "null"})

Resolve = Callable[[Any], Any]
"""Returns the schema to which a schema with ``$ref`` refers, and any other schema itself."""

Property = tuple[str, bool, Any]
"""Name, whether it is required, and schema."""


class AlternativeCounter:
    """Counts the alternatives that begin alike, in one schema that does not change."""

    def __init__(self, resolve: Resolve) -> None:
        self._resolve = resolve
        self._known: dict[int, Sequence[Property]] = {}
        """The id of an object's schema → its properties."""

    def count(self, schema: Any) -> int:
        """Return how many alternatives can be possible when a list or object inside an alternative begins."""
        lists, objects = 0, []
        for one in self._alternatives(schema):
            kinds = _containers(one)
            lists += "array" in kinds
            if "object" in kinds:
                objects.append(self._properties(one))
        return max(1, lists, self._objects_alike(objects))

    def _alternatives(self, schema: Any) -> Iterator[Any]:
        """Yield the schemas of ``anyOf``, also of one inside another. References may form a circle."""
        seen: set[int] = set()
        pending = [schema]
        while pending:
            found = self._resolve(pending.pop())
            if not isinstance(found, Mapping) or not isinstance(found.get("anyOf"), list | tuple):
                yield found
            elif id(found) not in seen:
                seen.add(id(found))
                pending += found["anyOf"]

    def _properties(self, schema: Any) -> Sequence[Property]:
        """Return the properties of an object's schema; none if any names are allowed."""
        if (known := self._known.get(id(schema))) is None:
            properties = schema.get("properties") if isinstance(schema, Mapping) else None
            required = schema.get("required") if isinstance(schema, Mapping) else None
            always = frozenset(map(str, required)) if isinstance(required, list | tuple) else frozenset()
            pairs = properties.items() if isinstance(properties, Mapping) else ()
            known = self._known[id(schema)] = [(name, name in always, one) for name, one in pairs]
        return known

    def _objects_alike(self, objects: Sequence[Sequence[Property]]) -> int:
        """Return the largest number of objects whose texts are alike up to a value that may contain other values."""
        most = 1
        pending = [(objects, 0)]
        while pending:
            group, at = pending.pop()
            if at:
                group = [one for one in group if at < len(one)]  # the others have ended
            if len(group) < 2:
                continue
            if any(at == len(one) or not one[at][1] for one in group):
                most = max(most, 1 if _told_apart(group, at) else len(group))
                continue
            for alike, may_contain in self._by_property(group, at):
                most = max(most, len(alike) if may_contain else 1)
                pending.append((alike, at + 1))
        return most

    def _by_property(
        self, group: Sequence[Sequence[Property]], at: int
    ) -> Iterator[tuple[list[Sequence[Property]], bool]]:
        """Yield the objects whose properties at a position are alike, and whether the values may contain others."""
        by_name: dict[str, list[Sequence[Property]]] = {}
        for one in group:
            by_name.setdefault(one[at][0], []).append(one)
        for alike in by_name.values():
            values = [self._resolve(one[at][2]) for one in alike]
            if not all(isinstance(value, Mapping) and "const" in value for value in values):
                inner = [part for value in values for part in self._alternatives(value)]
                yield alike, any(map(_containers, inner))
                continue
            by_value: dict[str, list[Sequence[Property]]] = {}
            for one, value in zip(alike, values, strict=True):
                by_value.setdefault(json.dumps(value["const"]), []).append(one)
            for same in by_value.values():
                yield same, False


def _told_apart(group: Sequence[Sequence[Property]], at: int) -> bool:
    """Return whether the next property, whichever of the optional ones it is, tells the objects apart."""
    names = [name for one in group for name, _, _ in one[at:]]
    return all(at < len(one) for one in group) and len(names) == len(set(names))


def _containers(schema: Any) -> frozenset[str]:
    """Return the types of a schema's values that may contain other values: ``object``, ``array``."""
    if not isinstance(schema, Mapping):
        return frozenset({"object", "array"})
    if "const" in schema or "enum" in schema:
        return frozenset()
    declared = schema.get("type")
    if isinstance(declared, str):
        return frozenset({declared}) - SCALARS
    if isinstance(declared, list | tuple):
        return frozenset(map(str, declared)) - SCALARS
    named = frozenset(["array"] * ("items" in schema) + ["object"] * ("properties" in schema))
    is_text = not {"minLength", "maxLength"}.isdisjoint(schema)
    return named if named or is_text else frozenset({"object", "array"})
