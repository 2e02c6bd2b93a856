"""How are values read that are no JSON? Python's literals, and JSON5 as far as the two agree; nothing is ever run.

Python's own parser reads the text and this file walks the tree, taking numbers, strings, ``True`` or ``true``, lists,
tuples and dicts, and nothing else. Of JSON5 that leaves out comments, hexadecimal fractions and a leading ``+``.
"""

from __future__ import annotations

import ast
import math
import warnings
from typing import Any

MAX_LENGTH = 64 * 1024
"""Characters that are parsed; Python's parser wants 0.1 s for so many, and a hundred times that in memory."""

WORDS = {"true": True, "false": False, "null": None}
_FAULTS = (SyntaxError, ValueError, RecursionError, MemoryError)
"""What Python's parser raises for text that is no expression, or nests too deeply."""


def expression(text: str) -> ast.expr:
    """The one expression in a text. Raises ValueError."""
    if len(text) > MAX_LENGTH:
        raise ValueError("too long")
    try:
        with warnings.catch_warnings():
            # An unknown escape (``"\\d"``) is a warning on standard error, with the model's words in it.
            warnings.simplefilter("ignore")
            return ast.parse(text.strip(), mode="eval").body
    except _FAULTS:
        raise ValueError("no expression") from None


def literal(node: ast.expr) -> Any:
    """What a literal stands for, as JSON can say it. Raises ValueError."""
    try:
        return _literal(node)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _literal(node: ast.expr) -> Any:
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
            return [_literal(item) for item in items]
        case ast.Dict(keys=keys, values=values):
            return _members([_key(key) for key in keys], [_literal(value) for value in values])
    raise ValueError("no literal")


def _key(node: ast.expr | None) -> str:
    match node:
        case ast.Constant(value=str() as value) | ast.Name(id=value):
            return value
    raise ValueError("no key")


def _members(keys: list[str], values: list[Any]) -> dict[str, Any]:
    if len(set(keys)) != len(keys):
        raise ValueError("a key comes twice")
    return dict(zip(keys, values, strict=True))
