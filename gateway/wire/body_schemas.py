"""The JSON schemas of request bodies, generated from the models that check the requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter

INSTEAD: Mapping[str, tuple[str, str, tuple[str, ...]]] = {
    # Schema → (its required field, the field that can replace it, the keys of which that field needs one).
    "ChatRequest": ("messages", "gateway", ("prompt", "turns")),
    "CompletionRequest": ("prompt", "gateway", ("prompt",)),
    "ResponsesRequest": ("input", "prompt", ("id",)),
    "LoglikelihoodRequest": ("candidates", "prompt", ()),
}
"""The requests for which a dataset prompt can replace a field."""


def body_schemas(bodies: Mapping[str, Any], reference: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return name → JSON schema for each body, and the definitions to which these schemas refer.

    ``bodies``: name → model, or union of models. ``reference``: the reference to a definition, such as ``#/{model}``.
    """
    inputs: list[tuple[str, Any, TypeAdapter[Any]]] = [
        (name, "validation", TypeAdapter(body)) for name, body in bodies.items()
    ]
    schemas, document = TypeAdapter.json_schemas(inputs, ref_template=reference)
    definitions: dict[str, Any] = document["$defs"]
    replaced: dict[str, str] = {}
    for name in INSTEAD.keys() & definitions.keys():
        field, other, keys = INSTEAD[name]
        schema, without = definitions[name], f"{name}Without{field.title()}"
        definitions[name] = _requiring(schema, field)
        definitions[without] = {**_requiring(schema, other, keys, leave_out=field), "title": without}
        replaced[reference.format(model=name)] = reference.format(model=without)
    return {name: _with_others(schema, replaced) for (name, _), schema in schemas.items()}, definitions


def _requiring(schema: dict[str, Any], field: str, keys: tuple[str, ...] = (), leave_out: str = "") -> dict[str, Any]:
    """Return a schema in which ``field`` is required and not null.

    ``keys``: the value of ``field`` has one of these keys; empty for any value. ``leave_out``: a field to remove.
    """
    value = dict(schema["properties"][field])
    value.pop("default", None)
    if "anyOf" in value:
        value["anyOf"] = [form for form in value["anyOf"] if form != {"type": "null"}]
    if keys:
        needs = [{"required": [key], "properties": {key: {"not": {"type": "null"}}}} for key in keys]
        value = {"allOf": [value, {"anyOf": needs}]}
    properties = {name: row for name, row in schema["properties"].items() if name != leave_out}
    required = dict.fromkeys([name for name in schema["required"] if name != leave_out] + [field])
    return {**schema, "properties": {**properties, field: value}, "required": list(required)}


def _with_others(schema: dict[str, Any], replaced: Mapping[str, str]) -> dict[str, Any]:
    """Return the schema of a body with the schemas in which a dataset prompt replaces a field."""
    forms = schema.get("anyOf", [schema])
    others = [{"$ref": replaced[form["$ref"]]} for form in forms if form["$ref"] in replaced]
    return {"anyOf": [*forms, *others]} if others else schema
