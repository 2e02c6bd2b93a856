"""Reads Python's literals, and the part of JSON5 that looks like Python's literals. Nothing is executed.

Python's parser makes a syntax tree, from which this module accepts only numbers, strings, ``True`` or ``true``, lists,
tuples and dicts. Comments and a leading ``+`` of JSON5 are refused. For the errors see ``format.FAULTS``.
"""

from __future__ import annotations

import ast
import math
import warnings
from typing import Any

MAX_LENGTH = 64 * 1024
"""Maximum characters of a text. Python's parser needs 0.1 s and about 6.5 MB for so many characters."""

WORDS = {"true": True, "false": False, "null": None}


def expression(text: str) -> ast.expr:
    """Return the syntax tree of a text that is one Python expression."""
    if len(text) > MAX_LENGTH:
        raise ValueError("the expression is too long")
    with warnings.catch_warnings():
        # For an unknown escape (``"\\d"``) Python would print a warning that contains the model's text.
        warnings.simplefilter("ignore")
        return ast.parse(text.strip(), mode="eval").body


def literal(node: ast.expr) -> Any:
    """Return the value of a literal. Raises ``ValueError`` for a value that JSON cannot express."""
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
    raise ValueError("the expression is not a literal, or has the same key twice")


def _key(node: ast.expr | None) -> str:
    match node:
        case ast.Constant(value=str() as value) | ast.Name(id=value):
            return value
    raise ValueError("a key must be a string or a name")
