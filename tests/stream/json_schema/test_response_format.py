"""``response_format`` becomes the format of the answer, or an error that names the place."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.core.errors import InvalidValue
from gateway.core.exchange import AnswerFormat
from gateway.stream.json_schema.response_format import FORM, read_answer_format

SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}


def wrapped(**keys: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA, **keys}}


READ: dict[str, tuple[object, AnswerFormat | None]] = {
    "nothing": (None, None),
    "text": ({"type": "text"}, None),
    "text, and null for a schema": ({"type": "text", "json_schema": None}, None),
    "any object": ({"type": "json_object"}, AnswerFormat()),
    "a schema": (wrapped(), AnswerFormat(schema=SCHEMA, name="answer")),
    "a strict schema": (wrapped(strict=True), AnswerFormat(schema=SCHEMA, name="answer")),
    "every key": (wrapped(strict=False, description="d"), AnswerFormat(schema=SCHEMA, name="answer")),
    "null keys": (wrapped(strict=None, description=None), AnswerFormat(schema=SCHEMA, name="answer")),
    "an empty schema": (wrapped(schema={}), AnswerFormat(schema={}, name="answer")),
    "a long name": (wrapped(name="a-B_9" * 12), AnswerFormat(schema=SCHEMA, name="a-B_9" * 12)),
}


@pytest.mark.parametrize(("value", "expected"), READ.values(), ids=READ)
def test_a_format_is_read(value: object, expected: AnswerFormat | None) -> None:
    assert read_answer_format(value) == expected


REFUSED: dict[str, tuple[object, str]] = {
    "a text": ("json", "response_format must be an object, not a string"),
    "no type": ({}, "response_format.type is missing; write one of text, json_object, json_schema"),
    "an unknown type": ({"type": "yaml"}, "response_format.type must be one of text, json_object, json_schema"),
    "a type that is a list": ({"type": []}, "response_format.type must be one of text, json_object, json_schema"),
    "a schema for any object": (
        {"type": "json_object", "schema": {}},
        f"response_format.schema: unknown key; write {FORM}",
    ),
    "a misspelled key": (
        {"type": "json_schema", "json_shema": {}},
        'response_format.json_shema: unknown key (did you mean "json_schema"?)',
    ),
    "no schema object": ({"type": "json_schema"}, f"response_format.json_schema is missing; write {FORM}"),
    "a schema object that is a list": (
        {"type": "json_schema", "json_schema": []},
        "response_format.json_schema must be an object, not a list",
    ),
    "a misspelled inner key": (
        wrapped(stricht=True),
        'response_format.json_schema.stricht: unknown key (did you mean "strict"?)',
    ),
    "an inner key that is not plain": (
        wrapped(**{"\n": 1}),
        f"response_format.json_schema.?: unknown key; write {FORM}",
    ),
    "no name": (wrapped(name=None), f"response_format.json_schema.name is missing; write {FORM}"),
    "a name that is a number": (wrapped(name=3), "response_format.json_schema.name must be a string, not a number"),
    "a name with a blank": (
        wrapped(name="my answer"),
        "response_format.json_schema.name must have 1 to 64 letters, digits, underscores and dashes",
    ),
    "a description that is a list": (
        wrapped(description=[]),
        "response_format.json_schema.description must be a string, not a list",
    ),
    "a text for strict": (
        wrapped(strict="yes"),
        "response_format.json_schema.strict must be true or false, not a string",
    ),
    "no schema": (wrapped(schema=None), f"response_format.json_schema.schema is missing; write {FORM}"),
    "true as the schema": (
        wrapped(schema=True),
        "response_format.json_schema.schema must be an object, not a boolean",
    ),
}


@pytest.mark.parametrize(("value", "message"), REFUSED.values(), ids=REFUSED)
def test_a_wrong_format_is_refused_with_its_place(value: object, message: str) -> None:
    with pytest.raises(InvalidValue) as raised:
        read_answer_format(value)
    assert raised.value.message == message
    assert raised.value.param == message.split(" ")[0].rstrip(":")


def test_a_format_of_the_responses_endpoint_is_named_as_the_client_wrote_it() -> None:
    with pytest.raises(InvalidValue) as raised:
        read_answer_format(wrapped(schema={"properties": {"a": {"$ref": "b"}}}), "text.format")
    assert raised.value.param == "text.format.schema.properties.a.$ref"
    with pytest.raises(InvalidValue) as raised:
        read_answer_format(wrapped(name=""), "text.format")
    assert raised.value.param == "text.format.name"
