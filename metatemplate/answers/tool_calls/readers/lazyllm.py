"""``lazyllm``: a start token, the name, an args token, the arguments and an end token; or a call without tokens.

The rules come from ``docs/spec/lazyllm.md`` 11:

- A. Between ``start`` and ``end`` are the name, ``args`` and the arguments. Without ``args`` the call has no arguments.
  If the template has no ``args`` token, an object with ``name`` and ``parameters`` or ``arguments`` is there instead.
- B. A call without tokens begins on a new line. It is a tool's name with the arguments from the next line on; or an
  object, or a list of objects, with ``name`` and ``parameters`` or ``arguments``.
- C. All other text is content.

An object without arguments is a call without arguments. Arguments may be JSON, or the part of JSON5 that
``literals.py`` reads, or a string of such text. LazyLLM makes ``end`` a stop, so the answer may lack ``end``.

LazyLLM passes on arguments that it cannot read, and drops text after a call; the gateway sends both as text.
``docs/tools.md`` lists all differences. ``tests/metatemplate/answers/test_lazyllm_split.py`` compares both on random
texts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Generator
from typing import Any

from metatemplate.answers.stops.stop_search import stop_set
from metatemplate.answers.tool_calls.format import (
    BOTH_QUOTES,
    Format,
    Found,
    ParsedCall,
    Region,
    end_with,
    skip_past,
    skip_to,
    skip_value,
)
from metatemplate.answers.tool_calls.readers.json_calls import UNUSED_KEYS, as_json, calls_in, one_object
from metatemplate.answers.tool_calls.readers.literals import expression, literal
from metatemplate.values.answer_markers import ToolTokens

ARGUMENT_KEYS = ("parameters", "arguments")
MAX_STRINGS = 4
"""Maximum number of nested strings around the arguments (JSON in a string in a string)."""

_BLANKS = re.compile(r"\s*")
_TEXT = re.compile(r"\S")
_TEXT_OR_LINE_END = re.compile(r"\n|\S")


def lazyllm(tokens: ToolTokens, names: Collection[str] = ()) -> Format:
    """Return the format of a template with these tokens. ``names``: the names of the tools."""
    lines = ("\n{", "\n[", *(f"\n{name}\n{{" for name in sorted(names)))
    return Format(
        name="lazyllm",
        rule=lambda region: _rule(region, tokens),
        read=lambda text, tools: _read(text, tokens),
        markers=stop_set((tokens.start, *lines)),
        closing=tokens.end,
        prefix="\n",
        failure_signs=(tokens.start or "name",),
    )


# ---------------------------------------------------------------- regions


def _rule(region: Region, tokens: ToolTokens) -> Generator[None, None, int]:
    marker = region.text
    if marker == tokens.start:
        region.at = len(marker)
        if tokens.args:
            return (yield from _named(region, tokens))
        yield from skip_value(region, BOTH_QUOTES)
        return (yield from end_with(region, (tokens.end,)))
    region.at = len(marker) - 1
    yield from skip_value(region, BOTH_QUOTES)
    if region.whole and len(marker) == len("\n{"):  # no name: the line must end after the object
        region.whole = (yield from skip_to(region, _TEXT_OR_LINE_END)) == "\n"
        if not region.whole:
            region.at += 1  # with this character the region contains no call
    return region.offset


def _named(region: Region, tokens: ToolTokens) -> Generator[None, None, int]:
    """Find the end of a call after the start token: name and end token, or name, args token, arguments and end token.

    In one model family, the end token is a line break, which also follows the name. Therefore an end token before
    ``args`` or before the name does not end the call.
    """
    yield from skip_to(region, _TEXT)
    mark = yield from skip_past(region, (tokens.args, tokens.end, tokens.start))
    if mark == tokens.start:
        return region.offset - len(mark)
    if mark == tokens.end:
        region.whole = True
        length = region.offset
        if mark.strip() or (yield from end_with(region, (tokens.args,), _BLANKS)) == length:
            return length
    first = yield from skip_to(region, _TEXT)
    region.whole = False
    if first in "{[":
        yield from skip_value(region, BOTH_QUOTES)
        return (yield from end_with(region, (tokens.end,)))
    # Arguments without brackets cannot contain a start token.
    mark = yield from skip_past(region, (tokens.end, tokens.start))
    region.whole = mark == tokens.end
    return region.offset if region.whole else region.offset - len(mark)


# ---------------------------------------------------------------- calls of a whole region


def _read(text: str, tokens: ToolTokens) -> Found:
    if not tokens.start or not text.startswith(tokens.start):  # rule B
        text = text.strip()
        if text.startswith(("{", "[")):
            return _objects(text)
        name, _, arguments = text.partition("\n")
        return (_named_call(name, _arguments(arguments)),)
    body = text.removeprefix(tokens.start)
    if not tokens.args:
        return _objects(body.removesuffix(tokens.end))
    name, args, arguments = body.partition(tokens.args)
    if args:
        return (_named_call(name, _arguments(arguments.removesuffix(tokens.end))),)
    name, end, rest = body.lstrip().partition(tokens.end)
    return (_named_call(name, "{}"),) if end and not rest.strip() else ()


def _named_call(name: str, arguments: str) -> ParsedCall:
    if not name.strip():
        raise ValueError("a tool call has no name")
    return ParsedCall(name.strip(), arguments)


def _arguments(text: str) -> str:
    """Return the arguments as the text of a JSON object. Arguments that are already JSON are unchanged."""
    for _ in range(MAX_STRINGS):
        text = text.strip()
        try:
            return one_object(text)
        except ValueError:
            value = _value(text)
        if isinstance(value, dict):
            return as_json(value)
        if not isinstance(value, str):
            break
        text = value
    raise ValueError("the arguments of a tool call are not an object")


def _objects(text: str) -> Found:
    try:
        return calls_in(text, ARGUMENT_KEYS)
    except ValueError:
        value = _value(text)
    return tuple(map(_call, value if isinstance(value, list) else [value]))


def _call(value: Any) -> ParsedCall:
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        raise ValueError("a tool call has no name")
    given = [key for key in ARGUMENT_KEYS if key in value]
    if len(given) > 1 or not value.keys() <= {"name", *given} | UNUSED_KEYS:
        raise ValueError("a tool call has unknown keys")
    arguments = value[given[0]] if given else {}
    if isinstance(arguments, str):
        return ParsedCall(value["name"], _arguments(arguments))
    if not isinstance(arguments, dict):
        raise ValueError("the arguments of a tool call are neither an object nor a string")
    return ParsedCall(value["name"], as_json(arguments))


def _value(text: str) -> Any:
    """Return the value of a text in JSON, or in the part of JSON5 that ``literals.py`` reads."""
    try:
        return json.loads(text)
    except ValueError:
        return literal(expression(text))
