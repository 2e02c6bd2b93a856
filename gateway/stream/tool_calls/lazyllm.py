"""``lazyllm``: a start token, the name, an args token, the arguments, an end token; or no token at all.

The rules of ``specs/lazyllm.md`` 11, in order of the text:

- A. From ``start`` to ``end``: the name, then ``args`` and the arguments; without ``args`` a call without arguments.
  A template without an ``args`` token has an object with ``name`` and ``parameters`` or ``arguments`` in between.
- B. On lines of their own: a tool's name, and from the next line on its arguments; or an object, or a list of objects,
  with ``name`` and ``parameters`` or ``arguments``.
- C. Everything else is text.

An object without arguments is a call without arguments. Arguments may be JSON, or JSON5 as far as ``literals.py``
reads it, or either of them in a string. LazyLLM makes ``end`` a stop, so an answer may stop where it would stand.

Where LazyLLM hands on arguments it cannot read, or drops text after a call, both stay text here. All that differs is
listed in ``docs/tools.md``, and ``tests/stream/test_lazyllm_split.py`` looks for more.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from typing import Any

from gateway.core.frozen import dataclass
from gateway.stream.stop_search import StopScanner, StopSet, stop_set
from gateway.stream.tool_calls.base import MAX_CALLS, Called, Calls, Format, Region
from gateway.stream.tool_calls.literals import expression, literal
from gateway.stream.tool_calls.values import BESIDE, Closed, Value, as_json, calls_in, object_to

BOTH = "\"'"
KEYS = ("parameters", "arguments")
_SAID = re.compile(r"\S")
_LINE = re.compile(r"\n|\S")
MAX_STRINGS = 4
"""How often the arguments may be a string that holds the arguments."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """The texts that a template declares as ``tools.tokens``; all empty: rule B alone."""

    start: str = ""
    args: str = ""
    end: str = ""


def lazyllm(tokens: Tokens, names: Collection[str] = ()) -> Format:
    """The format with these tokens, for tools of these names."""
    alone = ("\n{", "\n[", *(f"\n{name}\n{{" for name in sorted(names)))
    marks = StopSet((tokens.args, tokens.end, tokens.start))
    return Format(
        lambda: _Region(tokens, marks),
        lambda region: _read(region, tokens),
        markers=stop_set((tokens.start, *alone) if tokens.start else alone),
        closing=tokens.end,
        lines=True,
        telling=tuple([token for token in (tokens.start,) if token] or ["name"]),
    )


class _Region:
    """What any of the markers opens."""

    __slots__ = ("_inner", "_marks", "_tokens")

    def __init__(self, tokens: Tokens, marks: StopSet) -> None:
        """``marks``: the tokens, to look for behind a name."""
        self._marks = marks
        self._tokens = tokens
        self._inner: Region | None = None

    @property
    def whole(self) -> bool:
        """See ``base.Region``."""
        return self._inner is not None and self._inner.whole

    def feed(self, text: str) -> int | None:
        """See ``base.Region``."""
        if self._inner is not None:
            return self._inner.feed(text)
        # The marker, which comes first and alone.
        tokens = self._tokens
        if text != tokens.start:
            value = Value(text[:-1], BOTH)
            self._inner = _Line(value) if len(text) == len("\n{") else value
            return self._inner.feed(text)
        self._inner = _Named(tokens, self._marks) if tokens.args else Closed(Value("", BOTH), tokens.end)
        return None


class _Named:
    """Behind the start token: a name, then the end, or the args token, the arguments and the end.

    One family's end is a line's end, and stands behind the name as well: an end followed by ``args`` is none, and
    neither is one before the name.
    """

    __slots__ = ("_arguments", "_blank", "_lead", "_marks", "_since", "_tokens", "_whole")

    def __init__(self, tokens: Tokens, marks: StopSet) -> None:
        self._tokens = tokens
        self._blank = True
        """Nothing of the name has come."""
        self._marks: StopScanner | None = StopScanner(marks)
        self._lead: str | None = None
        """What has come since an end behind the name, without the blanks before it."""
        self._since = 0
        """How much that is, blanks included."""
        self._arguments: Region | None = None
        self._whole = False
        """The name has ended, as that of a call without arguments."""

    @property
    def whole(self) -> bool:
        """See ``base.Region``."""
        return self._whole if self._arguments is None else self._arguments.whole

    def feed(self, text: str) -> int | None:
        """See ``base.Region``."""
        at = 0
        if self._marks is not None:
            if self._blank:
                said = _SAID.search(text)
                if said is None:
                    return None
                at, self._blank = said.start(), False
            held = self._marks.held
            out, mark = self._marks.feed(text[at:])
            if mark is None:
                return None
            at, self._marks = at + len(out) - held + len(mark), None
            if mark == self._tokens.start:
                return at - len(mark)
            self._whole = mark == self._tokens.end
            if self._whole and mark.strip():
                return at
            self._lead = "" if self._whole else None
        if self._lead is not None:
            args, came = self._tokens.args, len(text) - at
            lead = (self._lead + text[at:]).lstrip()
            if not lead.startswith(args):
                if not args.startswith(lead):
                    return at - self._since
                self._lead, self._since = lead, self._since + came
                return None
            at = len(text) - len(lead) + len(args)
            self._lead = None
        if self._arguments is None:
            first = _SAID.search(text, at)
            if first is None:
                return None
            at, tokens = first.start(), self._tokens
            self._arguments = Closed(Value("", BOTH), tokens.end) if first[0] in "{[" else _Until(tokens)
        ended = self._arguments.feed(text[at:])
        return None if ended is None else at + ended


class _Line:
    """A region that fills its lines: behind its end nothing but blanks stands, up to the line's end or the text's."""

    __slots__ = ("_inner", "_over", "whole")

    def __init__(self, inner: Region) -> None:
        self._inner = inner
        self._over = False
        """The inner region has ended."""
        self.whole = False
        """See ``base.Region``."""

    def feed(self, text: str) -> int | None:
        """See ``base.Region``."""
        at = 0
        if not self._over:
            ended = self._inner.feed(text)
            if ended is None:
                return None
            if not self._inner.whole:
                return ended
            at, self._over = ended, True
        end = _LINE.search(text, at)
        if end is None:
            return None
        self.whole = end[0] == "\n"
        # What follows on the line becomes part of the region, which holds no call then.
        return end.start() if self.whole else end.end()


class _Until:
    """Everything up to the end token; or up to the next start, which arguments without brackets cannot hold."""

    __slots__ = ("_end", "_marks", "whole")

    def __init__(self, tokens: Tokens) -> None:
        self._end = tokens.end
        self._marks = StopScanner(stop_set((tokens.end, tokens.start)))
        self.whole = False
        """See ``base.Region``."""

    def feed(self, text: str) -> int | None:
        """See ``base.Region``."""
        held = self._marks.held
        out, mark = self._marks.feed(text)
        if mark is None:
            return None
        self.whole = mark == self._end
        return len(out) - held + (len(mark) if self.whole else 0)


# ---------------------------------------------------------------- whole regions


def _read(region: str, tokens: Tokens) -> Calls | None:
    try:
        if not tokens.start or not region.startswith(tokens.start):
            return _alone(region.strip())
        body = region.removeprefix(tokens.start)
        if not tokens.args:
            return _objects(body.removesuffix(tokens.end))
        name, behind, arguments = body.partition(tokens.args)
        if behind:
            return (Called(_word(name), _arguments(arguments.removesuffix(tokens.end))),)
        name, ended, rest = body.lstrip().partition(tokens.end)
        return (Called(_word(name), "{}"),) if ended and not rest.strip() else None
    except ValueError:
        return None


def _alone(text: str) -> Calls | None:
    """Rule B."""
    if text.startswith(("{", "[")):
        return _objects(text)
    name, _, arguments = text.partition("\n")
    return (Called(_word(name), _arguments(arguments)),)


def _word(name: str) -> str:
    if not name.strip():
        raise ValueError("no name")
    return name.strip()


def _arguments(text: str) -> str:
    """The JSON object that the arguments are; word for word where they are JSON. Raises ValueError."""
    for _ in range(MAX_STRINGS):
        text = text.strip()
        try:
            end = object_to(text)
        except ValueError:
            end = -1
        if end == len(text):
            return text
        value = _value(text)
        if isinstance(value, dict):
            return as_json(value)
        if not isinstance(value, str):
            break
        text = value
    raise ValueError("no object")


def _objects(text: str) -> Calls | None:
    calls = calls_in(text, KEYS)
    if calls is not None:
        return calls
    value = _value(text)
    items = value if isinstance(value, list) else [value]
    return tuple(map(_call, items)) if 0 < len(items) <= MAX_CALLS else None


def _call(value: Any) -> Called:
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        raise ValueError("no name")
    given = [key for key in KEYS if key in value]
    if len(given) > 1 or not value.keys() <= {"name", *given} | BESIDE:
        raise ValueError("not the members of a call")
    arguments = value[given[0]] if given else {}
    if isinstance(arguments, str):
        return Called(value["name"], _arguments(arguments))
    if not isinstance(arguments, dict):
        raise ValueError("no object")
    return Called(value["name"], as_json(arguments))


def _value(text: str) -> Any:
    """JSON, or what of JSON5 is read. Raises ValueError."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return literal(expression(text))
