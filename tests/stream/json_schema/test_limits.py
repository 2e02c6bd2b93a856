"""Schemas that clients' libraries write are within the limits, and a schema just beyond a limit is not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import pytest
from pydantic import BaseModel

from gateway.core.errors import InvalidValue
from gateway.stream.json_schema.limits import MAX_CHAIN, MAX_REFERENCES, MAX_SIZE, MAX_SUBSCHEMAS, check_limits
from gateway.stream.json_schema.subschemas import subschemas


class Leaf(BaseModel):
    name: str
    weight: float | None = None


class Branch(BaseModel):
    branches: list[Branch]
    leaves: dict[str, Leaf]


ACCEPTED: dict[str, dict[str, Any]] = {
    "pydantic": Leaf.model_json_schema(),
    "pydantic, recursive": Branch.model_json_schema(),
    "zod": {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$ref": "#/definitions/answer",
        "definitions": {"answer": {"type": "object", "properties": {"next": {"$ref": "#/definitions/answer"}}}},
    },
    "an identity": {"$id": "https://example.com/answer", "$schema": "https://json-schema.org/draft/2020-12/schema"},
    "recursion through a reference to the root": {
        "type": "object",
        "properties": {"steps": {"type": "array", "items": {"$ref": "#"}}},
    },
    "an anchor": {"properties": {"a": {"$ref": "#node"}}, "$defs": {"n": {"$anchor": "node"}}},
    "a name with a slash and a tilde": {"$ref": "#/$defs/a~1b~0c", "$defs": {"a/b~c": True}},
    "an escaped name": {"$ref": "#/%24defs/a%20b", "$defs": {"a b": {}}},
    "an item of a list": {"$ref": "#/properties/a/anyOf/1", "properties": {"a": {"anyOf": [{}, {"type": "null"}]}}},
    "unknown keywords": {"x-order": ["a"], "propertyOrdering": {"$ref": "http://example.com"}, "nullable": True},
}


@pytest.mark.parametrize("schema", ACCEPTED.values(), ids=ACCEPTED)
def test_a_schema_of_a_library_is_accepted(schema: dict[str, Any]) -> None:
    assert check_limits(schema, "schema")[0].value is schema


def row(length: int) -> dict[str, Any]:
    """A schema whose references are a row for one value."""
    links: dict[str, Any] = {str(n): {"$ref": f"#/$defs/{n + 1}"} for n in range(length - 2)}
    return {"$ref": "#/$defs/0", "$defs": {**links, str(length - 2): {}}}


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(levels - 1):
        schema = {"not": schema}
    return schema


AT_A_LIMIT: dict[str, tuple[Callable[[int], dict[str, Any]], str]] = {
    # name: (a schema at the limit, or beyond it by one; the message)
    "size": (
        lambda more: {"title": "x" * (MAX_SIZE - len('{"title":""}') + more)},
        "schema has 65537 bytes; at most 65536 are allowed, so send a smaller schema",
    ),
    "schemas": (
        lambda more: {"properties": {f"p{n}": {} for n in range(MAX_SUBSCHEMAS - 1 + more)}},
        "schema has more than 2000 schemas inside; send a smaller schema",
    ),
    "references": (
        lambda more: {"prefixItems": [{"$ref": "#/$defs/a"}] * (MAX_REFERENCES + more), "$defs": {"a": {}}},
        "schema has 1001 references; at most 1000 are allowed, so send a smaller schema",
    ),
    "a row of references": (
        lambda more: row(MAX_CHAIN + more),
        "schema: more than 100 schemas for one value apply each other in a row; send a simpler schema",
    ),
    "depth": (
        lambda more: nested(64 + more),
        "schema is nested deeper than 64 levels; move inner schemas to $defs",
    ),
    "steps": (
        lambda more: {
            "anyOf": [*[{"$ref": "#/$defs/a"}] * 49, *[True] * (99 + more)],
            "$defs": {"a": {"anyOf": [True] * 98}},
        },
        "schema: more than 5000 schemas apply to one value, because $ref, allOf, anyOf or oneOf repeat; send a simpler "
        "schema",
    ),
}


@pytest.mark.parametrize(("make", "message"), AT_A_LIMIT.values(), ids=AT_A_LIMIT)
def test_a_schema_at_a_limit_is_accepted_and_one_beyond_it_is_refused(
    make: Callable[[int], dict[str, Any]], message: str
) -> None:
    check_limits(make(0), "schema")
    with pytest.raises(InvalidValue) as raised:
        check_limits(make(1), "schema")
    assert raised.value.message == message
    assert raised.value.param == "schema"


def test_a_very_deep_schema_is_refused_without_recursion() -> None:
    schema: dict[str, Any] = {}
    for _ in range(100_000):
        schema = {"not": schema}
    with pytest.raises(InvalidValue, match="nested deeper than 64 levels"):
        check_limits(schema, "schema")


def test_a_value_that_is_no_json_is_refused() -> None:
    for value in (object(), {1: 2}, b"", 2**64):
        with pytest.raises(InvalidValue, match="a value that JSON does not allow"):
            check_limits({"const": value}, "schema")


def test_the_schemas_inside_a_schema_have_places() -> None:
    schema = {
        "properties": {"a": {"items": True}, "b.c": {"anyOf": [{}, {"not": {}}]}},
        "$defs": {"x": False},
        "allOf": "wrong",
        "items": 3,
        "enum": [{"items": {}}],
        "patternProperties": {"^a$": {}},
    }
    assert [one.place("schema") for one in subschemas(schema)] == [
        "schema",
        "schema.properties.a",
        "schema.properties.a.items",
        "schema.properties.b?c",
        "schema.properties.b?c.anyOf[0]",
        "schema.properties.b?c.anyOf[1]",
        "schema.properties.b?c.anyOf[1].not",
        "schema.$defs.x",
        "schema.patternProperties.?a$",
    ]


def test_the_schemas_inside_a_schema_are_read_one_by_one() -> None:
    class Counted(list[Any]):
        """A list that counts the items that were read."""

        read = 0

        def __iter__(self) -> Iterator[Any]:
            for one in super().__iter__():
                self.read += 1
                yield one

    items = Counted([{}] * 10_000)
    assert len([*islice(subschemas({"anyOf": items}), 5)]) == 5
    assert items.read == 4
