"""Strict parsing of JSON bodies; values as JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.core.errors import (
    ContextLengthExceeded,
    InvalidBody,
    InvalidJson,
    InvalidUnicode,
    InvalidValue,
    JsonTooDeep,
    RequestError,
)
from gateway.wire.json import MAX_ITEMS, MAX_NODES, dump_json, parse_object, refuse_lost_digits
from gateway.wire.stored_events import fast_stored_json
from metatemplate.values.events import Delta, TokenLogprob
from metatemplate.values.json_values import MAX_DEPTH

REFUSED: dict[str, tuple[bytes, type[RequestError], str]] = {
    "nothing": (b"", InvalidJson, "is empty"),
    "blanks": (b" \r\n\t", InvalidJson, "is empty"),
    "an open brace": (b"{", InvalidJson, "line 1, column 2"),
    "the second line": (b'{"a":\n x}', InvalidJson, "line 2, column 2"),
    "a comma too many": (b'{"a":1,}', InvalidJson, "(line 1, column 7: trailing comma is not allowed)"),
    "a comment": (b'{"a":1} // hi', InvalidJson, "line 1"),
    "single quotes": (b"{'a':1}", InvalidJson, "; write names and texts in double quotes"),
    "a text in single quotes": (b"{\"a\":'\xc3\xa4'}", InvalidJson, "; write names and texts in double quotes"),
    "NaN": (b'{"a":NaN}', InvalidJson, "line 1"),
    "minus infinity": (b'{"a":-Infinity}', InvalidJson, "line 1"),
    "1e999": (b'{"a":1e999}', InvalidJson, "line 1"),
    "a control character": (b'{"a":"\n"}', InvalidJson, "line 1"),
    "a byte order mark": (b"\xef\xbb\xbf{}", InvalidJson, "byte order mark"),
    "UTF-16": ('{"a":1}'.encode("utf-16"), InvalidJson, "not valid JSON"),
    "half a character": (b'{"a":"\xc3"}', InvalidJson, "not valid JSON"),
    "a lone surrogate": (b'{"a":"\\ud800"}', InvalidUnicode, "lone surrogate"),
    "surrogates the wrong way round": (b'{"a":"\\udc00\\ud800"}', InvalidUnicode, "lone surrogate"),
    "too deep for us": (b'{"a":' + b"[" * MAX_DEPTH + b"]" * MAX_DEPTH + b"}", JsonTooDeep, "64 levels"),
    "too deep in one of many messages": (
        b'{"x":[' + b"{}," * 200 + b"[" * (MAX_DEPTH - 1) + b"]" * (MAX_DEPTH - 1) + b"]}",
        JsonTooDeep,
        "64 levels",
    ),
    "too deep for the parser": (b"[" * 5000 + b"]" * 5000, JsonTooDeep, "64 levels"),
    "too deep, and long": (b'{"x":' + b"[" * 200_000, JsonTooDeep, "64 levels"),
    "too deep, beside a long text": (
        b'{"a":"' + b"[" * MAX_NODES + b'","b":' + b"[" * MAX_DEPTH + b"]" * MAX_DEPTH + b"}",
        JsonTooDeep,
        "64 levels",
    ),
    "too many lists, beside a long text": (
        b'{"a":"' + b"[" * MAX_NODES + b'","b":[' + b"[]," * MAX_NODES + b"0]}",
        InvalidBody,
        "65536 objects",
    ),
    "a text without an end": (b'{"a":"' + b"[" * MAX_NODES, InvalidJson, "line 1"),
    "a quote that begins no text": (b'{"a":\\"' + b"0" * MAX_NODES + b'"}', InvalidJson, "line 1"),
    "too many lists": (b'{"x":[' + b"[]," * MAX_NODES + b"0]}", InvalidBody, "65536 objects"),
    "too many objects": (b'{"x":[' + b"{}," * MAX_NODES + b"0]}", InvalidBody, "65536 objects"),
    "too many strings": (b'{"x":[' + b'"",' * (MAX_NODES + 1) + b"0]}", InvalidBody, "65536 objects"),
    "too many keys": (b"{" + b",".join(b'"%x":1' % i for i in range(MAX_NODES + 1)) + b"}", InvalidBody, "65536"),
    "too many, behind escaped quotes": (
        b'{"\\\\":"\\"","x":[' + b"[]," * MAX_NODES + b"0]}",
        InvalidBody,
        "65536 objects",
    ),
    "too many fields": (b"{" + b",".join(b'"%x":1' % i for i in range(513)) + b"}", InvalidBody, "at most 512"),
    "too many decimal numbers": (b'{"x":[' + b"1.5," * (MAX_NODES + 1) + b"0]}", InvalidBody, "65536 decimal numbers"),
    "too many exponents": (b'{"x":[' + b"1E5," * (MAX_NODES + 1) + b"0]}", InvalidBody, "65536 decimal numbers"),
    "too many numbers": (b'{"x":[' + b"1," * MAX_ITEMS + b"0,0]}", ContextLengthExceeded, "1048576 values"),
    "a list": (b"[]", InvalidBody, "is a JSON array"),
    "a string": (b'"a"', InvalidBody, "is a JSON string"),
    "a boolean": (b"false", InvalidBody, "is a JSON boolean"),
    "null": (b"null", InvalidBody, "is a JSON null"),
    "an integer": (b"7", InvalidBody, "is a JSON number"),
    "a fraction": (b"7.5", InvalidBody, "is a JSON number"),
}


@pytest.mark.parametrize(("body", "error", "said"), REFUSED.values(), ids=REFUSED)
def test_an_invalid_body_is_refused(body: bytes, error: type[RequestError], said: str) -> None:
    with pytest.raises(error) as raised:
        parse_object(body)
    assert type(raised.value) is error
    assert said in raised.value.message


READ: dict[str, tuple[bytes, dict[str, Any]]] = {
    "an empty object": (b"{}", {}),
    "blanks around": (b" {} \n", {}),
    "a doubled key": (b'{"a":1,"a":2}', {"a": 2}),
    "a pair of surrogates": (b'{"a":"\\ud83d\\ude00"}', {"a": "\U0001f600"}),
    "NUL": (b'{"a":"\\u0000"}', {"a": "\0"}),
    "many neighbours": (b'{"a":[' + b",".join([b"[]"] * 500) + b"]}", {"a": [[] for _ in range(500)]}),
    "as many lists as may be": (
        b'{"":[' + b",".join([b"[]"] * (MAX_NODES - 3)) + b"]}",
        {"": [[] for _ in range(MAX_NODES - 3)]},
    ),
    "a long text of brackets and commas": (b'{"a":"' + b'[{,\\"' * 300_000 + b'"}', {"a": '[{,"' * 300_000}),
    "a long text of decimal numbers": (b'{"a":"' + b"1.5," * 300_000 + b'"}', {"a": "1.5," * 300_000}),
    "many booleans": (b'{"a":[' + b"true,false," * 100_000 + b"null]}", {"a": [True, False] * 100_000 + [None]}),
    "texts that end in a backslash around a quote": (
        b'{"a":"\\\\","b":"\\",[","c":"' + b"[" * MAX_NODES + b'"}',
        {"a": "\\", "b": '",[', "c": "[" * MAX_NODES},
    ),
    "a long text after many short ones": (
        b'{"a":[' + b'"[",' * 2_000 + b'"' + b"[" * MAX_NODES + b'"]}',
        {"a": ["["] * 2_000 + ["[" * MAX_NODES]},
    ),
    "a long text that ends in a backslash": (b'{"a":"' + b"[" * 200_000 + b'\\\\"}', {"a": "[" * 200_000 + "\\"}),
    "brackets in a string": (b'{"a":"' + b"[" * 500 + b'"}', {"a": "[" * 500}),
}


@pytest.mark.parametrize(("body", "value"), READ.values(), ids=READ)
def test_an_object_is_read(body: bytes, value: dict[str, Any]) -> None:
    assert parse_object(body) == value


def test_64_levels_are_accepted() -> None:
    value: Any = parse_object(b'{"a":' * MAX_DEPTH + b"1" + b"}" * MAX_DEPTH)
    for _ in range(MAX_DEPTH):
        value = value["a"]
    assert value == 1


LOST: dict[str, tuple[Any, str]] = {
    "itself": (2.0**63, "x"),
    "negative": (-1e20, "x"),
    "in an object": ({"a": {"b": 1e20}}, "x.a.b"),
    "in a list": ([0, [1e20]], "x[1][0]"),
    "under a strange key": ({"a b\n": 1e20}, "x.a?b?"),
    "under a long key": ({"k" * 500: 1e20}, "x." + "k" * 64),
}


@pytest.mark.parametrize(("value", "param"), LOST.values(), ids=LOST)
def test_a_number_that_lost_digits_is_named(value: Any, param: str) -> None:
    with pytest.raises(InvalidValue) as raised:
        refuse_lost_digits(value, "x")
    assert raised.value.param == param


@pytest.mark.parametrize("value", [2**63, 1e18, 0.1, -5, "1e20", None, True, {"a": [1, {"b": "c"}]}])
def test_other_values_are_accepted(value: Any) -> None:
    refuse_lost_digits(value, "x")


WRITTEN: dict[str, Any] = {
    "ASCII": "a\n\x7f",
    "other signs": "你好 🎉",
    "a lone surrogate": "\ud83c",
    "a large integer": 2**70,
    "numbers": [0.1, 1e-7, 1e300, 2**63, -(2**63)],
    "deep": [[[[{"a": {}}]]]],
    "an event": [(0.1, "Delta", Delta(1, "你", (TokenLogprob("你", -0.5),), {"tool_calls": [{"id": "1"}]}))],
    "an empty tuple": (),
}


@pytest.mark.parametrize("value", WRITTEN.values(), ids=WRITTEN)
def test_fast_json_has_the_same_value(value: Any) -> None:
    general = dump_json(value)
    assert general.isascii()
    assert json.loads(fast_stored_json(value)) == json.loads(general)
