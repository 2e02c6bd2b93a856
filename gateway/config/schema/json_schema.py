"""Makes the JSON Schema of a settings file from the rows of ``settings``, for editors and other tools.

A schema accepts every file that the gateway accepts. ``gateway check`` finds more problems: with files, with names, and
with combinations of settings.
"""

from __future__ import annotations

from typing import Any

from gateway.config.schema.backend_kinds import BACKEND_KINDS
from gateway.config.schema.settings import Row
from gateway.config.schema.validation import ANY_NAME, ENTRY, schema_of

DIALECT = "http://json-schema.org/draft-07/schema#"
"""The version of JSON Schema. All common editors support this version."""
TARGETS = "models.<name>.targets"


def json_schema(file: str) -> dict[str, Any]:
    """Return the JSON Schema of one kind of file, such as ``settings.GATEWAY``."""
    return {"$schema": DIALECT, "title": f"{file} of meta-gateway", **_schema(schema_of(file), "")}


def _schema(node: Row | dict[str, Any], path: str) -> dict[str, Any]:
    if isinstance(node, Row):
        return _setting(node)
    if ENTRY in node:
        # An empty section is a mapping or list without entries, as in the gateway.
        return {"type": ["array", "null"], "items": _entry(node[ENTRY], path)}
    schema: dict[str, Any] = {"type": ["object", "null"]}
    if ANY_NAME in node:
        return {**schema, "additionalProperties": _schema(node[ANY_NAME], f"{path}.{ANY_NAME}".lstrip("."))}
    properties = {name: _schema(child, f"{path}.{name}".lstrip(".")) for name, child in node.items()}
    required = [name for name, child in node.items() if isinstance(child, Row) and child.required]
    schema |= {"additionalProperties": False, "properties": properties}
    return {**schema, "required": required} if required else schema


def _setting(row: Row) -> dict[str, Any]:
    schema = {**row.kind.schema, "description": row.description}
    if row.default is None:
        return {"anyOf": [row.kind.schema, {"type": "null"}], "description": row.description}
    return schema if row.required else {**schema, "default": row.default}


def _entry(node: dict[str, Any], path: str) -> dict[str, Any]:
    """Return the schema of a list entry. For a target, the schema requires and allows the settings of its kind."""
    schema = _schema(node, path)
    if path != TARGETS:
        return schema
    kinds = {setting for kind in BACKEND_KINDS.values() for setting in kind.settings}
    return schema | {
        "allOf": [
            {
                "if": {"properties": {"speaks": {"const": kind.name}}, "required": ["speaks"]},
                "then": {
                    "required": list(kind.required),
                    "properties": {name: {"type": "null"} for name in sorted(kinds - set(kind.settings))},
                },
            }
            for kind in BACKEND_KINDS.values()
        ]
    }
