"""Checks each field of a body, and separates known parameters from unknown fields.

Each field has a validator for its value. Only if a value is not valid, a pydantic model is built for the error message.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any

from pydantic import BaseModel, TypeAdapter, ValidationError

from gateway.core.errors import ForbiddenParameter, InvalidValue, RequestError
from gateway.wire.request_fields import (
    FORBIDDEN,
    STRUCTURAL,
    ChatRequest,
    CompletionRequest,
    EmbeddingRequest,
    LoglikelihoodRequest,
    Strict,
)
from metatemplate.files.file_types import refused_values
from metatemplate.values.json_values import JSON_TYPES, UNKNOWN, part, path_text, problem_text


class Validators(dict[str, Callable[[object], bool]]):
    """Field → function that returns True for a valid value. Each function is made at its first use, which is slow."""

    def __init__(self, model: type[Strict]) -> None:
        super().__init__()
        self._model = model

    def __missing__(self, name: str) -> Callable[[object], bool]:
        info = self._model.model_fields.get(name)
        if info is None:
            self[name] = lambda value: False
        else:
            kind: Any = info.annotation
            for constraint in info.metadata:
                kind = Annotated[kind, constraint]
            self[name] = TypeAdapter(kind, config=self._model.model_config).validator.isinstance_python
        return self[name]


@dataclass(frozen=True, slots=True)
class BodySchema:
    """The known fields of one endpoint."""

    model: type[Strict]
    is_parameter: Mapping[str, bool]
    """Known field → True for a parameter, False for another part of the call or a forbidden field."""
    not_null: frozenset[str]
    """Fields for which null is not the same as absent."""
    required: Mapping[str, Any]
    """Required field → an example value. For an error message, the example replaces a valid value of the client."""
    validators: Validators


@dataclass(frozen=True, slots=True)
class BodyFields:
    """The fields of a body that have a value."""

    known: dict[str, Any]
    """Parameters of OpenAI's API."""
    unknown: dict[str, Any]
    given: Set[str]
    """The names of all fields that are not null."""


def split_fields(schema: BodySchema, body: dict[str, Any], checked: str) -> BodyFields:
    """Check all fields, and separate known from unknown fields. A null field is treated as absent.

    ``checked``: a field that is not checked here, because the caller checks this field. Raises ``InvalidValue`` for the
    first invalid field, and ``ForbiddenParameter`` for a field that only the operator may set.
    """
    known: dict[str, Any] = {}
    unknown: dict[str, Any] = {}
    invalid: list[str] = []
    is_parameter, validators = schema.is_parameter, schema.validators
    has_null = False
    for name, value in body.items():
        if value is None:
            has_null = True
            if name not in schema.not_null:
                continue
        if name not in is_parameter:
            unknown[name] = value
            continue
        if is_parameter[name]:
            known[name] = value
        if name != checked and not validators[name](value):
            invalid.append(name)
    if invalid or not schema.required.keys() <= body.keys():
        _raise_first(schema, body, invalid)
    given = {name for name, value in body.items() if value is not None} if has_null else body.keys()
    return BodyFields(known, unknown, given)


def _raise_first(schema: BodySchema, body: dict[str, Any], invalid: Sequence[str]) -> None:
    """Raise the error for a forbidden, invalid or missing field. The caller refuses fields of other endpoints."""
    forbidden = FORBIDDEN.intersection(invalid) - schema.model.model_fields.keys()
    if forbidden:
        name = min(forbidden)
        raise ForbiddenParameter(f"{name} can only be set by the operator of this gateway; leave it out", param=name)
    doubtful = {name: value for name, value in schema.required.items() if name in body}
    doubtful.update([(name, body[name]) for name in invalid])
    try:
        schema.model.model_validate(doubtful)
    except ValidationError as error:
        raise first_problem(error, schema.model) from None


def value_problem(schema: BodySchema, name: str, value: object) -> str | None:
    """Return the message about a value of a field that is not valid; None for a valid value."""
    if schema.validators[name](value):
        return None
    try:
        _raise_first(schema, {**schema.required, name: value}, [name])
    except RequestError as error:
        return error.message
    return None


def json_forms(schema: BodySchema, name: str) -> list[dict[str, Any]]:
    """Return the JSON schemas of the forms that a field may have, without null."""
    field = _json_schema(schema.model)["properties"][name]
    return [form for form in field.get("anyOf", [field]) if form["type"] != "null"]


EXPECTED: Mapping[str, str] = {
    # Type of a pydantic error → the expected type in the words of JSON.
    "string_type": "a string",
    "bool_type": "true or false",
    "int_type": "a whole number",
    "float_type": "a number",
    "list_type": "a list",
    "dict_type": "an object",
    "model_type": "an object",
}


REMEDIES: Mapping[str, str] = {
    "model": "; GET /v1/models lists the models",
    "messages": '; write a list such as [{"role": "user", "content": "hello"}]',
    "messages[]": '; write an object such as {"role": "user", "content": "hello"}',
    "messages[].role": "; write user, assistant or system",
    "messages[].content": '; write a text, or a list of parts such as [{"type": "text", "text": "hello"}]',
    "messages[].content[].type": '; write a part such as {"type": "text", "text": "hello"}',
    "candidates": '; write an object of labels and texts, such as {"A": "first answer", "B": "second answer"}',
    "prompt": "; write a text, or a list of texts",
    "input": "; write a text, or a list of texts",
    "tools": '; write a list such as [{"type": "function", "function": {"name": "add", "parameters": {…}}}]',
    "response_format": '; write an object such as {"type": "json_object"}',
    "logit_bias": '; write an object of token ids and numbers, such as {"50256": -100}',
    "gateway": '; write an object such as {"explain": true}',
    "gateway.turns.questions": '; write a list such as ["1+1=?", "2+2=?"]',
}
"""Field, with ``[]`` for each place in a list → what to write if the field is missing, empty or has a wrong type."""


def hint(param: str) -> str:
    """Return what to write for a field, or an empty text if its name is enough."""
    return REMEDIES.get(re.sub(r"\[\d+\]", "[]", param), "")


def first_problem(error: ValidationError, model: type[BaseModel], where: str = "") -> RequestError:
    """Return the most helpful problem of a failed validation, with the client's field names.

    ``model``: the model that was validated. ``where``: the place of the checked value in the body.
    """
    keys, errors = next(iter(refused_values(error).items()))
    first = min(errors, key=lambda one: one["type"].endswith("_type"))
    forms = {EXPECTED[one["type"]]: None for one in errors if one["type"] in EXPECTED}
    param = path_text(keys, where)
    known = part(_json_schema(model), keys[:-1]).get("properties", ()) if first["type"] in UNKNOWN else ()
    text = problem_text(first, forms if first["type"] in EXPECTED else (), known, JSON_TYPES)
    remedy = hint(param) if first["type"] in (*EXPECTED, "missing", "too_short", "string_too_short") else ""
    return InvalidValue(f"{param}{' ' if text.startswith(('must ', 'is ')) else ': '}{text}{remedy}", param=param)


@cache
def _json_schema(model: type[BaseModel]) -> dict[str, Any]:
    return model.model_json_schema()


def body_schema(model: type[Strict], structural: frozenset[str], required: Mapping[str, Any]) -> BodySchema:
    """Return the schema of an endpoint. ``structural``: the known fields that are not parameters."""
    fields = model.model_fields.keys()
    return BodySchema(
        model=model,
        is_parameter={name: name in fields and name not in structural for name in {*fields, *structural, *FORBIDDEN}},
        not_null=frozenset(required) | (FORBIDDEN - fields),
        required=required,
        validators=Validators(model),
    )


CHAT = body_schema(ChatRequest, STRUCTURAL, {"model": "m", "messages": [{"role": "user", "content": ""}]})
COMPLETION = body_schema(CompletionRequest, STRUCTURAL, {"model": "m", "prompt": ""})
EMBEDDING = body_schema(EmbeddingRequest, frozenset({"model", "gateway"}), {"model": "m", "input": ""})
LOGLIKELIHOOD = body_schema(LoglikelihoodRequest, frozenset(LoglikelihoodRequest.model_fields), {"model": "m"})
