"""Makes the JSON Schema of a kind of file from its classes, for editors, messages and the documentation.

A schema accepts every file that the gateway accepts. ``gateway check`` finds more problems: with files, with names, and
with combinations of settings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from pkgutil import resolve_name
from typing import Any

from pydantic.json_schema import JsonSchemaValue

from gateway.config.schema.backend_kinds import BACKEND_KINDS
from gateway.config.schema.kinds import KIND
from gateway.config.schema.settings import FILES, GATEWAY, PROMPT, TEMPLATE
from metatemplate.answers.tool_calls.registry import FORMATS
from metatemplate.files import file_types, template
from metatemplate.files.file_types import FileSchema
from metatemplate.values.json_values import part

DIALECT = "http://json-schema.org/draft-07/schema#"
"""The version of JSON Schema. All common editors support this version."""


@cache
def json_schema(file: str) -> dict[str, Any]:
    """Return the JSON Schema of one kind of file, such as ``settings.GATEWAY``."""
    return {"$schema": DIALECT, "title": f"{file} of meta-gateway", **_content(file)}


def _content(file: str) -> dict[str, Any]:
    if file == PROMPT:
        from metatemplate.datasets.validation import PROMPT_FILE

        return file_types.json_schema(PROMPT_FILE)
    if file == TEMPLATE:
        return {"type": "object", "allOf": [_template(kind) for kind in template.FILES]}
    schema = file_types.json_schema(FILES[file], _Settings)
    if file == GATEWAY:
        part(schema, ("models", "", "targets", 0))["allOf"] = _kinds_of_targets()
    return schema


def _template(kind: str) -> dict[str, Any]:
    """Return the condition of a template: a kind, which is ``meta`` if the file names none, has its keys."""
    named = {"properties": {"kind": {"const": kind}}, "required": [] if kind == "meta" else ["kind"]}
    keys = file_types.json_schema(resolve_name(template.FILES[kind]))
    if "tools" in keys["properties"]:
        part(keys, ("tools", "parser"))["enum"] = [*FORMATS]
    return {"if": named, "then": keys}


def settings(schema: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the dotted name of each setting, such as ``models.<name>.targets[].url``, and its part of the schema.

    The title of this part is the kind of value.
    """
    for name, found in schema.get("properties", {"<name>": schema.get("additionalProperties")}).items():
        here, inner = f"{path}.{name}".lstrip("."), found.get("items", {})
        if "title" in found:
            yield here, found
        else:
            yield from settings(inner, f"{here}[]") if inner else settings(found, here)


class _Settings(FileSchema):
    """Writes a setting with its kind as the title, and with its default as in a file."""

    def function_plain_schema(self, schema: Any) -> JsonSchemaValue:
        kind = schema["metadata"][KIND]
        found = {"anyOf": [{**kind.schema}, {"type": "null"}]} if kind.or_none else {**kind.schema}
        return {"title": kind.name, **found}

    def nullable_schema(self, schema: Any) -> JsonSchemaValue:
        found = self.generate_inner(schema["schema"])
        return {"title": found.pop("title"), "anyOf": [found, {"type": "null"}]}

    def default_schema(self, schema: Any) -> JsonSchemaValue:
        found, default = self.generate_inner(schema["schema"]), schema.get("default")
        kind = schema["schema"].get("metadata", {}).get(KIND)
        return {**found, "default": kind.write(default)} if kind is not None and not kind.or_none else found


def _kinds_of_targets() -> list[dict[str, Any]]:
    """Return the conditions of a target: each kind requires and allows its settings."""
    names = {setting for kind in BACKEND_KINDS.values() for setting in kind.settings}
    return [
        {
            "if": {"properties": {"speaks": {"const": kind.name}}, "required": ["speaks"]},
            "then": {
                "required": list(kind.required),
                "properties": {name: {"type": "null"} for name in sorted(names - set(kind.settings))},
            },
        }
        for kind in BACKEND_KINDS.values()
    ]
