"""Schemas of a client that wants to be expensive, to reach other servers, or to confuse the check."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

Result = Literal["refused", "invalid", "valid answer", "wrong answer", "uncheckable answer"]
"""Refused by the limits; refused by the metaschema; or the result for the answer."""

SERVER = "http://SERVER"
"""Stands for the address of a server that counts its connections."""


@dataclass(frozen=True)
class Hostile:
    """A schema, and an answer for it."""

    schema: Any
    result: Result
    says: str = ""
    """A part of the message."""
    answer: str = "1"


def nested(levels: int, inner: Any, *keys: str | int) -> Any:
    """Return a schema around itself, many times."""
    for _ in range(levels):
        for key in reversed(keys):
            inner = [inner] if isinstance(key, int) else {key: inner}
    return inner


def doubling(levels: int, keyword: str = "allOf") -> Any:
    """Return a schema of which each level refers twice to the next one."""
    levels_of = {f"d{n}": {keyword: [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(levels)}
    return {"$ref": "#/$defs/d0", "$defs": {**levels_of, f"d{levels}": {"type": "integer"}}}


TREE = {
    "$defs": {"tree": {"allOf": [{"properties": {"a": {"$ref": "#/$defs/tree"}}}] * 2}},
    "$ref": "#/$defs/tree",
}
OUTSIDE = "refers to another document, which the gateway does not load"
NO_TARGET = "which is not a schema in this document"
ITSELF = "refers to itself for the same value"
REPEATED = "more than 5000 schemas apply to one value"
NO_ID = "$id is not supported"
TOO_LARGE = "at most 65536 are allowed"
TOO_MANY = "has more than 2000 schemas inside"
TOO_LONG = "it takes longer than"

HOSTILE: dict[str, Hostile] = {
    # References that double, or that do not end.
    "14 levels of allOf with two references": Hostile(doubling(14), "refused", REPEATED),
    "14 levels of anyOf with two references": Hostile(doubling(14, "anyOf"), "refused", REPEATED),
    "14 levels of oneOf with two references": Hostile(doubling(14, "oneOf"), "refused", REPEATED),
    "500 levels of allOf with two references": Hostile(doubling(450), "refused", REPEATED),
    "8 levels of allOf with two references": Hostile(doubling(8), "valid answer"),
    "a reference to itself": Hostile({"$ref": "#"}, "refused", ITSELF),
    "a definition that is itself": Hostile(
        {"properties": {"a": {"$ref": "#/properties/a"}}}, "refused", f"schema.properties.a {ITSELF}"
    ),
    "two definitions that are each other": Hostile(
        {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}, "refused", ITSELF
    ),
    "itself inside not": Hostile({"not": {"$ref": "#"}}, "refused", ITSELF),
    "itself inside if": Hostile({"if": {"$ref": "#"}}, "refused", ITSELF),
    "itself inside dependentSchemas": Hostile({"dependentSchemas": {"a": {"$ref": "#"}}}, "refused", ITSELF),
    "itself by a dynamic reference": Hostile(
        {"$dynamicAnchor": "node", "allOf": [{"$dynamicRef": "#node"}]}, "refused", ITSELF
    ),
    "itself by an anchor": Hostile({"$anchor": "node", "anyOf": [True, {"$ref": "#node"}]}, "refused", ITSELF),
    "a row of 500 references": Hostile(
        {"$ref": "#/$defs/0", "$defs": {str(n): {"$ref": f"#/$defs/{n + 1}"} for n in range(500)} | {"500": True}},
        "refused",
        "more than 100 schemas for one value apply each other in a row",
    ),
    "1001 references": Hostile(
        {"prefixItems": [{"$ref": "#/$defs/a"}] * 1001, "$defs": {"a": True}},
        "refused",
        "has 1001 references",
    ),
    "a list that is itself": Hostile({"type": "array", "items": {"$ref": "#"}}, "valid answer", answer="[[[[]]]]"),
    "two references in each node of a deep answer": Hostile(
        TREE, "uncheckable answer", TOO_LONG, '{"a":' * 40 + "1" + "}" * 40
    ),
    # References to elsewhere.
    "a reference to a server": Hostile({"$ref": f"{SERVER}/a.json"}, "refused", OUTSIDE),
    "a reference to a server in a property": Hostile(
        {"properties": {"a": {"$ref": f"{SERVER}/a.json#/x"}}}, "refused", f"schema.properties.a.$ref {OUTSIDE}"
    ),
    "a dynamic reference to a server": Hostile({"$dynamicRef": f"{SERVER}/a.json#node"}, "refused", OUTSIDE),
    "a reference to a file": Hostile({"$ref": "file:///etc/passwd"}, "refused", OUTSIDE),
    "a reference to a relative address": Hostile({"$id": SERVER, "$ref": "other.json"}, "refused", OUTSIDE),
    "a reference without a scheme": Hostile({"$ref": SERVER.removeprefix("http:")}, "refused", OUTSIDE),
    "a reference to the metaschema": Hostile(
        {"$ref": "https://json-schema.org/draft/2020-12/schema"}, "refused", OUTSIDE
    ),
    "a reference to data": Hostile({"$ref": "data:application/json,{}"}, "refused", OUTSIDE),
    "an empty reference": Hostile({"$ref": ""}, "refused", OUTSIDE),
    "a reference that is a number": Hostile({"$ref": 5}, "refused", OUTSIDE),
    "a reference to a server in a place that is no schema": Hostile(
        {"x": {"$ref": f"{SERVER}/a.json"}, "$ref": "#/x"}, "refused", NO_TARGET
    ),
    "a server as the version": Hostile(
        {"$schema": f"{SERVER}/schema"}, "refused", "$schema is not a supported version"
    ),
    "a server as the identity": Hostile({"$id": f"{SERVER}/a.json", "type": "integer"}, "valid answer"),
    "a server as the identity of a part": Hostile(
        {"properties": {"a": {"$id": SERVER, "$ref": "#/x"}}}, "refused", f"properties.a.{NO_ID}"
    ),
    "an identity that moves a reference": Hostile(
        {"$defs": {"a": {"$id": "b", "$defs": {"c": False}, "$ref": "#/$defs/c"}, "c": True}}, "refused", NO_ID
    ),
    "an identity that is a number": Hostile({"$id": 3}, "refused", NO_ID),
    "a reference to an older version inside": Hostile(
        {"properties": {"a": {"$schema": "http://json-schema.org/draft-04/schema#"}}},
        "refused",
        "schema.properties.a.$schema is only allowed in the whole schema",
    ),
    "a recursive reference of draft 2019-09": Hostile(
        {"$recursiveRef": "#"}, "refused", "$recursiveRef is not supported"
    ),
    "a reference without a target": Hostile({"$ref": "#/$defs/a"}, "refused", NO_TARGET),
    "a reference to a keyword": Hostile({"$ref": "#/required", "required": ["a"]}, "refused", NO_TARGET),
    "a reference to an index of 5000 digits": Hostile(
        {"allOf": [{"$ref": f"#/allOf/{'9' * 5000}"}]}, "refused", NO_TARGET
    ),
    "a reference to an unknown anchor": Hostile({"$ref": "#node"}, "refused", NO_TARGET),
    "an anchor that exists twice": Hostile(
        {"$ref": "#a", "$defs": {"b": {"$anchor": "a"}, "c": {"$anchor": "a"}}}, "refused", "has the same anchor"
    ),
    "a percent sign in a reference": Hostile(
        {"$ref": "#/%24defs/a%2Fb", "$defs": {"a": {"b": True}}}, "refused", NO_TARGET
    ),
    "a reference of 30000 parts": Hostile({"$ref": "#" + "/x" * 30_000}, "refused", NO_TARGET),
    "a reference of 20000 escapes": Hostile({"$ref": "#/" + "%25" * 20_000}, "refused", NO_TARGET),
    "a wrong reference behind long names": Hostile(
        nested(30, {"$ref": "a"}, "properties", "n" * 1000), "refused", "schema…."
    ),
    # Patterns.
    "a pattern that backtracks": Hostile(
        {"pattern": "(a+)+$"}, "uncheckable answer", TOO_LONG, json.dumps("a" * 40 + "!")
    ),
    "a pattern of a name that backtracks": Hostile(
        {"patternProperties": {"^(a|a)*$": {}}}, "uncheckable answer", TOO_LONG, json.dumps({"a" * 40 + "!": 1})
    ),
    "patterns of names that backtrack together": Hostile(
        {"patternProperties": {"(x*)*y": {}, "(x*)*z": {}}, "additionalProperties": False},
        "uncheckable answer",
        TOO_LONG,
        json.dumps({"x" * 40: 1}),
    ),
    "a pattern of nested repetitions": Hostile(
        {"pattern": "((((a{0,99}){0,99}){0,99}){0,99})$"}, "uncheckable answer", TOO_LONG, json.dumps("a" * 40 + "!")
    ),
    "a pattern of 500 groups inside each other": Hostile(
        {"pattern": "(" * 500 + ")" * 500}, "invalid", "needs too many steps inside each other"
    ),
    "a pattern that is open": Hostile({"pattern": "(a"}, "invalid", "pattern is not a regular expression"),
    "30000 alternatives": Hostile({"pattern": "a|" * 30_000}, "valid answer"),
    # Sizes.
    "an enum of 20000 numbers": Hostile({"enum": [*range(20_000)]}, "refused", TOO_LARGE),
    "an enum of 8000 numbers": Hostile({"enum": [*range(1, 8000)]}, "valid answer"),
    "10000 required names": Hostile({"required": [f"n{n}" for n in range(10_000)]}, "refused", TOO_LARGE),
    "4000 required names": Hostile({"required": [f"n{n}" for n in range(4000)]}, "wrong answer", 'no key "n0"', "{}"),
    "20000 schemas": Hostile({"anyOf": [{}] * 20_000}, "refused", TOO_MANY),
    "20000 booleans": Hostile({"prefixItems": [True] * 12_000}, "refused", TOO_MANY),
    "5000 properties": Hostile({"properties": {f"p{n}": {} for n in range(5000)}}, "refused", TOO_MANY),
    "a megabyte of description": Hostile({"description": "x" * 1_000_000}, "refused", TOO_LARGE),
    "400 levels of lists": Hostile(nested(200, {}, "x", 0), "refused", "nested deeper than 64 levels"),
    "400 levels of properties": Hostile(nested(200, {}, "properties", "a"), "refused", "nested deeper"),
    "31 levels of properties": Hostile(nested(31, {}, "properties", "a"), "valid answer"),
    "31 levels of not": Hostile(nested(61, {"type": "integer"}, "not"), "wrong answer", "must not match"),
    "30 levels of unevaluatedProperties": Hostile(
        nested(30, {}, "unevaluatedProperties"), "valid answer", answer='{"a":' * 30 + "1" + "}" * 30
    ),
    "a chain of unevaluatedProperties": Hostile(
        nested(20, {"unevaluatedProperties": False}, "allOf", 0) | {"unevaluatedProperties": False},
        "wrong answer",
        "$ ",
        '{"a": 1}',
    ),
    # Numbers.
    "a million characters": Hostile({"minLength": 10**6}, "wrong answer", "at least 1000000 characters", '"a"'),
    "a maximum of a million": Hostile({"maxLength": 10**6, "maxItems": 10**6}, "valid answer", answer='"a"'),
    "a multiple of 1e-300": Hostile({"multipleOf": 1e-300}, "wrong answer", "multiple of 1e-300", "1e300"),
    "a multiple of 5e-324": Hostile({"multipleOf": 5e-324}, "valid answer", answer="1.7e308"),
    "a multiple of 0": Hostile({"multipleOf": 0}, "invalid", "multipleOf must be greater than 0"),
    "an integer of 5000 digits": Hostile({"maximum": 10**4000}, "refused", "a value that JSON does not allow"),
    "an integer of 64 bits": Hostile({"maximum": 2**64 - 1}, "valid answer"),
    "an answer of 5000 digits": Hostile({"multipleOf": 7}, "wrong answer", "more than 1000 digits", "9" * 5000),
    "infinity": Hostile({"maximum": float("inf")}, "refused", "a value that JSON does not allow"),
    "NaN": Hostile({"const": float("nan")}, "refused", "a value that JSON does not allow"),
    "a negative length": Hostile({"minLength": -1}, "invalid", "minLength must be at least 0"),
    # Values.
    "equal items in a long list": Hostile(
        {"uniqueItems": True}, "uncheckable answer", TOO_LONG, json.dumps([{"a": n} for n in range(9000)])
    ),
    "equal items in a long list of numbers": Hostile(
        {"uniqueItems": True}, "valid answer", answer=json.dumps([*range(20_000)])
    ),
    "a long union for each item": Hostile(
        {"items": {"anyOf": [{"const": {"n": n}} for n in range(1900)]}},
        "uncheckable answer",
        TOO_LONG,
        json.dumps([{"n": 1899}] * 1000),
    ),
    "half of a surrogate pair in a key": Hostile({"properties": {"\ud800": {}}}, "refused", "half of a surrogate pair"),
    "half of a surrogate pair in a value": Hostile({"const": "\udfff"}, "refused", "half of a surrogate pair"),
    "null bytes": Hostile(
        {"properties": {"a\0b": {"type": "string"}}, "pattern": "\0"},
        "wrong answer",
        "$.a\\x00b must be a string",
        '{"a\\u0000b": 1}',
    ),
    "the key of a class": Hostile({"properties": {"__class__": {"type": "string"}}}, "valid answer", answer="{}"),
    "keys of JSON Schema as names": Hostile(
        {"properties": {"$ref": {"type": "integer"}, "$id": {}, "$schema": {}}, "const": {"$ref": 1, "$id": 2}},
        "valid answer",
        answer='{"$ref": 1, "$id": 2}',
    ),
    "references in values": Hostile(
        {"enum": [{"$ref": f"{SERVER}/a"}], "default": {"$ref": f"{SERVER}/b"}, "examples": [{"$id": SERVER}]},
        "valid answer",
        answer=json.dumps({"$ref": f"{SERVER}/a"}),
    ),
    "booleans as parts": Hostile(
        {"properties": {"a": True, "b": False}},
        "wrong answer",
        "$ has a part that the schema does not allow",
        '{"b": 1}',
    ),
    "a list of items of an older draft": Hostile({"items": [{}]}, "invalid", "schema.items must be an object"),
    "a type that does not exist": Hostile({"type": "strin"}, "invalid", "type must be one of array, boolean"),
    "a type inside a reference that does not exist": Hostile(
        {"$defs": {"a": {"type": 7}}, "$ref": "#/$defs/a"}, "invalid", "schema.$defs.a.type must be one of"
    ),
    "keywords of a wrong type": Hostile(
        {"properties": [], "allOf": {}, "$defs": 3, "required": "a", "enum": 1}, "invalid", "must be"
    ),
    "a very deep answer": Hostile({}, "wrong answer", "nested deeper than 64 levels", "[" * 100_000),
    "an answer of 40 levels": Hostile({"items": {"$ref": "#"}}, "valid answer", answer="[" * 40 + "]" * 40),
}
