"""The rules of ``strict: true``, as OpenAI documents them.

Source: the guide "Structured model outputs" of OpenAI's API, section "Supported schemas", and the page "OpenAI
Structured Outputs Profile" of jsonschemaprofiles.unitvectorylabs.com, which lists these rules as of February 2026. Two
of the documented limits, 5,000 properties and 120,000 characters of names and values, are beyond ``limits.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gateway.core.errors import InvalidValue
from gateway.stream.json_schema.subschemas import Subschema
from metatemplate.values.words import quoted

UNSUPPORTED = ("allOf", "not", "dependentRequired", "dependentSchemas", "if", "then", "else")
MAX_NESTED_OBJECTS = 10
"""The largest number of objects inside each other, without the object of the whole schema."""
MAX_ENUM_VALUES = 1000
"""The largest number of values of all ``enum`` together."""
LONG_ENUM = 250
"""An ``enum`` of more texts than this has a limit of characters too."""
MAX_ENUM_CHARACTERS = 15_000
HINT = "or send strict: false"


def check_strict(found: Sequence[Subschema], where: str) -> None:
    """Raise ``InvalidValue`` for a schema that breaks a rule. ``found``: all schemas inside it, the whole one first."""
    _check_root(found[0].value, where)
    depths: dict[int, int] = {}
    enum_values = 0
    for one in found:
        is_object = isinstance(one.value, dict) and _is_object(one.value)
        depth = (depths[id(one.parent)] if one.parent is not None else -1) + is_object
        depths[id(one)] = depth
        if depth > MAX_NESTED_OBJECTS:
            raise InvalidValue.at(
                one.place(where),
                f": a strict schema has at most {MAX_NESTED_OBJECTS} levels of objects; use fewer, {HINT}",
            )
        if not isinstance(one.value, dict):
            continue
        _check_keywords(one, where)
        if is_object:
            _check_object(one, where)
        enum_values += _count_enum(one, where)
    if enum_values > MAX_ENUM_VALUES:
        raise InvalidValue.at(
            where,
            f": a strict schema has at most {MAX_ENUM_VALUES} enum values, this one has {enum_values}; use "
            f"fewer, {HINT}",
        )


def _is_object(schema: dict[str, Any]) -> bool:
    kind = schema.get("type")
    return kind == "object" or (isinstance(kind, list) and "object" in kind) or "properties" in schema


def _check_root(schema: dict[str, Any], where: str) -> None:
    if schema.get("type") != "object":
        raise InvalidValue.at(where, f': a strict schema must have "type": "object"; add it, {HINT}')
    if "anyOf" in schema:
        raise InvalidValue.at(
            f"{where}.anyOf", f": a strict schema must not have anyOf at the root; put it into a property, {HINT}"
        )


def _check_keywords(one: Subschema, where: str) -> None:
    for keyword in UNSUPPORTED:
        if keyword in one.value:
            raise InvalidValue.at(
                f"{one.place(where)}.{keyword}", f" is not allowed in a strict schema; leave it out, {HINT}"
            )


def _check_object(one: Subschema, where: str) -> None:
    schema, place = one.value, one.place(where)
    if schema.get("additionalProperties") is not False:
        raise InvalidValue.at(
            place, f': every object of a strict schema must have "additionalProperties": false; add it, {HINT}'
        )
    required, properties = schema.get("required"), schema.get("properties")
    names = {name for name in required if isinstance(name, str)} if isinstance(required, list) else set()
    for name in properties if isinstance(properties, dict) else ():
        if name not in names:
            raise InvalidValue.at(
                f"{place}.required",
                f": a strict schema must require every property, and {quoted(name)} is missing; add it "
                f'(a property that may be absent has a type such as ["string", "null"]), {HINT}',
            )


def _count_enum(one: Subschema, where: str) -> int:
    values = one.value.get("enum")
    if not isinstance(values, list):
        return 0
    characters = sum([len(value) for value in values if isinstance(value, str)])
    if len(values) > LONG_ENUM and characters > MAX_ENUM_CHARACTERS:
        raise InvalidValue.at(
            f"{one.place(where)}.enum",
            f": in a strict schema, more than {LONG_ENUM} values may have at most {MAX_ENUM_CHARACTERS} "
            f"characters, not {characters}; use shorter values, {HINT}",
        )
    return len(values)
