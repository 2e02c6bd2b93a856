"""Parses request bodies, and refuses unsafe JSON; writes any value as JSON.

orjson itself refuses NaN, infinities, a BOM, UTF-16, invalid UTF-8, lone surrogates and nesting beyond 1024 levels; the
further rules are in ``docs/spec/reliability.md`` (rows A01–A09).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from json import JSONEncoder
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
from metatemplate.values.json_values import CONTAINERS, MAX_DEPTH, count_brackets, deeper_than, structure
from metatemplate.values.words import plain

MAX_NODES = 2**16
"""Maximum objects, lists and strings in a body, including keys, and maximum decimal numbers. Such a body takes about
50 ms to read, check and write, and all other calls wait during this time. The largest conversations have about ten
thousand."""
MAX_FIELDS = 512
"""Maximum fields of a request. OpenAI's API and all engines together have about two hundred fields."""
MAX_ITEMS = 2**20
"""Maximum commas between items. The limit is high for long lists of token ids, because integers are parsed fast."""
MAX_EMPTIED = 64
"""The brackets and commas in the strings of a long body are not counted if it has at most this many strings."""
FIRST_INEXACT = 2.0**63
"""A float that is at least this large may be an integer that orjson has rounded."""
EXACT = frozenset({str, int, bool, type(None)})
"""Types whose values orjson reads without losing digits."""


def parse_object(body: bytes) -> dict[str, Any]:
    """Return the JSON object in ``body``. If a key occurs twice, the last value is used. Raises ``RequestError``."""
    if len(body) <= MAX_NODES:
        brackets = count_brackets(body)
    else:
        bare = _with_empty_strings(body)
        marks = structure(bare)
        _check_size(bare, marks)
        brackets = count_brackets(marks)
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise _explain(error, body) from None
    if not isinstance(value, dict):
        kind = {list: "array", str: "string", bool: "boolean", type(None): "null"}.get(type(value), "number")
        raise InvalidBody(f'the request body is a JSON {kind}; it must be an object such as {{"model": …}}')
    if len(value) > MAX_FIELDS:
        raise InvalidBody(f"the request has {len(value)} fields; a request may have at most {MAX_FIELDS} fields")
    if brackets > MAX_DEPTH and brackets - _siblings(value) > MAX_DEPTH and deeper_than(value, MAX_DEPTH):
        raise _too_deep()
    return value


def _with_empty_strings(body: bytes) -> bytes:
    """Return a body with an empty string in place of each string. A body with many strings keeps them.

    A search for quotes is ten times as fast as counting brackets and commas in the strings.
    """
    # Without escapes, each quote begins or ends a string. A search for one character is fast.
    body = body.replace(b"\\\\", b"").replace(b'\\"', b"") if ord("\\") in body else body
    quotes = [-1]
    while (place := body.find(b'"', quotes[-1] + 1)) >= 0:
        if len(quotes) > 2 * MAX_EMPTIED:
            return body
        quotes.append(place)
    ends = [*quotes[1::2], len(body)]
    return b'""'.join([body[start + 1 : end] for start, end in zip(quotes[::2], ends, strict=False)])


def _siblings(fields: dict[str, Any]) -> int:
    """Return by how much the depth of a body is smaller than its number of brackets, at least.

    Only one item of a list can contain the deepest value, so a list of messages makes a body deeper by one message.
    """
    lists = [value for value in fields.values() if type(value) is list and value]
    return sum([len(items) - 1 for items in lists if CONTAINERS.issuperset(map(type, items))])


def _check_size(body: bytes, marks: bytes) -> None:
    """Raise ``RequestError`` if a body has too many nodes, items or decimal numbers. ``marks``: its ``structure``.

    All are counted before parsing. Characters inside strings are not counted.
    """
    if count_brackets(marks) + marks.count(b'"') // 2 <= MAX_NODES and marks.count(b",") <= MAX_NODES:
        return
    bare = body.replace(b"\\\\", b"").replace(b'\\"', b"")  # now each quote begins or ends a string
    strings = bare.count(b'"') // 2
    if strings <= MAX_NODES:
        outside = b"".join(bare.split(b'"')[::2])
        if count_brackets(outside) + strings <= MAX_NODES:
            if outside.count(b",") > MAX_ITEMS:
                raise ContextLengthExceeded(
                    f"the request body has more than {MAX_ITEMS} values or token ids; send fewer"
                )
            words = outside.count(b"true") + outside.count(b"false")
            if outside.count(b".") + outside.lower().count(b"e") - words > MAX_NODES:
                raise InvalidBody(f"the request body contains more than {MAX_NODES} decimal numbers; send fewer")
            return
    start = b"".join(bare[:MAX_NODES].split(b'"')[::2])
    if count_brackets(start) - start.count(b"}") - start.count(b"]") > MAX_DEPTH:
        raise _too_deep()
    raise InvalidBody(f"the request body contains more than {MAX_NODES} objects, lists and strings; send fewer")


def refuse_lost_digits(value: object, param: str) -> None:
    """Raise ``InvalidValue`` for integers beyond 64 bits, which orjson has read as rounded floats."""
    if _has_inexact((value,)):
        _name_inexact(value, param)


def refuse_lost_digits_in(fields: dict[str, Any]) -> None:
    """Call ``refuse_lost_digits`` for every field of a body. Raises ``InvalidValue`` for the first rounded integer."""
    if _has_inexact(fields.values()):
        for name, value in fields.items():
            _name_inexact(value, plain(name))


def _has_inexact(values: Collection[object]) -> bool:
    if EXACT.issuperset(map(type, values)):
        return False
    for value in values:
        if type(value) is float:
            if abs(value) >= FIRST_INEXACT:
                return True
        elif isinstance(value, dict):
            if _has_inexact(value.values()):
                return True
        elif isinstance(value, list) and _has_inexact(value):
            return True
    return False


def _name_inexact(value: object, param: str) -> None:
    if isinstance(value, float) and abs(value) >= FIRST_INEXACT:
        raise InvalidValue.at(param, " is a number that does not fit in 64 bits")
    if isinstance(value, dict):
        for key, item in value.items():
            _name_inexact(item, f"{param}.{plain(key)}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _name_inexact(item, f"{param}[{index}]")


def _explain(error: orjson.JSONDecodeError, body: bytes) -> Exception:
    if not body or body.isspace():
        return InvalidJson("the request body is empty; send a JSON object with content-type application/json")
    message = str(error)
    if "surrogate" in message and "UTF-8" not in message:
        return InvalidUnicode("a string in the request body contains a lone surrogate; send whole characters")
    if "recursion" in message.lower() or "depth" in message.lower():
        return _too_deep()
    if body[:3] == b"\xef\xbb\xbf":
        return InvalidJson("the request body starts with a byte order mark; send UTF-8 without this mark")
    place = f"line {error.lineno}, column {error.colno}: {error.msg}"
    return InvalidJson(f"the request body is not valid JSON ({place}){_hint(error.doc[error.pos : error.pos + 5])}")


def _hint(wrong: str) -> str:
    """Return how JSON differs from what Python prints. ``wrong``: the first characters that are not valid."""
    if wrong.startswith("'"):
        return "; write names and texts in double quotes"
    return "; write true, false and null in small letters" if wrong.startswith(("True", "False", "None")) else ""


def _too_deep() -> JsonTooDeep:
    return JsonTooDeep(f"the JSON in the request body is nested deeper than {MAX_DEPTH} levels")


def dump_json(value: Any) -> str:
    """Return ``value`` as ASCII JSON. Lone surrogates, integers of any size and frozen dataclasses are supported."""
    return _ENCODER.encode(value)


def plain_value(value: Any) -> dict[str, Any]:
    """Return a mapping or a frozen dataclass as a dict. Fields with their default value are left out."""
    if isinstance(value, Mapping):
        return dict(value)
    return {n: one for n, own in value.__dataclass_fields__.items() if (one := getattr(value, n)) != own.default}


_ENCODER = JSONEncoder(separators=(",", ":"), default=plain_value, check_circular=False)
"""``json.dumps`` would make an encoder for each value."""
