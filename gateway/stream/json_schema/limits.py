"""Limits of a client's JSON Schema, which are checked before anything else reads the schema.

The check blocks the event loop: less than 1 ms for typical schemas, and about 10 ms for the worst ones, because each
step is linear in the size.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Any
from urllib.parse import unquote

import orjson

from gateway.core.errors import InvalidValue
from gateway.stream.json_schema.subschemas import SAME_VALUE, Subschema, subschemas
from metatemplate.values.json_values import MAX_DEPTH, deeper_than
from metatemplate.values.words import quoted

MAX_SIZE = 64 * 1024
"""The largest size of a schema, in bytes of JSON without spaces. The schemas of typical clients have 0.2 to 5 KiB."""
MAX_SUBSCHEMAS = 2000
"""The largest number of schemas in a schema. The check against the metaschema takes about 0.25 ms for each."""
MAX_REFERENCES = 1000
"""The largest number of ``$ref`` and ``$dynamicRef``."""
MAX_STEPS = 5000
"""The largest number of schemas that apply to one value of an answer. Two references in each of 14 nested schemas are
16,384 schemas for one value. A schema at this limit takes about 25 ms for each value."""
MAX_CHAIN = 100
"""The largest number of schemas of which each applies the next one to the same value, such as a row of ``$ref``. Each
takes three to five levels of Python's stack, which has 1000."""

DIALECTS = frozenset(
    {
        "https://json-schema.org/draft/2020-12/schema",
        "https://json-schema.org/draft/2019-09/schema",
        "http://json-schema.org/draft-07/schema",
    }
)
"""The values of ``$schema`` that clients' libraries write. Every schema is read as draft 2020-12: what libraries write
for data types is the same in these drafts."""
REFERENCES = ("$ref", "$dynamicRef")
ANCHORS = ("$anchor", "$dynamicAnchor")


def check_limits(schema: Mapping[str, Any], where: str) -> list[Subschema]:
    """Return all schemas inside a schema. ``where``: the place of the schema in the request.

    Raises ``InvalidValue`` for a schema beyond a limit, and for a reference to another document or without a target.
    """
    _check_size(schema, where)
    found: list[Subschema] = []
    for one in subschemas(schema):
        found.append(one)
        if len(found) > MAX_SUBSCHEMAS:
            raise InvalidValue.at(where, f" has more than {MAX_SUBSCHEMAS} schemas inside; send a smaller schema")
    for one in found:
        if isinstance(one.value, dict):
            _check_base(one, one.value, where)
    _check_steps(found, _edges(found, where), where)
    return found


def _check_size(schema: Mapping[str, Any], where: str) -> None:
    """Raise ``InvalidValue`` for a schema that is too deep or too large, or that has a value which is not of JSON."""
    if deeper_than(schema, MAX_DEPTH):
        raise InvalidValue.at(where, f" is nested deeper than {MAX_DEPTH} levels; move inner schemas to $defs")
    try:
        size = len(orjson.dumps(schema))
        if size <= MAX_SIZE:
            json.dumps(schema, allow_nan=False)  # orjson writes null for NaN
            return
    except (TypeError, ValueError):
        raise InvalidValue.at(
            where,
            " has a value that JSON does not allow, such as NaN, half of a surrogate pair or an integer beyond "
            "64 bits; leave it out",
        ) from None
    raise InvalidValue.at(where, f" has {size} bytes; at most {MAX_SIZE} are allowed, so send a smaller schema")


def _check_base(one: Subschema, schema: dict[str, Any], where: str) -> None:
    """Refuse keywords that would change the meaning of a reference or of other keywords.

    At the root, ``$id`` has no effect, because a reference to it is refused.
    """
    is_root = one.parent is None
    if "$id" in schema and not (is_root and isinstance(schema["$id"], str)):
        raise InvalidValue.at(
            f"{one.place(where)}.$id",
            " is not supported; leave it out, put the schema under $defs of the whole schema, and refer to it "
            'with a $ref such as "#/$defs/name"',
        )
    if "$schema" in schema:
        dialect, place = schema["$schema"], f"{one.place(where)}.$schema"
        if not is_root:
            raise InvalidValue.at(place, " is only allowed in the whole schema; leave it out here")
        if not isinstance(dialect, str) or dialect.removesuffix("#") not in DIALECTS:
            raise InvalidValue.at(
                place, " is not a supported version of JSON Schema; write a schema of draft 2020-12, or leave it out"
            )
    if "$recursiveRef" in schema:
        raise InvalidValue.at(f"{one.place(where)}.$recursiveRef", ' is not supported; write "$ref": "#"')


# ---------------------------------------------------------------- references


class _Targets:
    """Finds the schemas to which references refer. Schemas are numbered in the order of ``subschemas``."""

    def __init__(self, found: Sequence[Subschema], where: str) -> None:
        self._root = found[0].value
        self._where = where
        self._places = {(id(one.container), one.keys[-1]): number for number, one in enumerate(found) if one.keys}
        self._anchors: dict[str, int] = {}
        for number, one in enumerate(found):
            for keyword in ANCHORS if isinstance(one.value, dict) else ():
                name = one.value.get(keyword)
                if isinstance(name, str) and self._anchors.setdefault(name, number) != number:
                    problem = ": another schema has the same anchor; choose another name"
                    raise InvalidValue.at(f"{one.place(where)}.{keyword}", problem)

    def number(self, one: Subschema, keyword: str) -> int:
        """Return the number of the schema to which a reference refers."""
        reference, place = one.value[keyword], f"{one.place(self._where)}.{keyword}"
        if not isinstance(reference, str) or not reference.startswith("#"):
            raise InvalidValue.at(
                place,
                " refers to another document, which the gateway does not load; put the schema under $defs, and "
                'write a reference such as "#/$defs/name"',
            )
        fragment = unquote(reference[1:])
        number = self._anchors.get(fragment) if fragment else 0
        if fragment.startswith("/"):
            number = self._places.get(_pointer(self._root, fragment))
        if number is None:
            raise InvalidValue.at(
                place,
                f" refers to {quoted(reference)}, which is not a schema in this document; put the schema under "
                '$defs, and write a reference such as "#/$defs/name"',
            )
        return number


def _edges(found: Sequence[Subschema], where: str) -> dict[int, list[int]]:
    """Return the schemas that apply to the same value as each schema, all by their numbers in ``found``."""
    number_of = {id(one): number for number, one in enumerate(found)}
    targets = _Targets(found, where)
    edges: dict[int, list[int]] = {}
    references = 0
    for number, one in enumerate(found):
        if one.parent is not None and one.keys[0] in SAME_VALUE:
            edges.setdefault(number_of[id(one.parent)], []).append(number)
        for keyword in REFERENCES if isinstance(one.value, dict) else ():
            if keyword in one.value:
                references += 1
                edges.setdefault(number, []).append(targets.number(one, keyword))
    if references > MAX_REFERENCES:
        raise InvalidValue.at(
            where, f" has {references} references; at most {MAX_REFERENCES} are allowed, so send a smaller schema"
        )
    return edges


def _pointer(root: Any, fragment: str) -> tuple[int, str | int]:
    """Return the identity of the object or list to which a JSON pointer leads, and the last key."""
    container: Any = None
    key: str | int = ""
    value = root
    for part in fragment[1:].split("/"):
        container, key = value, part.replace("~1", "/").replace("~0", "~")
        if isinstance(container, list):
            key = int(part) if part.isdecimal() and len(part) < 6 else -1
            value = container[key] if 0 <= key < len(container) else None
        else:
            value = container.get(key) if isinstance(container, dict) else None
    return id(container), key


def _check_steps(found: Sequence[Subschema], edges: Mapping[int, list[int]], where: str) -> None:
    """Refuse a schema that applies to the same value without end, or in too many steps."""
    steps: dict[int, int] = {}
    chains: dict[int, int] = {}
    try:
        order = [*TopologicalSorter(edges).static_order()]
    except CycleError as error:
        raise InvalidValue.at(
            found[error.args[1][0]].place(where),
            " refers to itself for the same value, so a check would not end; refer to it from properties or "
            "items instead",
        ) from None
    for number in order:
        targets = edges.get(number, ())
        steps[number] = 1 + sum([steps[target] for target in targets])
        chains[number] = 1 + max([chains[target] for target in targets], default=0)
        if steps[number] > MAX_STEPS or chains[number] > MAX_CHAIN:
            problem = f"more than {MAX_STEPS} schemas apply to one value, because $ref, allOf, anyOf or oneOf repeat"
            if chains[number] > MAX_CHAIN:
                problem = f"more than {MAX_CHAIN} schemas for one value apply each other in a row"
            raise InvalidValue.at(found[number].place(where), f": {problem}; send a simpler schema")
