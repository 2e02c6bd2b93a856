"""Gives an argument that a model wrote without quotes, such as ``12``, the type that the schema of the tool has.

A schema that allows only strings keeps the text as it is. Any other schema reads it as JSON or as Python's ``True``,
``False`` or ``None``; if a string is allowed too, or no type is known, text that cannot be read is a string.
``docs/tools.md`` compares these rules with those of other servers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from metatemplate.answers.tool_calls.readers.json_calls import as_json

MAX_SCHEMAS = 64
"""Maximum alternatives and references that are followed. With more, or with a reference to itself, any type is allowed.
"""
PYTHON_WORDS = {"True": "true", "False": "false", "None": "null"}
TYPES = dict(
    zip(
        (str, bool, int, float, list, dict, type(None)),
        ("string", "boolean", "integer", "number", "array", "object", "null"),
        strict=True,
    )
)


def schema_of(parameters: Mapping[str, Any], key: str) -> Any:
    """Return the schema of one argument; None if the parameters of the tool do not have it."""
    properties = parameters.get("properties")
    return properties.get(key) if isinstance(properties, Mapping) else None


def argument(text: str, schema: Any, parameters: Mapping[str, Any]) -> tuple[str, bool]:
    """Return the JSON text of an argument, and whether the argument could have a type that the schema allows.

    ``schema``: from ``schema_of``, or ``{"type": "text"}`` or ``{"type": "json"}`` if the answer names the type.
    ``parameters``: has the definitions to which the schema may refer. Raises ``ValueError`` for text that JSON cannot
    contain.
    """
    types = _types(schema, parameters)
    if types in ({"string"}, {"text"}):
        return as_json(text), True
    written = text.strip()
    try:
        value = json.loads(written := PYTHON_WORDS.get(written, written))
        as_json(value)
    except ValueError:
        return as_json(text), not types or "string" in types
    kind = TYPES[type(value)]
    if "string" in types and not types & {kind, "number" if kind == "integer" else kind}:
        return as_json(text), True
    return written, True


def _types(schema: Any, root: Mapping[str, Any]) -> set[str]:
    """Return the types that a schema names, directly or by its alternatives, values or references. Empty: any."""
    types, left = set[str](), [schema]
    for _ in range(MAX_SCHEMAS):
        if not left:
            return types
        one = left.pop()
        if not isinstance(one, Mapping):
            continue
        named, values = one.get("type"), [one["const"]] if "const" in one else one.get("enum")
        if isinstance(named, str):
            types.add(named)
        elif isinstance(named, list):
            types.update(filter(lambda name: isinstance(name, str), named))
        elif isinstance(values, list):
            types.update(TYPES[type(value)] for value in values)
        for key in ("anyOf", "oneOf", "allOf"):
            left += one[key] if isinstance(one.get(key), list) else []
        if isinstance(reference := one.get("$ref"), str) and reference.startswith("#/"):
            target: Any = root
            for step in reference[2:].split("/"):
                target = target.get(step) if isinstance(target, Mapping) else None
            left.append(target)
    return set()
