"""Reads ``response_format``, the format that a client requests for the text of an answer.

Source: OpenAI's API reference, "Create chat completion", ``response_format``. ``/v1/responses`` has the same fields in
``text.format``, from which ``wire/responses_api/request.py`` makes a ``response_format``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from gateway.core.errors import InvalidValue
from gateway.core.exchange import AnswerFormat
from gateway.stream.json_schema.limits import check_limits
from gateway.stream.json_schema.strict import check_strict
from metatemplate.values.json_values import JSON_TYPES
from metatemplate.values.words import closest, plain

KEYS: Mapping[str, tuple[str, ...]] = {
    # Type → the keys of ``response_format``.
    "text": ("type",),
    "json_object": ("type",),
    "json_schema": ("type", "json_schema"),
}
FORM = '{"type": "json_schema", "json_schema": {"name": "answer", "schema": {…}}}'
"""The form of a ``response_format`` with a schema, for messages."""
SCHEMA_KEYS = ("name", "description", "schema", "strict")
FORMAT_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""OpenAI's rule for the name of a schema."""


SCHEMA_PLACES: Mapping[str, str] = {
    "response_format": "response_format.json_schema.schema",
    "text.format": "text.format.schema",
    "tools": "tools",
}
"""``AnswerFormat.param`` → the place of the schema in the request."""


def read_answer_format(value: object, param: str = "response_format") -> AnswerFormat | None:
    """Return the format of the answer, or None for plain text. ``value``: the field in the form of a chat request.

    ``param``: the client's field, for messages: ``response_format`` or ``text.format``. Raises ``InvalidValue`` for an
    unknown or missing key, a wrong type, and a schema beyond the limits or the rules of ``strict: true``. Whether the
    schema is valid, is checked by ``SchemaChecker``.
    """
    if value is None:
        return None
    form = _given(value, param)
    kind = form.get("type")
    if not isinstance(kind, str) or kind not in KEYS:
        problem = "is missing; write" if kind is None else "must be"
        raise InvalidValue.at(f"{param}.type", f" {problem} one of {', '.join(KEYS)}")
    _refuse_unknown(form, KEYS[kind], param)
    if kind == "text":
        return None
    if kind == "json_object":
        return AnswerFormat(param=param)
    if "json_schema" not in form:
        raise InvalidValue.at(f"{param}.json_schema", f" is missing; write {FORM}")
    where = SCHEMA_PLACES[param].removesuffix(".schema")
    return replace(_read_schema(_given(form["json_schema"], where), where), param=param)


def checkable_format(value: object, param: str = "response_format") -> AnswerFormat | None:
    """Return the format with which the answer of a provider is checked, or None for plain text.

    The provider's own rules apply to the field, so only the type and the schema are read. Raises ``InvalidValue`` if an
    answer cannot be checked: an unknown type, no schema, or a schema beyond the limits.
    """
    form = {} if value is None else _given(value, param)
    kind = form.get("type", "text")
    if kind == "text":
        return None
    if kind not in KEYS:
        raise InvalidValue(f"{param} has a type other than {', '.join(KEYS)}", param=f"{param}.type")
    where = SCHEMA_PLACES[param]
    holder = form if kind == "json_object" else _object(form.get("json_schema", {}), where.removesuffix(".schema"))
    schema = holder.get("schema")  # llama.cpp and others read a schema beside json_object too
    if schema is None and kind == "json_object":
        return AnswerFormat(param=param)
    schema = _object(schema, where)
    check_limits(schema, where)
    return AnswerFormat(schema=schema, param=param)


def _read_schema(form: Mapping[str, Any], where: str) -> AnswerFormat:
    """Return the format of ``json_schema``, which is at ``where`` in the request."""
    _refuse_unknown(form, SCHEMA_KEYS, where)
    for key in ("name", "schema"):
        if key not in form:
            raise InvalidValue.at(f"{where}.{key}", f" is missing; write {FORM}")
    name, strict = form["name"], form.get("strict", False)
    for key in ("name", "description"):
        if not isinstance(form.get(key, ""), str):
            raise _wrong_type(form[key], "a string", f"{where}.{key}")
    if not FORMAT_NAME.fullmatch(name):
        raise InvalidValue.at(f"{where}.name", " must have 1 to 64 letters, digits, underscores and dashes")
    if not isinstance(strict, bool):
        raise _wrong_type(strict, "true or false", f"{where}.strict")
    schema = _object(form["schema"], f"{where}.schema")
    found = check_limits(schema, f"{where}.schema")
    if strict:
        check_strict(found, f"{where}.schema")
    return AnswerFormat(schema=schema, name=name)


def _given(value: object, where: str) -> Mapping[str, Any]:
    """Return the keys that are not null. A null key is treated as absent, as in the whole request."""
    return {key: one for key, one in _object(value, where).items() if one is not None}


def _object(value: object, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise _wrong_type(value, "an object", where)
    return value


def _wrong_type(value: object, expected: str, where: str) -> InvalidValue:
    return InvalidValue.at(where, f" must be {expected}, not {JSON_TYPES[type(value)]}")


def _refuse_unknown(form: Mapping[str, Any], known: Collection[str], where: str) -> None:
    for key in form:
        if key not in known:
            near = closest(key, known, 0.8)
            hint = f"; write {FORM}" if near is None else f' (did you mean "{near}"?)'
            raise InvalidValue.at(f"{where}.{plain(key)}", f": unknown key{hint}")
