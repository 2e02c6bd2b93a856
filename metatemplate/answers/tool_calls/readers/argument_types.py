"""Gives an argument that a model wrote without quotes, such as ``12``, the type that the schema of the tool has.

A schema that allows only strings keeps the text as it is. Any other schema reads it as JSON or as Python's ``True``,
``False`` or ``None``; if a string is allowed too, or no type is known, text that cannot be read is a string.
``docs/tools.md`` compares these rules with those of other servers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Set
from typing import Any

from metatemplate.answers.tool_calls.readers.json_calls import as_json

MAX_SCHEMAS = 64
"""Maximum alternatives and references of an argument's schema that are followed. With more, any type is allowed. Of a
list of alternatives or values, so many are read."""
PYTHON_WORDS = {"True": "true", "False": "false", "None": "null"}
TYPES = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    list: "array",
    dict: "object",
    type(None): "null",
}
"""Type of a parsed value → its name in JSON Schema."""
STRING = frozenset({"string"})
NO_STRING = frozenset(TYPES.values()) - STRING


def typed(text: str, types: Set[str]) -> tuple[str, bool]:
    """Return the JSON text of an argument, and whether it may have one of the types. ``types``: empty for any type.

    Raises ``ValueError`` for text that JSON cannot contain.
    """
    if types == STRING:
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


def types_of(parameters: Mapping[str, Any], key: str) -> Set[str]:
    """Return the types that the schema of one argument allows. Empty: any type.

    ``parameters``: the schema of all arguments. Alternatives, values and references are followed, each once.
    """
    properties = parameters.get("properties")
    left: list[tuple[Any, bool]] = [(properties.get(key) if isinstance(properties, Mapping) else None, False)]
    """Schemas to read, and whether another schema already limits the types that this one allows."""
    types, followed = set[str](), set[str]()
    for _ in range(MAX_SCHEMAS):
        if not left:
            return types
        schema, is_limited = left.pop()
        one: Mapping[str, Any] = schema if isinstance(schema, Mapping) else {}
        own, reference = _own_types(one), one.get("$ref")
        parts = [
            (part, is_limited or bool(own) or name == "allOf")
            for name in ("anyOf", "oneOf", "allOf")
            if isinstance(one.get(name), list)
            for part in one[name][:MAX_SCHEMAS]
        ]
        if isinstance(reference, str) and reference not in followed:
            followed.add(reference)
            parts.append((_target(parameters, reference), is_limited or bool(own)))
        if not (own or parts or reference or is_limited):
            return set()
        types |= own
        left += parts
    return set()


def _own_types(schema: Mapping[str, Any]) -> set[str]:
    """Return the types that a schema names itself, by ``type``, ``const`` or ``enum``."""
    named, values = schema.get("type"), [schema["const"]] if "const" in schema else schema.get("enum")
    if isinstance(named, str | list):
        return {name for name in ([named] if isinstance(named, str) else named) if name in TYPES.values()}
    return {TYPES[type(value)] for value in values[:MAX_SCHEMAS]} if isinstance(values, list) else set()


def _target(root: Mapping[str, Any], reference: str) -> Any:
    """Return the schema to which a reference such as ``#/$defs/name`` points; None if there is none."""
    target: Any = root if reference.startswith("#/") else None
    for step in reference[2:].split("/"):
        target = target.get(step) if isinstance(target, Mapping) else None
    return target
