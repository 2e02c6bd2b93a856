"""``strict: true`` has OpenAI's rules."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.core.errors import InvalidValue
from gateway.stream.json_schema.response_format import read_answer_format

PLACE = "response_format.json_schema.schema"


def closed(properties: dict[str, Any], **more: Any) -> dict[str, Any]:
    """An object of a strict schema."""
    return {
        "type": "object",
        "properties": properties,
        "required": [*properties],
        "additionalProperties": False,
        **more,
    }


def levels(number: int) -> dict[str, Any]:
    """A schema of objects inside each other."""
    schema = closed({})
    for _ in range(number - 1):
        schema = closed({"a": schema})
    return schema


def enums(*lengths: int) -> dict[str, Any]:
    return closed({f"e{n}": {"enum": [f"{k:05}" for k in range(length)]} for n, length in enumerate(lengths)})


def read(schema: dict[str, Any], *, strict: bool) -> None:
    read_answer_format({"type": "json_schema", "json_schema": {"name": "a", "schema": schema, "strict": strict}})


ACCEPTED: dict[str, dict[str, Any]] = {
    "no properties": closed({}),
    "a property that may be null": closed({"a": {"type": ["string", "null"]}}),
    "anyOf in a property": closed({"a": {"anyOf": [closed({"b": {"type": "string"}}), {"type": "null"}]}}),
    "a recursive schema": closed({"a": {"type": "array", "items": {"$ref": "#"}}}),
    "definitions": closed({"a": {"$ref": "#/$defs/b"}}, **{"$defs": {"b": closed({"c": {"type": "number"}})}}),
    "constraints": closed({"a": {"type": "string", "pattern": "^a$"}, "b": {"type": "array", "minItems": 1}}),
    "11 objects inside each other": levels(11),
    "1000 enum values": enums(250, 250, 250, 250),
    "a long enum of short texts": enums(300),
}


@pytest.mark.parametrize("schema", ACCEPTED.values(), ids=ACCEPTED)
def test_a_strict_schema_is_accepted(schema: dict[str, Any]) -> None:
    read(schema, strict=True)


REFUSED: dict[str, tuple[dict[str, Any], str, str]] = {  # name: (schema, place, part of the message)
    "no type": ({}, "", 'a strict schema must have "type": "object"'),
    "a root that is a list": ({"type": "array"}, "", 'a strict schema must have "type": "object"'),
    "a root that may be null": (closed({}, type=["object", "null"]), "", 'must have "type": "object"'),
    "a root that is a reference": ({"$ref": "#/$defs/a", "$defs": {"a": closed({})}}, "", 'must have "type": "object"'),
    "anyOf at the root": (closed({}, anyOf=[closed({})]), ".anyOf", "must not have anyOf at the root"),
    "other properties": (
        {"type": "object", "properties": {}},
        "",
        'every object of a strict schema must have "additionalProperties"',
    ),
    "other properties, allowed": (closed({}, additionalProperties=True), "", '"additionalProperties": false; add it'),
    "other properties of an inner object": (
        closed({"a": {"properties": {}}}),
        ".properties.a",
        'must have "additionalProperties": false',
    ),
    "other properties of a definition": (
        closed({}, **{"$defs": {"b": {"type": ["object", "null"]}}}),
        ".$defs.b",
        'must have "additionalProperties"',
    ),
    "a property that is not required": (
        closed({"a": {}, "b": {}}, required=["a"]),
        ".required",
        'must require every property, and "b" is missing',
    ),
    "nothing required": (closed({"a": {}}, required=None), ".required", '"a" is missing'),
    **{
        keyword: (closed({"a": {keyword: {}}}), f".properties.a.{keyword}", "is not allowed in a strict schema")
        for keyword in ("allOf", "not", "dependentRequired", "dependentSchemas", "if", "then", "else")
    },
    "12 objects inside each other": (levels(12), ".properties.a" * 11, "has at most 10 levels of objects; use fewer"),
    "1001 enum values": (enums(250, 250, 250, 251), "", "has at most 1000 enum values, this one has 1001"),
    "a long enum of long texts": (
        closed({"a": {"enum": [f"{n:060}" for n in range(251)]}}),
        ".properties.a.enum",
        "more than 250 values may have at most 15000 characters, not 15060",
    ),
}


@pytest.mark.parametrize(("schema", "place", "part"), REFUSED.values(), ids=REFUSED)
def test_a_schema_that_is_not_strict_is_refused_with_a_remedy(schema: dict[str, Any], place: str, part: str) -> None:
    with pytest.raises(InvalidValue) as raised:
        read(schema, strict=True)
    assert part in raised.value.message
    assert raised.value.message.endswith("or send strict: false")
    assert raised.value.param == PLACE + place
    read(schema, strict=False)
