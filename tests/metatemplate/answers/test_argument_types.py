"""An argument that a model wrote without quotes gets the type of the tool's schema."""

from __future__ import annotations

from typing import Any

import pytest

from metatemplate.answers.tool_calls.readers.argument_types import argument, schema_of

STRING, INTEGER, NULL = {"type": "string"}, {"type": "integer"}, {"type": "null"}
CASES: dict[str, tuple[Any, str, str, bool]] = {
    # name: (schema of the argument, text, JSON, whether the type fits)
    "a number for a string": (STRING, "12", '"12"', True),
    "null for a string": ({"type": ["string"]}, "null", '"null"', True),
    "a string with blanks": (STRING, " x\n", '" x\\n"', True),
    "a choice of strings": ({"enum": ["1", "2"]}, "1", '"1"', True),
    "an integer": (INTEGER, " 12\n", "12", True),
    "a number keeps its characters": ({"type": "number"}, "1.50e+1", "1.50e+1", True),
    "an object keeps its characters": ({"type": "object"}, '{"a":1 }', '{"a":1 }', True),
    "a word for an integer": (INTEGER, "twelve", '"twelve"', False),
    "another JSON value for an integer": (INTEGER, "[1]", "[1]", True),
    "Python's True": ({"type": "boolean"}, "True", "true", True),
    "Python's None": (INTEGER, "None", "null", True),
    "NaN": ({"type": "number"}, "NaN", '"NaN"', False),
    "string or null: null": ({"type": ["string", "null"]}, "null", "null", True),
    "string or null: a number": ({"anyOf": [STRING, NULL]}, "12", '"12"', True),
    "string or integer: a number": ({"oneOf": [STRING, INTEGER]}, "12", "12", True),
    "string or number: an integer": ({"anyOf": [STRING, {"type": "number"}]}, "12", "12", True),
    "string or integer: words": ({"anyOf": [STRING, INTEGER]}, "a dozen", '"a dozen"', True),
    "a reference": ({"$ref": "#/$defs/name"}, "12", '"12"', True),
    "a reference to itself": ({"$ref": "#/$defs/loop"}, "12", "12", True),
    "a reference to nothing": ({"$ref": "#/$defs/none"}, "x", '"x"', True),
    "a constant": ({"const": "1"}, "1", '"1"', True),
    "no schema: a number": ({}, "12", "12", True),
    "no schema: words": ({}, "a dozen", '"a dozen"', True),
    "no schema: Python's True": ({}, "True", "true", True),
    "a schema that is no object": (True, "12", "12", True),
}


@pytest.mark.parametrize("case", CASES)
def test_the_schema_decides_the_type(case: str) -> None:
    schema, text, expected, fits = CASES[case]
    parameters = {
        "oneOf": [{"type": "object"}],
        "properties": {"a": schema},
        "$defs": {"name": STRING, "loop": {"$ref": "#/$defs/loop"}},
    }
    assert argument(text, schema_of(parameters, "a"), parameters) == (expected, fits)


@pytest.mark.parametrize("parameters", [{}, {"properties": None}, {"properties": {"b": STRING}}, {"type": "object"}])
def test_an_argument_without_a_schema_may_be_anything(parameters: dict[str, Any]) -> None:
    assert argument("12", schema_of(parameters, "a"), parameters) == ("12", True)
    assert argument("x", schema_of(parameters, "a"), parameters) == ('"x"', True)


def test_a_format_that_names_the_type_decides_itself() -> None:
    assert argument("12", {"type": "text"}, {}) == ('"12"', True)
    assert argument("12", {"type": "json"}, {}) == ("12", True)
    assert argument("x", {"type": "json"}, {}) == ('"x"', False)
