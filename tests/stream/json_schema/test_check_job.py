"""What is wrong with a text, in plain words with its place, and without much of its content."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.stream.json_schema.check_job import do_job


def problem(schema: dict[str, Any] | None, text: str) -> str | None:
    values, rest = do_job({"schema": None if schema is None else json.dumps(schema), "answer": text})
    assert rest == ""
    assert list(values) == ["problem"], values
    found: str | None = values["problem"]
    return found


TEXTS: dict[str, tuple[str, str | None]] = {  # a text that must be any JSON object, and its problem
    "an object": ('{"a": [1, -0.5e3, "\\ud83d\\ude00", true, null]}', None),
    "blanks around": (' \t\r\n{"a": 1}\n', None),
    "a list": ("[]", "the text must be a JSON object, not a list"),
    "null": ("null", "the text must be a JSON object, not null"),
    "nothing": ("", "the text is empty; it must be JSON"),
    "blanks": (" \n", "the text is empty; it must be JSON"),
    "a sentence": ("Sure!", "the text is not valid JSON: expecting value (character 0)"),
    "a code block": ("```json\n{}\n```", "the text is not valid JSON: expecting value (character 0)"),
    "half an object": ('{"a": ', "the text is not valid JSON: expecting value (character 6)"),
    "text after the end": ("{} yes", "the text is not valid JSON: there is text after the end (character 3)"),
    "two objects": ("{}{}", "the text is not valid JSON: there is text after the end (character 2)"),
    "a line break in a string": (
        '{"a": "\n"}',
        "the text is not valid JSON: invalid control character (character 7)",
    ),
    "a blank of another kind": ("\u00a0{}", "the text is not valid JSON: expecting value (character 0)"),
    "a key twice": ('{"a": {"b": 1, "b": 1}}', None),
    "NaN": ('{"a": NaN}', "the text is not valid JSON: NaN is not a number of JSON"),
    "infinity": ('{"a": -Infinity}', "the text is not valid JSON: -Infinity is not a number of JSON"),
    "a large exponent": ('{"a": 1e999}', "the text has a number that is too large"),
    "1000 digits": ('{"a": ' + "9" * 1000 + "}", None),
    "1001 digits": ('{"a": ' + "9" * 1001 + "}", "the text has a number of more than 1000 digits"),
    "half of a pair": ('{"a": "\ud800"}', "the text is not valid JSON: it has half of a surrogate pair"),
    "half of a pair, escaped": (
        '{"a": "\\uDC00"}',
        "the text is not valid JSON: a string has half of a surrogate pair",
    ),
    "half of a pair in a key, escaped": (
        '{"\\ud800": 1}',
        "the text is not valid JSON: a string has half of a surrogate pair",
    ),
    "64 levels": ('{"a":' * 64 + "1" + "}" * 64, None),
    "65 levels": ('{"a":' * 65 + "1" + "}" * 65, "the text is JSON that is nested deeper than 64 levels"),
    "a million levels": ("[" * 1_000_000, "the text is JSON that is nested deeper than 64 levels"),
}


@pytest.mark.parametrize(("text", "expected"), TEXTS.values(), ids=TEXTS)
def test_a_text_is_a_json_object_or_has_a_problem(text: str, expected: str | None) -> None:
    assert problem(None, text) == expected


LONG = "x" * 1000
ANSWERS: dict[str, tuple[dict[str, Any], object, str | None]] = {
    "valid": ({"type": "object", "required": ["a"]}, {"a": 1}, None),
    "a format is not checked": ({"format": "date-time"}, "yesterday", None),
    "a whole number as 1.0": ({"type": "integer"}, 1.0, None),
    "type": ({"type": "string"}, 1, "$ must be a string, not a number"),
    "types": ({"type": ["integer", "null"]}, LONG, "$ must be a whole number or null, not a string"),
    "a boolean for a number": ({"type": "number"}, True, "$ must be a number, not a boolean"),
    "required": ({"required": ["a", "b"]}, {"a": 1}, '$ has no key "b", which is required'),
    "a place": (
        {"properties": {"a": {"items": {"properties": {"b": {"type": "null"}}}}}},
        {"a": [{}, {"b": 0}]},
        "$.a[1].b must be null, not a number",
    ),
    "a long place": (
        {"additionalProperties": {"type": "null"}},
        {LONG: 1},
        f"$.{'x' * 58}… must be null, not a number",
    ),
    "additionalProperties": (
        {"properties": {"a": {}}, "patternProperties": {"^b": {}}, "additionalProperties": False},
        {"a": 1, "b2": 1, LONG: 1},
        f'$ has the key "{"x" * 30}…", which the schema does not allow',
    ),
    "enum": ({"enum": ["a", 1, None]}, "b", '$ must be one of ["a", 1, null]'),
    "a long enum": ({"enum": [LONG]}, "b", f'$ must be one of ["{"x" * 78}…'),
    "const": ({"const": {"a": "é"}}, 1, '$ must be {"a": "é"}'),
    "pattern": ({"pattern": "^a$"}, LONG, '$ does not match the pattern "^a$"'),
    "minimum": ({"minimum": 3}, 2, "$ must be at least 3"),
    "exclusiveMaximum": ({"exclusiveMaximum": 0.5}, 2, "$ must be less than 0.5"),
    "multipleOf": ({"multipleOf": 3}, 2, "$ must be a multiple of 3"),
    "minItems": ({"minItems": 2}, [1], "$ must have at least 2 items"),
    "uniqueItems": ({"uniqueItems": True}, [1, 1.0], "$ must not have equal items"),
    "maxLength": ({"maxLength": 2}, LONG, "$ must have at most 2 characters"),
    "minProperties": ({"minProperties": 2}, {}, "$ must have at least 2 keys"),
    "contains": ({"contains": {"type": "null"}}, [1], "$ has too few items that match the schema in contains"),
    "anyOf": ({"anyOf": [{"type": "null"}, {"type": "string"}]}, 1, "$ matches none of the schemas in anyOf"),
    "the nearest of anyOf": (
        {"anyOf": [{"type": "null"}, {"properties": {"a": {"type": "null"}}}]},
        {"a": 1},
        "$.a must be null, not a number",
    ),
    "oneOf": ({"oneOf": [{}, {}]}, 1, "$ must match exactly one of the schemas in oneOf"),
    "not": ({"not": {}}, LONG, "$ must not match the schema in not"),
    "false": ({"properties": {"a": False}}, {"a": 1}, "$ has a part that the schema does not allow"),
    "too many items": ({"prefixItems": [True], "items": False}, [1, 2], "$ has more items than the schema allows"),
    "unevaluatedProperties": (
        {"unevaluatedProperties": False},
        {"a": 1},
        "$ has keys that no part of the schema allows",
    ),
    "another keyword": ({"dependentRequired": {"a": ["b"]}}, {"a": 1}, "$ does not satisfy dependentRequired"),
    "an identity and a version": (
        {
            "$id": "http://example.com/a",
            "$schema": "http://json-schema.org/draft-07/schema#",
            "$ref": "#/$defs/a",
            "type": "string",
            "$defs": {"a": {"prefixItems": [{"type": "null"}]}},
        },
        [1],
        "$[0] must be null, not a number",
    ),
}


@pytest.mark.parametrize(("schema", "answer", "expected"), ANSWERS.values(), ids=ANSWERS)
def test_an_answer_matches_the_schema_or_has_a_problem(
    schema: dict[str, Any], answer: object, expected: str | None
) -> None:
    assert problem(schema, json.dumps(answer)) == expected


SCHEMAS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "valid": ({"type": "object"}, {"problem": None}),
    "a wrong place": (
        {"properties": {"a": {"minLength": "1"}}},
        {"problem": "must be a whole number, not a string", "place": ["properties", "a", "minLength"]},
    ),
    "an unknown type": (
        {"type": "strin"},
        {
            "problem": "must be one of array, boolean, integer, null, number, object, string, or a list of them "
            "without repetitions",
            "place": ["type"],
        },
    ),
    "a wrong dependency": (
        {"dependencies": {"type": 5}},
        {"problem": "matches none of the schemas in anyOf", "place": ["dependencies", "type"]},
    ),
    "a pattern of another language": (
        {"pattern": "\\p{L}"},
        {"problem": "is not a regular expression that Python can use", "place": ["pattern"]},
    ),
    "a reference that is no address": (
        {"$defs": {"a": {"$anchor": "1"}}},
        {"problem": 'does not match the pattern "^[A-Za-z_][-A-Za-z0-9._]*$"', "place": ["$defs", "a", "$anchor"]},
    ),
    "groups inside each other": (
        {"pattern": "(" * 500 + ")" * 500},
        {"failed": "it needs too many steps inside each other"},
    ),
}


@pytest.mark.parametrize(("schema", "expected"), SCHEMAS.values(), ids=SCHEMAS)
def test_a_schema_is_checked_against_the_metaschema(schema: dict[str, Any], expected: dict[str, Any]) -> None:
    assert do_job({"schema": json.dumps(schema)}) == (expected, "")


FAILURES: dict[str, tuple[dict[str, Any], str]] = {
    # Schemas that ``limits.py`` or the metaschema refuse; the process must survive them too.
    "a reference to itself": ({"$ref": "#"}, "it needs too many steps inside each other"),
    "a reference to elsewhere": (
        {"$ref": "http://127.0.0.1:9/a.json"},
        "the check ended with _WrappedReferencingError",
    ),
}


@pytest.mark.parametrize(("schema", "reason"), FAILURES.values(), ids=FAILURES)
def test_a_schema_that_cannot_be_used_is_a_reply(schema: dict[str, Any], reason: str) -> None:
    assert do_job({"schema": json.dumps(schema), "answer": "{}"}) == ({"failed": reason}, "")
