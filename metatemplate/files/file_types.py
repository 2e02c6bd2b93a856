"""How pydantic reads the types of files, and the JSON Schema of these files."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, get_type_hints

import typing_extensions
from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import ErrorDetails

from metatemplate.values.json_values import UNKNOWN, KeyPath, corrected
from metatemplate.values.kinds import FORM

MOST_ROUNDS = 5
"""The maximum number of validations: a null that is removed may be a required key, which is then missing."""
Explain = Callable[[KeyPath, list[ErrorDetails]], tuple[str, Any]]
"""Returns the message for the errors at a place, and the value that replaces the wrong one. Without message: a null."""


def file_type(name: str, keys: Iterable[str], *owners: type, **own: Any) -> Any:
    """Return the type of a mapping. ``owners``: the classes whose fields the keys are. ``own``: the types of others."""
    hints = {key: hint for owner in owners for key, hint in get_type_hints(owner, include_extras=True).items()} | own
    typed_dict: Any = typing_extensions.TypedDict
    return typed_dict(name, {key: hints[key] for key in keys}, total=False)


@cache
def adapter(type_: Any, *, with_sentences: bool = False) -> TypeAdapter[Any]:
    """Return what reads a tuple of one value: pydantic takes no configuration for a class alone.

    ``with_sentences``: the JSON Schema then has the text under each field, which pydantic takes from the source.
    """
    config = ConfigDict(extra="forbid", arbitrary_types_allowed=True, use_attribute_docstrings=with_sentences)
    return TypeAdapter(tuple[type_], config=config)


def read(type_: Any, value: Any, explain: Explain, refuse: Callable[[KeyPath, str], None], context: Any = None) -> Any:
    """Return the value in a file as its type. ``refuse`` is called with the place and message of each mistake.

    ``context``: what the kinds of values get to read a value.
    """
    changes: dict[KeyPath, Any] = {}
    for _ in range(MOST_ROUNDS):
        try:
            return adapter(type_).validate_python((corrected(value, changes),), context=context)[0]
        except ValidationError as error:
            refused = {place[1:]: errors for place, errors in refused_values(error).items()}
        for place, errors in sorted(refused.items(), key=lambda one: one[1][0]["type"] not in UNKNOWN):
            is_new = changes.keys().isdisjoint([place[:depth] for depth in range(len(place))])
            message, changes[place] = explain(place, errors)
            if message and is_new:
                refuse(place, message)
    raise AssertionError(f"a replaced value is not accepted either: {refused.keys()}")


def refused_values(error: ValidationError) -> dict[KeyPath, list[ErrorDetails]]:
    """Return the errors of a validation by their places. A place has an error for each form that a value may have.

    Of several forms, the one with errors inside the value was meant.
    """
    found: dict[KeyPath, list[ErrorDetails]] = {}
    for one in error.errors(include_url=False):
        outer = len(one["loc"]) - (one["type"] in UNKNOWN)  # the name of an unknown key may be any text
        place = tuple([key for at, key in enumerate(one["loc"]) if at == outer or key not in (FORM, "[key]")])
        found.setdefault(place, []).append(one)
    inner = {place[:depth] for place in found for depth in range(len(place))}
    return {place: errors for place, errors in found.items() if place not in inner or errors[0]["loc"][-1] != FORM}


class FileSchema(GenerateJsonSchema):
    """Writes a JSON Schema of a file without the names of classes, with each description on one line."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def generate_inner(self, schema: Any) -> JsonSchemaValue:
        found = super().generate_inner({key: value for key, value in schema.items() if key != "ref"})
        if "description" in found:
            found["description"] = " ".join(found["description"].split())
        if schema["type"] in ("dataclass", "typed-dict"):
            found.pop("title", None)
        return found

    def definitions_schema(self, schema: Any) -> JsonSchemaValue:
        self._definitions = {one["ref"]: one for one in schema["definitions"]}
        return self.generate_inner(schema["schema"])

    def definition_ref_schema(self, schema: Any) -> JsonSchemaValue:
        return self.generate_inner(self._definitions[schema["schema_ref"]])


class NullIsMissing(FileSchema):
    """Allows null for every key. Defaults are left to the documentation."""

    def default_schema(self, schema: Any) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def dataclass_field_schema(self, schema: Any) -> JsonSchemaValue:
        return self.nullable_schema(schema)

    typed_dict_field_schema = dataclass_field_schema


@cache
def json_schema(type_: Any, writer: type[FileSchema] = NullIsMissing) -> dict[str, Any]:
    """Return the JSON Schema of a file."""
    found: dict[str, Any] = adapter(type_, with_sentences=True).json_schema(schema_generator=writer)["prefixItems"][0]
    return found
