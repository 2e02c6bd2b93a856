"""An argument that a model wrote without quotes gets the type of the tool's schema."""

from __future__ import annotations

import time
from typing import Any

import pytest

from metatemplate.answers.tool_calls.readers.argument_types import NO_STRING, STRING, typed, types_of

TEXT, INTEGER, NULL = {"type": "string"}, {"type": "integer"}, {"type": "null"}
CASES: dict[str, tuple[Any, str, str, bool]] = {
    # name: (schema of the argument, text, JSON, whether the type fits)
    "a number for a string": (TEXT, "12", '"12"', True),
    "null for a string": ({"type": ["string"]}, "null", '"null"', True),
    "a string with blanks": (TEXT, " x\n", '" x\\n"', True),
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
    "string or null: a number": ({"anyOf": [TEXT, NULL]}, "12", '"12"', True),
    "string or integer: a number": ({"oneOf": [TEXT, INTEGER]}, "12", "12", True),
    "string or number: an integer": ({"anyOf": [TEXT, {"type": "number"}]}, "12", "12", True),
    "string or integer: words": ({"anyOf": [TEXT, INTEGER]}, "a dozen", '"a dozen"', True),
    "a reference": ({"$ref": "#/$defs/name"}, "12", '"12"', True),
    "a reference to itself": ({"$ref": "#/$defs/loop"}, "12", "12", True),
    "a reference to nothing": ({"$ref": "#/$defs/none"}, "x", '"x"', True),
    "a constant": ({"const": "1"}, "1", '"1"', True),
    "no schema: a number": ({}, "12", "12", True),
    "no schema: words": ({}, "a dozen", '"a dozen"', True),
    "no schema: Python's True": ({}, "True", "true", True),
    "an unknown type: a number": ({"type": "str"}, "12", "12", True),
    "an unknown type: words": ({"type": "text"}, "abc", '"abc"', True),
    "integer or anything": ({"anyOf": [INTEGER, {}]}, "abc", '"abc"', True),
    "an integer with more conditions": ({"type": "integer", "anyOf": [{"minimum": 1}]}, "abc", '"abc"', False),
    "parts of one type": ({"allOf": [TEXT, {"minLength": 1}]}, "12", '"12"', True),
    "a schema that is no object": (True, "12", "12", True),
}


@pytest.mark.parametrize("case", CASES)
def test_the_schema_decides_the_type(case: str) -> None:
    schema, text, expected, fits = CASES[case]
    parameters = {
        "oneOf": [{"type": "object"}],
        "properties": {"a": schema},
        "$defs": {"name": TEXT, "loop": {"$ref": "#/$defs/loop"}},
    }
    assert typed(text, types_of(parameters, "a")) == (expected, fits)


@pytest.mark.parametrize("parameters", [{}, {"properties": None}, {"properties": {"b": TEXT}}, {"type": "object"}])
def test_an_argument_without_a_schema_may_be_anything(parameters: dict[str, Any]) -> None:
    assert typed("12", types_of(parameters, "a")) == ("12", True)
    assert typed("x", types_of(parameters, "a")) == ('"x"', True)


def test_a_format_that_names_the_type_decides_itself() -> None:
    assert typed("12", STRING) == ('"12"', True)
    assert typed("12", NO_STRING) == ("12", True)
    assert typed("x", NO_STRING) == ('"x"', False)


@pytest.mark.parametrize("values", [["a"], [1], [{"type": "string"}]])
def test_a_large_schema_costs_no_more_than_a_small_one(values: list[Any]) -> None:
    many = values * 500_000
    schema = {"anyOf": [{"$ref": f"#/$defs/{number}"} for number in range(60)], "enum": many}
    definitions = {str(number): {"enum": many, "anyOf": many} for number in range(60)}
    begun = time.process_time()
    for _ in range(100):
        types_of({"properties": {"a": schema}, "$defs": definitions}, "a")
    assert time.process_time() - begun < 2
