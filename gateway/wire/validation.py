"""Is every field of a body valid, and where does it belong? Parameters, fields that OpenAI's API does not have, others.

One pass over the body. The rows of ``ordinary.py`` vouch for what needs no validator; the rest goes to the field's own,
and only when that says no, a model is built, to have the reason told in its words.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Annotated, Any, NamedTuple

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from gateway.core.errors import ForbiddenParameter, InvalidValue, RequestError
from gateway.wire.error_object import plain
from gateway.wire.fast_validation import NEVER, TEXT, Row, rows_of
from gateway.wire.fields import FORBIDDEN, STRUCTURAL, ChatRequest, CompletionRequest, EmbeddingRequest, Strict


class Shape(NamedTuple):
    """What an endpoint's bodies look like."""

    model: type[Strict]
    rows: Mapping[str, tuple[frozenset[type], Any, Any, bool, bool]]
    """The row of each field, then: is it a parameter? may it be null?"""
    required: Mapping[str, Any]
    """Each with a value that its validator takes, to stand in for one that needs no validator."""


Fields = tuple[dict[str, Any], dict[str, Any], frozenset[str], list[str]]
"""A body's fields, each where it belongs: known ones, unknown ones, the names of all that were given a value,
and the names of those whose numbers nobody has looked at.
"""


def sorted_fields(shape: Shape, body: dict[str, Any], checked: str) -> Fields:
    """Every field of the body, valid; an explicit null is an absent field. ``checked``: one the caller looks at."""
    known: dict[str, Any] = {}
    unknown: dict[str, Any] = {}
    odd: list[str] = []
    loose: list[str] = []
    nulls = False
    rows = shape.rows
    for key, value in body.items():
        row = rows.get(key)
        if row is None:
            if value is None:
                nulls = True
            else:
                unknown[key] = value
                loose.append(key)
            continue
        kinds, least, most, is_parameter, may_be_null = row
        if value is None:
            nulls = True
            if not may_be_null:
                odd.append(key)
            continue
        if is_parameter:
            known[key] = value
        if type(value) in kinds and least <= (len(value) if kinds is TEXT else value) <= most:
            continue
        if key != checked:
            odd.append(key)
            if is_parameter:
                loose.append(key)
    if odd or not shape.required.keys() <= body.keys():
        _check(shape, body, odd)
    given = frozenset([key for key, value in body.items() if value is not None] if nulls else body)
    return known, unknown, given, loose


def _check(shape: Shape, body: dict[str, Any], odd: Sequence[str]) -> None:
    """Let pydantic judge the odd fields, and miss the missing ones."""
    if shape.required.keys() <= body.keys() and all(_valid(shape.model, key, body[key]) for key in odd):
        return
    forbidden = FORBIDDEN.intersection(odd) - shape.model.model_fields.keys()
    if forbidden:
        name = min(forbidden)
        raise ForbiddenParameter(f"{name} is set by the operator of this gateway, never by a request", param=name)
    doubtful = {key: value for key, value in shape.required.items() if key in body}
    doubtful.update([(key, body[key]) for key in odd])
    try:
        shape.model.model_validate(doubtful)
    except ValidationError as error:
        raise first_problem(error) from None


def _valid(model: type[Strict], name: str, value: object) -> bool:
    """Does the field's own validator take it? The model's would build a model; it is asked for the reason of a no."""
    is_valid = _validator(model, name)
    return is_valid is not None and is_valid(value)


@cache
def _validator(model: type[Strict], name: str) -> Callable[[object], bool] | None:
    """Made when the first odd value comes; none for what is no field of the model."""
    info = model.model_fields.get(name)
    if info is None:
        return None
    kind: Any = info.annotation
    for constraint in info.metadata:
        kind = Annotated[kind, constraint]
    return TypeAdapter(kind, config=model.model_config).validator.isinstance_python


def first_problem(error: ValidationError) -> RequestError:
    first = _telling(error.errors(include_url=False, include_context=False, include_input=False))
    # A union names its members in the location; those are class names of ours, not the client's words.
    keys = [key for key in first["loc"] if isinstance(key, int) or not _is_union_tag(key)]
    param = "".join(f"[{key}]" if isinstance(key, int) else f".{plain(key)}" for key in keys).lstrip(".")
    if first["type"] == "missing":
        return InvalidValue(f"{param} is missing", param=param)
    said = first["msg"].removeprefix("Value error, ").partition(" or instance of ")[0]
    return InvalidValue(f"{param}: {said[:1].lower()}{said[1:]}", param=param)


def _telling(errors: Sequence[ErrorDetails]) -> ErrorDetails:
    """The first error; of a union's the deepest that is no mere wrong type, because that member came closest."""
    stem = errors[0]["loc"]
    if isinstance(stem[-1], str) and _is_union_tag(stem[-1]):
        stem = stem[:-1]
    rivals = [error for error in errors if error["loc"][: len(stem)] == stem]
    return max(rivals, key=lambda error: (len(error["loc"]), not error["type"].endswith("_type")))


def _is_union_tag(key: str) -> bool:
    return key in {"str", "int", "float", "bool", "dict"} or "[" in key


def _shape(model: type[Strict], structural: frozenset[str], required: Mapping[str, Any]) -> Shape:
    plain_rows: dict[str, Row] = {
        **dict.fromkeys([*model.model_fields, *structural, *FORBIDDEN], NEVER),
        **rows_of(model),
    }
    rows = {
        name: (*row, name in model.model_fields and name not in structural, name not in required.keys() | FORBIDDEN)
        for name, row in plain_rows.items()
    }
    return Shape(model, rows, required)


CHAT = _shape(ChatRequest, STRUCTURAL, {"model": "m", "messages": [{"role": "user", "content": ""}]})
COMPLETION = _shape(CompletionRequest, STRUCTURAL, {"model": "m", "prompt": ""})
EMBEDDING = _shape(EmbeddingRequest, frozenset({"model", "gateway"}), {"model": "m", "input": ""})
