"""The reader ``python``: the answer begins with a list of calls, such as ``[get_weather(city="Paris"), now()]``.

Arguments have names, and their values are literals. The client receives the arguments as a JSON object. If the brackets
contain anything else (an expression, a positional argument, a second pair of parentheses), the text is content.
"""

from __future__ import annotations

import ast
import keyword
import re
from collections.abc import Generator

from metatemplate.answers.tool_calls.format import (
    BOTH_QUOTES,
    Format,
    Found,
    ParsedCall,
    Region,
    ToolSchemas,
    skip_brackets,
)
from metatemplate.answers.tool_calls.readers.json_calls import as_json
from metatemplate.answers.tool_calls.readers.literals import expression, literal

NAME = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*")
HEAD = re.compile(r"\[\s*(?:([^\W\d][\w.]*)\s*)?")
MAX_HEAD = 256
"""Maximum characters before the first parenthesis."""


def _rule(region: Region) -> Generator[None, None, int]:
    """Follow a bracket, a name and a parenthesis to the closing bracket. End the region early at any other text."""
    while True:
        head = HEAD.match(region.text, 0, MAX_HEAD)
        assert head is not None  # a region always begins with the bracket
        if not head.end() == len(region.text) < MAX_HEAD:
            break
        yield
    if not head[1] or region.text[head.end() : head.end() + 1] != "(":
        return head.end()
    yield from skip_brackets(region, BOTH_QUOTES)
    return region.offset


def _read(text: str, tools: ToolSchemas) -> Found:
    listed = expression(text)
    return tuple(map(_call, listed.elts)) if isinstance(listed, ast.List) else ()


def _call(node: ast.expr) -> ParsedCall:
    if not isinstance(node, ast.Call) or node.args:
        raise ValueError("the expression is not a call with named arguments")
    arguments = {given.arg: literal(given.value) for given in node.keywords}
    name = ast.unparse(node.func)
    if None in arguments or len(arguments) != len(node.keywords) or not NAME.fullmatch(name):
        raise ValueError("an argument has no name or a repeated name, or the function name is not valid")
    return ParsedCall(name, as_json(arguments))


def _can_name(name: str) -> bool:
    return all(part.isidentifier() and not keyword.iskeyword(part) for part in name.split("."))


def python_format() -> Format:
    """Return the format of a list of calls at the beginning of the answer."""
    return Format(rule=_rule, read=_read, openers="[", can_name=_can_name, failure_signs=("(",))
