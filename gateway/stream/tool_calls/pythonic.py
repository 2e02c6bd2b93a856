"""``pythonic``: the answer is ``[get_weather(city="Paris"), now()]``, and nothing stands before it.

Arguments are given by name, as literals; they are passed on as the JSON object of the same values. Anything else
between the brackets (an expression, a positional argument, a second pair of parentheses) is text.
"""

from __future__ import annotations

import ast

from gateway.stream.tool_calls.base import Called, Calls, Format
from gateway.stream.tool_calls.literals import as_json, expression, literal
from gateway.stream.tool_calls.values import Balance

OPENER = "["


def _read(region: str) -> Calls | None:
    try:
        listed = expression(region)
        if not isinstance(listed, ast.List) or not listed.elts:
            return None
        return tuple(_call(node) for node in listed.elts)
    except ValueError:
        return None


def _call(node: ast.expr) -> Called:
    if not isinstance(node, ast.Call) or node.args:
        raise ValueError("no call by name")
    arguments = {}
    for keyword in node.keywords:
        if keyword.arg is None or keyword.arg in arguments:
            raise ValueError("no argument by name")
        arguments[keyword.arg] = literal(keyword.value)
    return Called(_name(node.func), as_json(arguments))


def _name(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):  # ``weather.get()``
        return f"{_name(node.value)}.{node.attr}"
    raise ValueError("no name")


PYTHONIC = Format(lambda: Balance("\"'"), _read, openers=OPENER, telling=("(",))
