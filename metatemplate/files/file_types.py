"""How pydantic reads the keys of template and prompt files, and the JSON Schema of these files.

Every type must match exactly: no number is read as a text. A null means a missing key, a list becomes a tuple, and a
tuple of ``NonEmpty`` may be written as a single text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, get_type_hints

import typing_extensions
from pydantic import ConfigDict, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import CoreConfig, PydanticCustomError, SchemaValidator

MAPPING_OR_TEXT = "mapping_or_text"
"""The type of the error for a value that must be a mapping or a text."""
NOT_SCHEMAS = ("default", "expected", "config", "metadata", "ref")
"""The keys of pydantic's schemas that contain no schema."""
Read = Callable[[Any], Any]


def file_type(name: str, keys: Iterable[str], *owners: type, **own: Any) -> Any:
    """Return the type of a mapping. ``owners``: the classes whose fields the keys are. ``own``: the types of others."""
    hints = {key: hint for owner in owners for key, hint in get_type_hints(owner, include_extras=True).items()} | own
    typed_dict: Any = typing_extensions.TypedDict
    return typed_dict(name, {key: hints[key] for key in keys}, total=False)


@cache
def validator(type_: Any, *, relaxed: bool = False) -> SchemaValidator:
    """Return what reads a tuple of one value. ``relaxed``: empty texts and missing keys are accepted."""
    return SchemaValidator(_core_schema(type_, relaxed), CoreConfig(strict=True))


@cache
def json_schema(type_: Any) -> dict[str, Any]:
    """Return the JSON Schema of a file."""
    found: dict[str, Any] = _NullIsMissing().generate(_core_schema(type_, with_sentences=True))["items"]
    return found


def _core_schema(type_: Any, relaxed: bool = False, with_sentences: bool = False) -> Any:
    config = ConfigDict(strict=True, extra="forbid", use_attribute_docstrings=with_sentences)
    schema: Any = TypeAdapter(tuple[type_], config=config).core_schema
    return _in_files(schema, {one["ref"]: one for one in schema.get("definitions", ())}, relaxed)


def _in_files(node: Any, definitions: Mapping[str, Any], relaxed: bool) -> Any:
    """Return a part of pydantic's schema, changed so that it reads a file, with the definitions in their places."""
    if isinstance(node, list):
        return [_in_files(one, definitions, relaxed) for one in node]
    if not isinstance(node, dict):
        return node
    if node.get("type") in ("definitions", "definition-ref"):
        return _in_files(node.get("schema") or definitions[node["schema_ref"]], definitions, relaxed)
    kept = {key: value for key, value in node.items() if key in NOT_SCHEMAS and key != "ref"}
    node = {key: _in_files(value, definitions, relaxed) for key, value in node.items() if key not in NOT_SCHEMAS} | kept
    match node.get("type"):
        case "int":
            return {**node, "ge": 0}
        case "str" if relaxed and "min_length" in node:
            return {**node, "min_length": 0}
        case "dataclass-field" if relaxed and node["schema"]["type"] in ("str", "literal"):
            default = node["schema"].get("expected", [""])[0]
            return {**node, "schema": {"type": "default", "schema": node["schema"], "default": default}}
        case "dict" if node["values_schema"]["type"] == "any":
            return {"type": "dict", "strict": False}
        case "dict" | "typed-dict" | "dataclass-args":
            return _called("before", _without_null, {**node, "strict": False})
        case "dataclass":
            return {**node, "strict": False}
        case "tuple":
            [item, *_] = node["items_schema"]
            listed = {**node, "items_schema": [item], "variadic_item_index": 0, "strict": False}
            return _called("before", _listed, listed, other=item) if "min_length" in item else listed
        case "union":
            return _union(node)
    return node


def _called(mode: str, function: Any, node: Any, other: Any = None) -> Any:
    """Return a schema that calls a function ``before`` another or around it (``wrap``). ``other``: a further form."""
    also = {} if other is None else {"json_schema_input_schema": {"type": "union", "choices": [other, node]}}
    return {"type": f"function-{mode}", "function": {"type": "no-info", "function": function}, "schema": node, **also}


def _without_null(value: Any) -> Any:
    return {key: entry for key, entry in value.items() if entry is not None} if isinstance(value, Mapping) else value


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _union(node: Any) -> Any:
    """Return a union whose errors are those of the form that was probably meant."""
    others = [one for one in node["choices"] if one["type"] != "str"]
    if len(others) == len(node["choices"]):  # ``bool | Literal["auto"]``
        return {**node, "custom_error_type": "bool_type"}

    def read(value: Any, inner: Read) -> Any:
        if isinstance(value, str):
            return value
        if others[0]["type"] != "tuple" and not isinstance(value, Mapping):
            raise PydanticCustomError(MAPPING_OR_TEXT, "must be a mapping or a text")
        return inner(value)

    return _called("wrap", read, others[0], other={"type": "str"})


class FileSchema(GenerateJsonSchema):
    """Writes a JSON Schema without the names of classes, with each description on one line."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def generate_inner(self, schema: Any) -> JsonSchemaValue:
        found = super().generate_inner(schema)
        if "description" in found:
            found["description"] = " ".join(found["description"].split())
        if schema["type"] in ("dataclass", "typed-dict"):
            found.pop("title", None)
        return found


class _NullIsMissing(FileSchema):
    """Allows null for every key. Defaults are left to the documentation."""

    def default_schema(self, schema: Any) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def dataclass_field_schema(self, schema: Any) -> JsonSchemaValue:
        return self.nullable_schema(schema)

    typed_dict_field_schema = dataclass_field_schema
