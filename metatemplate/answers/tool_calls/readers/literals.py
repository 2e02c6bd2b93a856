"""Reads Python's literals, and the part of JSON5 that looks like Python's literals. Nothing is executed.

Python's parser makes a syntax tree, from which this module accepts only numbers, strings, ``True`` or ``true``, lists,
tuples and dicts. Comments of JSON5 are refused. For the errors see ``format.FAULTS``.
"""

from __future__ import annotations

import ast
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


class _Constants(ast.NodeTransformer):
    """Replaces the words of JSON and the bare keys of JSON5 by constants."""

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Constant(WORDS[node.id]) if node.id in WORDS else node

    def visit_Dict(self, node: ast.Dict) -> ast.Dict:
        keys = [ast.Constant(key.id) if isinstance(key, ast.Name) else key for key in node.keys]
        names = {key.value for key in keys if isinstance(key, ast.Constant) and isinstance(key.value, str)}
        if len(names) < len(keys):
            raise ValueError("a key is no string, or comes twice")
        return ast.Dict(keys, [self.visit(value) for value in node.values])


def literal(node: ast.expr) -> Any:
    """Return the value of a literal. Raises ``ValueError`` for other expressions.

    JSON cannot express some of the values, such as bytes: see ``json_calls.as_json``.
    """
    return ast.literal_eval(_Constants().visit(node))
