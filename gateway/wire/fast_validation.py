"""Which values need no validator? Rows derived from the models of ``fields.py``: an exact type, and a range.

Nearly every field of nearly every request is a plain number, string or boolean. Those are compared with a row here;
whatever has no row, or does not fit it, is left to pydantic, which stays the only one to say what is wrong. So a row
may be stricter than its model, never kinder (``tests/wire/test_fast_validation.py``).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from annotated_types import Ge, Le, MaxLen, MinLen
from pydantic import BaseModel
from pydantic.fields import FieldInfo

Row = tuple[frozenset[type], Any, Any]
"""(exact types, least, most); for strings the length counts, and a boolean lies between False and True."""

NUMBERS: dict[type, frozenset[type]] = {int: frozenset({int}), float: frozenset({int, float})}
TEXT = frozenset({str})
FLAG = frozenset({bool})
NEVER: Row = (frozenset(), 0, 0)
"""The row of a field whose values are never plain."""


def rows_of(model: type[BaseModel]) -> dict[str, Row]:
    """The rows of a model's plain fields; null is none of theirs."""
    return {name: row for name, info in model.model_fields.items() for row in _rows(info.annotation, info.metadata)}


def _rows(annotation: Any, metadata: list[Any]) -> Iterator[Row]:
    """One row or none. A constraint this file does not know makes it none."""
    if get_origin(annotation) in (Union, UnionType):
        members = [member for member in get_args(annotation) if member is not type(None)]
        if len(members) == 1 and not metadata:
            yield from _rows(members[0], [])
        return
    if get_origin(annotation) is Annotated:
        annotation, *more = get_args(annotation)
        metadata = [*metadata, *more]
    told = _bounds(metadata)
    if told is None:
        return
    if annotation is str and told.keys() <= {MinLen, MaxLen}:
        yield TEXT, told.get(MinLen, 0), told.get(MaxLen, sys.maxsize)
    elif annotation in NUMBERS and told.keys() == {Ge, Le}:
        # Only a bounded number has a row: an integer beyond 64 bits has become a rounded float by now.
        yield NUMBERS[annotation], told[Ge], told[Le]
    elif annotation is bool and not told:
        yield FLAG, False, True


def _bounds(metadata: list[Any]) -> dict[type, Any] | None:
    """The constraints by kind; None if one of them is of another kind, or a kind comes twice."""
    told: dict[type, Any] = {}
    for piece in metadata:
        for one in piece.metadata if isinstance(piece, FieldInfo) else (piece,):
            match one:
                case Ge(value) | Le(value) | MinLen(value) | MaxLen(value) if type(one) not in told:
                    told[type(one)] = value
                case _:
                    return None
    return told
