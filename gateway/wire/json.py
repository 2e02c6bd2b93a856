"""Is this body JSON we can trust? Bytes in, one object out, every oddity refused.

orjson refuses NaN, infinities, a BOM, UTF-16, invalid UTF-8, lone surrogates and nesting beyond
1024 levels by itself; the rules beyond that are ours (``specs/reliability.md`` rows A01–A09).
"""

from __future__ import annotations

from typing import Any

import orjson

from gateway.core.errors import InvalidBody, InvalidJson, InvalidUnicode, InvalidValue, JsonTooDeep
from gateway.wire.problems import plain

MAX_DEPTH = 64


def parse_object(body: bytes) -> dict[str, Any]:
    """The JSON object in ``body``; duplicate keys: the last one wins."""
    if not body.strip():
        raise InvalidJson("the request body is empty; send a JSON object with content-type application/json")
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise _explain(error, body) from None
    if not isinstance(value, dict):
        raise InvalidBody(f'the request body is a JSON {_kind(value)}; it must be an object such as {{"model": …}}')
    # Only a body with that many brackets can nest that deep; most requests skip the walk.
    if body.count(b"{") + body.count(b"[") > MAX_DEPTH and _deeper_than(value, MAX_DEPTH):
        raise JsonTooDeep(f"the request body nests deeper than {MAX_DEPTH} levels")
    return value


def refuse_lost_digits(value: object, param: str) -> None:
    """Integers beyond 64 bits arrive as rounded floats; passing those on would be a silent change."""
    if isinstance(value, float) and abs(value) >= 2.0**63:
        raise InvalidValue(f"{param} is a number that does not fit 64 bits", param=param)
    if isinstance(value, dict):
        for key, item in value.items():
            refuse_lost_digits(item, f"{param}.{plain(key)}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            refuse_lost_digits(item, f"{param}[{index}]")


def _explain(error: orjson.JSONDecodeError, body: bytes) -> Exception:
    said = str(error)
    if "surrogate" in said and "UTF-8" not in said:
        return InvalidUnicode("a string in the request body holds a lone surrogate; send whole characters")
    if "recursion" in said.lower() or "depth" in said.lower():
        return JsonTooDeep(f"the request body nests deeper than {MAX_DEPTH} levels")
    if body[:3] == b"\xef\xbb\xbf":
        return InvalidJson("the request body starts with a byte order mark; send plain UTF-8")
    return InvalidJson(f"the request body is not valid JSON (line {error.lineno}, column {error.colno})")


def _kind(value: object) -> str:
    return {list: "array", str: "string", bool: "boolean", type(None): "null"}.get(type(value), "number")


def _deeper_than(value: object, limit: int) -> bool:
    level: list[object] = [value]
    for _ in range(limit):
        below: list[object] = []
        for item in level:
            if isinstance(item, dict):
                below.extend(item.values())
            elif isinstance(item, list):
                below.extend(item)
        if not below:
            return False
        level = below
    return any(isinstance(item, dict | list) for item in level)
