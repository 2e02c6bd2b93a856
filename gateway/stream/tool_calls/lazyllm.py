"""``lazyllm``: a start token, the name, an args token, the arguments, an end token; or no token at all.

The rules of ``docs/spec/lazyllm.md`` 11, in order of the text:

- A. From ``start`` to ``end``: the name, then ``args`` and the arguments; without ``args`` a call without arguments.
  A template without an ``args`` token has an object with ``name`` and ``parameters`` or ``arguments`` in between.
- B. On lines of their own: a tool's name, and from the next line on its arguments; or an object, or a list of objects,
  with ``name`` and ``parameters`` or ``arguments``.
- C. Everything else is text.

An object without arguments is a call without arguments. Arguments may be JSON, or JSON5 as far as ``literals.py``
reads it, or either of them in a string. LazyLLM makes ``end`` a stop, so an answer may stop where it would stand.

LazyLLM passes on arguments it cannot read, and drops text after a call; here both stay text. ``docs/tools.md`` lists
all differences, and ``tests/stream/test_lazyllm_split.py`` compares both on random texts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Generator
from typing import Any

from gateway.core.frozen import dataclass
from gateway.stream.stop_search import StopScanner, StopSet, stop_set
from gateway.stream.tool_calls.format import MAX_CALLS, Calls, Format, ParsedCall
from gateway.stream.tool_calls.json_calls import UNUSED_KEYS, as_json, calls_in, object_to
from gateway.stream.tool_calls.literals import expression, literal
from gateway.stream.tool_calls.region import BOTH_QUOTES, Region, Rule, end_with, skip_value

KEYS = ("parameters", "arguments")
MAX_STRINGS = 4
"""Maximum number of nested strings around the arguments (JSON in a string in a string)."""

_TEXT = re.compile(r"\S")
_TEXT_OR_LINE_END = re.compile(r"\n|\S")


@dataclass(frozen=True, slots=True)
class CallTokens:
    """The texts that a template declares as ``tools.tokens``; all empty: rule B alone."""

    start: str = ""
    args: str = ""
    end: str = ""


def lazyllm(tokens: CallTokens, names: Collection[str] = ()) -> Format:
    """The format with these tokens, for tools of these names."""
    lines = ("\n{", "\n[", *(f"\n{name}\n{{" for name in sorted(names)))
    return Format(
        rule=_rule_of(tokens),
        read=lambda text: _read(text, tokens),
        markers=stop_set((tokens.start, *lines) if tokens.start else lines),
        closing=tokens.end,
        markers_begin_lines=True,
        failure_signs=(tokens.start or "name",),
    )


# ---------------------------------------------------------------- regions


def _rule_of(tokens: CallTokens) -> Rule:
    after_name = StopSet((tokens.args, tokens.end, tokens.start))

    def rule(region: Region) -> Generator[None, None, int]:
        marker = region.text
        if marker != tokens.start:  # rule B
            region.at = len(marker) - 1
            yield from skip_value(region, BOTH_QUOTES)
            if region.whole and len(marker) == len("\n{"):
                yield from _skip_line_end(region)
            return region.offset
        region.at = len(marker)
        if tokens.args:
            return (yield from _named(region, tokens, after_name))
        yield from skip_value(region, BOTH_QUOTES)
        return (yield from end_with(region, tokens.end))

    return rule


def _skip_line_end(region: Region) -> Generator[None, None, None]:
    """An object without a name before it fills its lines: only white space follows it, up to the line's end."""
    region.whole = False
    found = yield from _skip_to(region, _TEXT_OR_LINE_END)
    if found == "\n":
        region.whole = True
    else:
        region.at += 1  # this character becomes part of the region, which holds no call then


def _named(region: Region, tokens: CallTokens, after_name: StopSet) -> Generator[None, None, int]:
    """Behind the start token: a name, then the end; or the args token, the arguments and the end.

    The end token of one family is a line break, which also stands behind the name: an end followed by ``args`` does
    not end the call, and neither does one before the name.
    """
    yield from _skip_to(region, _TEXT)
    mark = yield from _skip_past(region, after_name)
    if mark == tokens.start:
        return region.offset - len(mark)
    if mark == tokens.end:
        region.whole = True
        length = region.offset
        if mark.strip():
            return length
        while True:
            rest = region.text[region.at :].lstrip()
            region.at = len(region.text) - len(rest)
            if rest.startswith(tokens.args):
                break
            if not tokens.args.startswith(rest):
                return length
            yield
        region.at += len(tokens.args)
    first = yield from _skip_to(region, _TEXT)
    region.whole = False
    if first in "{[":
        yield from skip_value(region, BOTH_QUOTES)
        return (yield from end_with(region, tokens.end))
    # Arguments without brackets cannot hold a start token.
    mark = yield from _skip_past(region, stop_set((tokens.end, tokens.start)))
    region.whole = mark == tokens.end
    return region.offset if region.whole else region.offset - len(mark)


def _skip_to(region: Region, pattern: re.Pattern[str]) -> Generator[None, None, str]:
    """Move to the first match, and return it."""
    while (found := pattern.search(region.text, region.at)) is None:
        region.at = len(region.text)
        yield
    region.at = found.start()
    return found[0]


def _skip_past(region: Region, marks: StopSet) -> Generator[None, None, str]:
    """Move behind the first of the marks, and return it."""
    scanner = StopScanner(marks)
    while True:
        held = scanner.held
        out, mark = scanner.feed(region.text[region.at :])
        if mark is not None:
            region.at += len(out) - held + len(mark)
            return mark
        region.at = len(region.text)
        yield


# ---------------------------------------------------------------- calls of a whole region


def _read(text: str, tokens: CallTokens) -> Calls | None:
    try:
        if not tokens.start or not text.startswith(tokens.start):
            return _read_lines(text.strip())
        body = text.removeprefix(tokens.start)
        if not tokens.args:
            return _objects(body.removesuffix(tokens.end))
        name, args, arguments = body.partition(tokens.args)
        if args:
            return (ParsedCall(_name(name), _arguments(arguments.removesuffix(tokens.end))),)
        name, end, rest = body.lstrip().partition(tokens.end)
        return (ParsedCall(_name(name), "{}"),) if end and not rest.strip() else None
    except ValueError:
        return None


def _read_lines(text: str) -> Calls | None:
    """Rule B."""
    if text.startswith(("{", "[")):
        return _objects(text)
    name, _, arguments = text.partition("\n")
    return (ParsedCall(_name(name), _arguments(arguments)),)


def _name(text: str) -> str:
    if not text.strip():
        raise ValueError("no name")
    return text.strip()


def _arguments(text: str) -> str:
    """The JSON object that the arguments are; unchanged where they are JSON. Raises ValueError."""
    for _ in range(MAX_STRINGS):
        text = text.strip()
        try:
            if object_to(text) == len(text):
                return text
        except ValueError:
            pass
        value = _value(text)
        if isinstance(value, dict):
            return as_json(value)
        if not isinstance(value, str):
            break
        text = value
    raise ValueError("not an object")


def _objects(text: str) -> Calls | None:
    calls = calls_in(text, KEYS)
    if calls is not None:
        return calls
    value = _value(text)
    items = value if isinstance(value, list) else [value]
    return tuple(map(_call, items)) if 0 < len(items) <= MAX_CALLS else None


def _call(value: Any) -> ParsedCall:
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        raise ValueError("no name")
    given = [key for key in KEYS if key in value]
    if len(given) > 1 or not value.keys() <= {"name", *given} | UNUSED_KEYS:
        raise ValueError("a call does not have these members")
    arguments = value[given[0]] if given else {}
    if isinstance(arguments, str):
        return ParsedCall(value["name"], _arguments(arguments))
    if not isinstance(arguments, dict):
        raise ValueError("the arguments are not an object")
    return ParsedCall(value["name"], as_json(arguments))


def _value(text: str) -> Any:
    """JSON, or the part of JSON5 that ``literals.py`` reads. Raises ValueError."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return literal(expression(text))
