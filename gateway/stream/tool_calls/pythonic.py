"""``pythonic``: the answer is ``[get_weather(city="Paris"), now()]``, and nothing stands before it.

Arguments are given by name, as literals; they are passed on as the JSON object of the same values. Anything else
between the brackets (an expression, a positional argument, a second pair of parentheses) is text.
"""

from __future__ import annotations

import ast
import keyword
import re

from gateway.stream.tool_calls.base import MAX_CALLS, Called, Calls, Format
from gateway.stream.tool_calls.literals import expression, literal
from gateway.stream.tool_calls.values import Balance, as_json

OPENER = "["
HEAD = re.compile(r"\[\s*(?:([^\W\d][\w.]*)\s*)?")
MAX_HEAD = 256
"""Characters up to the first parenthesis."""


class _Region:
    """A bracket, a name and a parenthesis, up to the bracket's end; it ends at once before anything else."""

    __slots__ = ("_balance", "_head")

    def __init__(self) -> None:
        self._head = ""
        """What has come before the first parenthesis."""
        self._balance: Balance | None = None

    @property
    def whole(self) -> bool:
        """See ``base.Region``."""
        return self._balance is not None and self._balance.whole

    def feed(self, text: str) -> int | None:
        """See ``base.Region``."""
        if self._balance is not None:
            return self._balance.feed(text)
        before, text = len(self._head), self._head + text
        head = HEAD.match(text, 0, MAX_HEAD)
        assert head is not None  # the bracket has come first
        end = head.end()
        if end == len(text) < MAX_HEAD:
            self._head = text
            return None
        if not head[1] or text[end : end + 1] != "(":
            return end - before
        self._balance = Balance("\"'")
        ended = self._balance.feed(text)
        return None if ended is None else ended - before


# ---------------------------------------------------------------- whole regions


def _read(region: str) -> Calls | None:
    try:
        listed = expression(region)
        if not isinstance(listed, ast.List) or not 0 < len(listed.elts) <= MAX_CALLS:
            return None
        return tuple(_call(node) for node in listed.elts)
    except (ValueError, RecursionError):
        return None


def _call(node: ast.expr) -> Called:
    if not isinstance(node, ast.Call) or node.args:
        raise ValueError("no call by name")
    arguments = {}
    for given in node.keywords:
        if given.arg is None or given.arg in arguments:
            raise ValueError("no argument by name")
        arguments[given.arg] = literal(given.value)
    return Called(_name(node.func), as_json(arguments))


def _name(node: ast.expr) -> str:
    behind: list[str] = []
    while isinstance(node, ast.Attribute):  # ``weather.get()``
        behind.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        raise ValueError("no name")
    return ".".join([node.id, *reversed(behind)])


def _carries(name: str) -> bool:
    return all(part.isidentifier() and not keyword.iskeyword(part) for part in name.split("."))


PYTHONIC = Format(_Region, _read, openers=OPENER, carries=_carries, telling=("(",))
