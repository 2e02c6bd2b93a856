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

MAX_DEPTH = 8
"""Maximum nested references and alternatives of a schema that are followed."""
PYTHON_WORDS = {"True": "true", "False": "false", "None": "null"}
TYPES = dict(
    zip(
        (str, bool, int, float, list, dict, type(None)),
        ("string", "boolean", "integer", "number", "array", "object", "null"),
        strict=True,
    )
)


def schema_of(parameters: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return the schema of one argument, with the definitions to which it may refer."""
    properties = parameters.get("properties")
    found = properties.get(key) if isinstance(properties, Mapping) else None
    return {**parameters, "type": None, "anyOf": [found]} if isinstance(found, Mapping) else {}


def argument(text: str, schema: Mapping[str, Any]) -> tuple[str, bool]:
    """Return the JSON text of an argument, and whether the argument could have a type that the schema allows.

    ``schema``: from ``schema_of``, or ``{"type": "text"}`` or ``{"type": "json"}`` if the answer names the type.
    Raises ``ValueError`` for text that JSON cannot contain.
    """
    types = _types(schema, schema, MAX_DEPTH)
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


def _types(schema: Any, root: Mapping[str, Any], depth: int) -> set[str]:
    """Return the types that a schema names, directly or by its alternatives, values or a reference. Empty: any."""
    if not isinstance(schema, Mapping) or not depth:
        return set()
    named = schema.get("type")
    types = {named} if isinstance(named, str) else {one for one in named or () if isinstance(one, str)}
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    if not types and isinstance(values, list):
        types = {TYPES[type(value)] for value in values}
    for key in ("anyOf", "oneOf", "allOf"):
        for branch in schema.get(key) or ():
            types |= _types(branch, root, depth - 1)
    if isinstance(reference := schema.get("$ref"), str) and reference.startswith("#/"):
        target: Any = root
        for step in reference[2:].split("/"):
            target = target.get(step) if isinstance(target, Mapping) else None
        types |= _types(target, root, depth - 1)
    return types
