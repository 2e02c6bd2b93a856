"""Is this body JSON we can trust? Bytes in, one object out, every oddity refused.

orjson refuses NaN, infinities, a BOM, UTF-16, invalid UTF-8, lone surrogates and nesting beyond
1024 levels by itself; the rules beyond that are ours (``docs/spec/reliability.md`` rows A01–A09).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import orjson

from gateway.core.errors import (
    ContextLengthExceeded,
    InvalidBody,
    InvalidJson,
    InvalidUnicode,
    InvalidValue,
    JsonTooDeep,
)
from gateway.core.json_depth import MAX_DEPTH, deeper_than
from gateway.wire.error_object import plain

LONG = 4096
"""Bytes of a body whose brackets are not worth counting."""
MAX_NODES = 2**16
"""Objects, lists and strings of a body, keys included. So many take some 50 ms to read, check and write, while every
other call waits; the largest conversations have some ten thousand."""
MAX_FIELDS = 512
"""Fields of a request; OpenAI's API and all engines together have some two hundred."""
MAX_ITEMS = 2**20
"""Commas between items: lists of numbers are quickly read, and a prompt of token ids has as many as it has tokens."""
TOO_LARGE = 2.0**63
EXACT = frozenset({str, int, bool, type(None)})
"""Types whose values lose no digits."""


def parse_object(body: bytes) -> dict[str, Any]:
    """The JSON object in ``body``; duplicate keys: the last one wins."""
    if len(body) > MAX_NODES:
        _refuse_many(body)
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise _explain(error, body) from None
    if not isinstance(value, dict):
        raise InvalidBody(f'the request body is a JSON {_kind(value)}; it must be an object such as {{"model": …}}')
    if len(value) > MAX_FIELDS:
        raise InvalidBody(f"the request has {len(value)} fields; it may have at most {MAX_FIELDS}")
    # Only a body with that many brackets can nest that deep. In one of some length, counting costs more than the walk;
    # in a very long one it is the other way round again.
    long = LONG < len(body) <= MAX_NODES or body.count(b"{") + body.count(b"[") > MAX_DEPTH
    if long and deeper_than(value, MAX_DEPTH):
        raise JsonTooDeep(f"the request body nests deeper than {MAX_DEPTH} levels")
    return value


def _refuse_many(body: bytes) -> None:
    """Raise for too many nodes or items, which are counted without being made.

    ``ContextLengthExceeded`` for items alone, ``JsonTooDeep`` where the nodes are nothing but depth, else
    ``InvalidBody``.
    """
    if _nodes(body) <= MAX_NODES and body.count(b",") <= MAX_ITEMS:
        return
    bare = body.replace(b"\\\\", b"").replace(b'\\"', b"")  # from here on each quote begins or ends a string
    outside = b'""'.join(bare.split(b'"')[::2]) if bare.count(b'"') <= 2 * MAX_NODES else bare
    if _nodes(outside) <= MAX_NODES:
        if outside.count(b",") > MAX_ITEMS:
            raise ContextLengthExceeded(f"the request body holds more than {MAX_ITEMS} items, such as token ids")
        return
    try:
        orjson.loads(body[:MAX_NODES])  # cannot be whole; tells a body of nothing but depth
    except orjson.JSONDecodeError as error:
        if _says_too_deep(error):
            raise JsonTooDeep(f"the request body nests deeper than {MAX_DEPTH} levels") from None
    raise InvalidBody(f"the request body holds more than {MAX_NODES} objects, lists and strings; send fewer")


def _nodes(text: bytes) -> int:
    """The opening brackets, and half of the quotes."""
    return text.count(b"{") + text.count(b"[") + text.count(b'"') // 2


def refuse_lost_digits(value: object, param: str) -> None:
    """Integers beyond 64 bits arrive as rounded floats; passing those on would be a silent change."""
    if _lost((value,)):
        _name_lost(value, param)


def _lost(values: Collection[object]) -> bool:
    """Is such a number anywhere in there? Names are made only if there is."""
    if EXACT.issuperset(map(type, values)):
        return False
    for value in values:
        kind = type(value)
        if kind is str:
            continue
        if kind is float:
            if abs(value) >= TOO_LARGE:  # type: ignore[arg-type]
                return True
        elif isinstance(value, dict):
            if _lost(value.values()):
                return True
        elif isinstance(value, list) and _lost(value):
            return True
    return False


def _name_lost(value: object, param: str) -> None:
    if isinstance(value, float) and abs(value) >= TOO_LARGE:
        raise InvalidValue(f"{param} is a number that does not fit 64 bits", param=param)
    if isinstance(value, dict):
        for key, item in value.items():
            _name_lost(item, f"{param}.{plain(key)}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _name_lost(item, f"{param}[{index}]")


def _explain(error: orjson.JSONDecodeError, body: bytes) -> Exception:
    if not body or body.isspace():
        return InvalidJson("the request body is empty; send a JSON object with content-type application/json")
    said = str(error)
    if "surrogate" in said and "UTF-8" not in said:
        return InvalidUnicode("a string in the request body holds a lone surrogate; send whole characters")
    if _says_too_deep(error):
        return JsonTooDeep(f"the request body nests deeper than {MAX_DEPTH} levels")
    if body[:3] == b"\xef\xbb\xbf":
        return InvalidJson("the request body starts with a byte order mark; send plain UTF-8")
    return InvalidJson(f"the request body is not valid JSON (line {error.lineno}, column {error.colno})")


def _says_too_deep(error: orjson.JSONDecodeError) -> bool:
    said = str(error).lower()
    return "recursion" in said or "depth" in said


def _kind(value: object) -> str:
    return {list: "array", str: "string", bool: "boolean", type(None): "null"}.get(type(value), "number")
