"""Reads Python's literals, and JSON5 where it looks like them. Nothing is executed.

Python's parser reads the text, and this module accepts numbers, strings, ``True`` or ``true``, lists, tuples and dicts
of its tree. Comments and a leading ``+`` of JSON5 are not read. Errors: see ``format.FAULTS``.
"""

from __future__ import annotations

import ast
import math
import warnings
from typing import Any

MAX_LENGTH = 64 * 1024
"""Characters that are parsed; Python's parser takes 0.1 s and a hundred times as many bytes for them."""

WORDS = {"true": True, "false": False, "null": None}


def expression(text: str) -> ast.expr:
    """The one expression in a text."""
    if len(text) > MAX_LENGTH:
        raise ValueError("too long")
    with warnings.catch_warnings():
        # Python warns of an unknown escape (``"\\d"``) on standard error, and quotes the model's text.
        warnings.simplefilter("ignore")
        return ast.parse(text.strip(), mode="eval").body


def literal(node: ast.expr) -> Any:
    """The value of a literal, as far as JSON can hold it."""
    match node:
        case ast.Constant(value=str() | int() | None as value):
            return value
        case ast.Constant(value=float() as value) if math.isfinite(value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)) if math.isfinite(value):
            return -value
        case ast.Name(id=word) if word in WORDS:
            return WORDS[word]
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return [literal(item) for item in items]
        case ast.Dict(keys=keys, values=values):
            found = {_key(key): literal(value) for key, value in zip(keys, values, strict=True)}
            if len(found) == len(keys):
                return found
    raise ValueError("not a literal, or a key that is used twice")


def _key(node: ast.expr | None) -> str:
    match node:
        case ast.Constant(value=str() as value) | ast.Name(id=value):
            return value
    raise ValueError("not a key")
