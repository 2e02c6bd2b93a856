"""The grammar of a JSON Schema: what it allows is valid, and what is refused is named."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Mapping
from typing import Any

import jsonschema
import pytest

from gateway.backend.openai.request.gbnf import MAX_REPETITION, grammar_of
from gateway.core.errors import UnsupportedParameter
from tests.gbnf import Grammar
from tests.instances import valid_instance
from tests.random_schema import RandomSchema

SEEDS = range(240)


@pytest.mark.parametrize("first", SEEDS[::40])
def test_every_text_of_a_random_grammar_is_json_that_the_schema_accepts(first: int) -> None:
    for seed in range(first, first + 40):
        made = RandomSchema(seed)
        grammar, validator = Grammar(grammar_of(made.schema)), jsonschema.Draft202012Validator(made.schema)
        for _ in range(5):
            text = grammar.random_text(made.rng)
            problems = [error.message for error in validator.iter_errors(json.loads(text))]
            assert not problems, (seed, text)


@pytest.mark.parametrize("first", SEEDS[::40])
def test_a_random_grammar_accepts_the_usual_ways_to_write_a_value(first: int) -> None:
    for seed in range(first, first + 40):
        made = RandomSchema(seed)
        grammar = Grammar(grammar_of(made.schema))
        for _ in range(2):
            value = valid_instance(made.schema, made.rng)
            for written in (
                json.dumps(value, ensure_ascii=False),
                json.dumps(value, ensure_ascii=False, separators=(",", ":")),
                json.dumps(value, ensure_ascii=False, indent=1),
            ):
                assert grammar.accepts(written), (seed, written)


def text_of(schema: Mapping[str, Any], *texts: str) -> list[bool]:
    grammar = Grammar(grammar_of(schema))
    return [grammar.accepts(text) for text in texts]


STRINGS = {  # text: whether it is a JSON string of one character
    '"a"': True, '"字"': True, '"😀"': True, '"\x7f"': True, r'"\n"': True, r'"\/"': True, r'"\u00e4"': True,
    r'"\ud83d\ude00"': True, r'"\u0000"': True, '""': False, '"ab"': False, '"\n"': False, '"\x00"': False,
    r'"\x41"': False, '"\\"': False, r'"\ud83d"': False, r'"\ude00"': False, r'"\ud83d\u0041"': False, "'a'": False,
}  # fmt: skip


@pytest.mark.parametrize("text", STRINGS)
def test_a_string_is_json_and_an_escaped_pair_is_one_character(text: str) -> None:
    assert text_of({"type": "string", "minLength": 1, "maxLength": 1}, text) == [STRINGS[text]]


ALLOWED: dict[str, tuple[Any, tuple[str, ...], tuple[str, ...]]] = {  # (schema, texts, texts that are not allowed)
    "number": ({"type": "number"}, ("0", "-1", "2.5", "1e-9", "0.30000000000000004"), ("01", ".5", "1.", "+1", "NaN")),
    "integer": ({"type": "integer"}, ("0", "-12", "9999999999999999"), ("1.0", "1e2", "00", "")),
    "literals": ({"enum": [True, False, None]}, ("true", "false", "null"), ("True", "nul")),
    "enum of a type": ({"type": "string", "enum": ["a", 1, "b"]}, ('"a"', '"b"'), ("1",)),
    "integer constant": ({"type": "integer", "enum": [1, 2.5, True]}, ("1",), ("2.5", "true")),
    "constant object": ({"const": {"a": [1, "x"]}}, ('{"a":[1,"x"]}', '{ "a": [ 1, "x" ] }'), ('{"a":[1]}', "{}")),
    "list length": ({"type": "array", "items": {"type": "null"}, "minItems": 1, "maxItems": 2},
                    ("[null]", "[null, null]"), ("[]", "[null,null,null]", "[null,]")),
    "empty list": ({"type": "array", "maxItems": 0}, ("[]", "[ ]"), ("[1]",)),
    "any list": ({"type": "array"}, ("[]", '[1, "a", [{}]]'), ("{}", "[1")),
    "empty string": ({"type": "string", "maxLength": 0}, ('""',), ('"a"',)),
    "order": ({"properties": {"a": {}, "b": {}, "c": {}}, "required": ["b"]},
              ('{"b":1}', '{"a":1,"b":1}', '{"b":1,"c":1}', '{"a":1,"b":1,"c":1}'),
              ("{}", '{"a":1}', '{"b":1,"a":1}', '{"a":1,"c":1}', '{"b":1,}', '{,"b":1}', '{"b":1,"d":1}')),
    "all optional": ({"properties": {"a": {}, "b": {}}}, ("{}", '{"a":1}', '{"b":1}', '{"a":1,"b":1}'), ('{"c":1}',)),
    "no properties": ({"type": "object", "additionalProperties": False}, ("{}", "{ }"), ('{"a":1}',)),
    "map": ({"type": "object", "additionalProperties": {"type": "null"}}, ("{}", '{"a":null, "b":null}'), ('{"a":1}',)),
    "any object": ({"type": "object"}, ("{}", '{"a":{"b":[1]}}'), ("[]", '{"a"}')),
    "keyword of another type": ({"type": "null", "minLength": 3}, ("null",), ()),
    "only annotations": ({"title": "T", "$schema": "S", "$id": "I"}, ("1", "[]", '"a"'), ("", "a")),
    "recursive list": ({"type": "array", "items": {"$ref": "#"}}, ("[]", "[[],[[]]]"), ("[1]", "[[]")),
    "white space": ({"type": "array", "maxItems": 0}, ("[ ]", "[\n]", "[\n" + " " * 20 + "]"),
                    (" []", "[] ", "[  ]", "[\n\n]", "[\n" + " " * 41 + "]")),
}  # fmt: skip


@pytest.mark.parametrize("case", ALLOWED)
def test_a_grammar_allows_the_texts_of_its_schema(case: str) -> None:
    schema, texts, others = ALLOWED[case]
    assert all(text_of(schema, *texts)), texts
    assert not any(text_of(schema, *others)), others


def test_without_a_schema_any_object_is_allowed() -> None:
    grammar = Grammar(grammar_of(None))
    assert grammar.accepts('{"a": [1, {"b": null}], "c": "😀"}')
    assert not any(map(grammar.accepts, ("[]", "1", '{"a"', "{} {}", "")))
    rng = random.Random(7)
    assert all(type(json.loads(grammar.random_text(rng))) is dict for _ in range(50))


LOOP = {"$defs": {"a": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/b"}]}, "b": {"$ref": "#/$defs/a"}}}
REFUSED: dict[str, tuple[Any, str, str]] = {  # (schema, path below the schema, reason)
    "pattern": ({"properties": {"x": {"type": "string", "pattern": "a+"}}}, "properties.x.pattern", "not supported"),
    "minimum": ({"items": {"type": "integer", "minimum": 0}}, "items.minimum", "not supported"),
    "format": ({"type": "string", "format": "date"}, "format", "not supported"),
    "oneOf": ({"oneOf": [{"type": "null"}]}, "oneOf", "not supported"),
    "allOf in anyOf": ({"anyOf": [{}, {"allOf": [{}]}]}, "anyOf.1.allOf", "not supported"),
    "tuple": ({"type": "array", "prefixItems": [{}]}, "prefixItems", "not supported"),
    "a name with a line break": ({"properties": {"a\nb": {"not": {}}}}, r"properties.a\nb.not", "not supported"),
    "beside $ref": ({"properties": {"x": {"$ref": "#", "minItems": 1}}}, "properties.x.minItems", "beside $ref"),
    "beside anyOf": ({"anyOf": [{}], "type": "null"}, "type", "beside anyOf"),
    "beside enum": ({"enum": ["a"], "maxLength": 3}, "maxLength", "beside enum"),
    "$id inside": ({"items": {"$id": "x"}}, "items.$id", "not supported"),
    "false": ({"items": False}, "items", "must be an object"),
    "unknown type": ({"type": ["null", "date"]}, "type", "the types are object, array"),
    "empty anyOf": ({"anyOf": []}, "anyOf", "at least one entry"),
    "enum without a value of the type": ({"type": "null", "enum": [1]}, "enum", "no value has the type"),
    "remote reference": ({"$ref": "https://example.com/s.json"}, "$ref", "into the schema itself"),
    "missing reference": ({"items": {"$ref": "#/$defs/gone"}}, "items.$ref", "does not have"),
    "reference into a text": ({"title": "T", "items": {"$ref": "#/title/0"}}, "items.$ref", "does not have"),
    "reference beyond a list": ({"anyOf": [{}, {"$ref": "#/anyOf/" + "9" * 5000}]}, "anyOf.1.$ref", "does not have"),
    "inside a definition": (
        {"items": {"$ref": "#/$defs/a"}, "$defs": {"a": {"properties": {"x": {"not": {}}}}}},
        "$defs.a.properties.x.not", "not supported",
    ),
    "left recursion": ({"anyOf": [{"$ref": "#"}, {"type": "null"}]}, "anyOf.0.$ref", "refers to itself"),
    "left recursion over two": ({**LOOP, "properties": {"x": {"$ref": "#/$defs/b"}}}, "", "refers to itself"),
    "undeclared required": ({"properties": {"a": {}}, "required": ["b"]}, "required", "does not have"),
    "other properties": (
        {"properties": {"a": {}}, "additionalProperties": {"type": "null"}}, "additionalProperties", "only without",
    ),
    "long string": ({"type": "string", "maxLength": MAX_REPETITION + 1}, "maxLength", "from 0 to 1000"),
    "negative length": ({"type": "array", "minItems": -1}, "minItems", "from 0 to 1000"),
    "lengths in the wrong order": ({"type": "string", "minLength": 3, "maxLength": 2}, "maxLength", "below minLength"),
    "many lengths": (
        {"properties": {f"p{n}": {"type": "string", "maxLength": 1000} for n in range(21)}}, "properties.p20", "add up",
    ),
    "many schemas": ({"anyOf": [{"type": "null"}] * 1001}, "anyOf.999", "more than 1000 schemas"),
    "many constants": ({"const": [[0] * 10] * 100}, "const", "more than 1000 schemas and constants"),
    "required that is no name": ({"properties": {"a": {}}, "required": [["a"]]}, "required", "does not have"),
    "type that is no name": ({"type": [{}]}, "type", "the types are"),
    "a large grammar": ({"enum": ["x" * 1000] * 300}, "enum", "more than 262144 characters"),
    "deep": ({"items": {"items": {"items": {"items": {"items": {"items": {"items": {"items": {"items": {
        "not": {}}}}}}}}}}}, "….items.items.items.items.items.items.items.not", "not supported"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_a_grammar_cannot_express_is_refused_with_its_path(case: str) -> None:
    schema, below, reason = REFUSED[case]
    with pytest.raises(UnsupportedParameter) as caught:
        grammar_of(schema)
    path = f"response_format.json_schema.schema.{below}"
    assert (caught.value.param or "").startswith(path)
    assert caught.value.message.startswith(f"{caught.value.param} cannot be sent")
    assert reason in caught.value.message


TEXT = {"type": "string"}
LEAF = {"properties": {"v": {"type": "integer"}}, "required": ["v"]}


def recursive(*alternatives: Mapping[str, Any], **definitions: Any) -> dict[str, Any]:
    """The schema of a list of alternatives, in which ``#/$defs/one`` is one of them."""
    return {"items": {"$ref": "#/$defs/one"}, "$defs": {"one": {"anyOf": [*alternatives]}, **definitions}}


def node(name: str | None = None, **properties: Any) -> dict[str, Any]:
    """An object whose first property is a ``const``, and with a list of the alternatives in ``below``."""
    first = {} if name is None else {"kind": {"const": name}}
    below = {"below": {"type": "array", "items": {"$ref": "#/$defs/one"}}}
    every = {**first, **properties, **below}
    return {"type": "object", "properties": every, "required": list(every)}


ALIKE: dict[str, tuple[dict[str, Any], bool]] = {  # (schema, whether the engine can tell the alternatives apart)
    "another const": (recursive(node("a"), node("b"), LEAF, {"type": "null"}), True),
    "the same const": (recursive(node("a"), node("a"), LEAF), False),
    "another first property": (recursive(node(x={"type": "null"}), node(y={"type": "null"})), True),
    "another property behind a text": (
        recursive(node(n={}), {"properties": {"n": {}, "v": {}}, "required": ["n"]}), False,
    ),
    "another second property": (
        recursive(node(n=TEXT), {"properties": {"n": TEXT, "v": {}}, "required": ["n", "v"]}),
        True,
    ),
    "optional properties of other names": (
        recursive({"properties": {"a": {"$ref": "#/$defs/one"}}, "required": []}, LEAF), True,
    ),
    "the same optional property": (
        recursive({"properties": {"a": {"$ref": "#/$defs/one"}}}, {"properties": {"a": {}}}), False,
    ),
    "const behind a reference": (
        recursive(node(k={"$ref": "#/$defs/x"}), node(k={"$ref": "#/$defs/y"}), x={"const": 1}, y={"const": 2}), True,
    ),
    "two lists": (recursive({"type": "array", "items": {"$ref": "#/$defs/one"}}, {"type": "array"}), False),
    "a list and an object": (recursive({"type": "array", "items": {"$ref": "#/$defs/one"}}, {"type": "object"}), True),
    "any value and an object": (recursive(node("a"), {}), False),
    "two texts": (recursive(node("a"), {"type": "string"}, {"maxLength": 3}), True),
    "two lists, not recursive": ({"anyOf": [{"type": "array"}, {"type": "array", "maxItems": 3}]}, True),
    "many lists in lists": (
        {"anyOf": [{"items": {"anyOf": [{"type": "array", "items": {"type": "null"}}] * 9}}] * 9}, False,
    ),
    "a reference from many alternatives": (
        {"anyOf": [{"items": {"$ref": "#/$defs/x"}}] * 9, "$defs": {"x": {"anyOf": [{"type": "array"}] * 9}}}, False,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", ALIKE)
def test_alternatives_that_multiply_inside_each_other_are_refused(case: str) -> None:
    schema, told_apart = ALIKE[case]
    if told_apart:
        assert grammar_of(schema)
    else:
        with pytest.raises(UnsupportedParameter, match="too many alternatives begin alike"):
            grammar_of(schema)


def test_a_long_chain_of_alternatives_needs_no_deep_stack() -> None:
    names = [f"d{number}" for number in range(400)]
    definitions = {name: {"anyOf": [{"$ref": f"#/$defs/{after}"}]} for name, after in itertools.pairwise(names)}
    with pytest.raises(UnsupportedParameter, match="more than 5000 steps"):
        grammar_of({"$ref": "#/$defs/d0", "$defs": {**definitions, names[-1]: {"type": "null"}}})


def test_a_long_chain_of_references_needs_no_deep_stack() -> None:
    names = [f"d{number}" for number in range(990)]
    definitions = {name: {"$ref": f"#/$defs/{after}"} for name, after in itertools.pairwise(names)}
    schema = {"$ref": "#/$defs/d0", "$defs": {**definitions, names[-1]: {"type": "null"}}}
    assert grammar_of(schema).count("::=") > 990
