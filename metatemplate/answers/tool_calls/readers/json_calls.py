"""The reader ``json``: calls whose arguments are JSON. The text of the arguments is not changed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from metatemplate.answers.stops.stop_search import StopSet
from metatemplate.answers.tool_calls.format import (
    BLANKS,
    NAME,
    Format,
    Found,
    ParsedCall,
    Region,
    ToolSchemas,
    blank_to,
    end_with,
    ending,
    one_of,
    opening,
    skip_header,
    skip_value,
)

UNUSED_KEYS = frozenset({"id", "type"})
"""Further keys that models write in a call. The keys are dropped, because the gateway assigns ids."""
ID = rf"(?P<id>(?:functions\.)?(?P<name>{NAME}):\d{{1,9}})"
"""An id that contains the name of the tool, such as ``functions.add:0``."""

_value_at = json.JSONDecoder().raw_decode


@dataclass(frozen=True, kw_only=True)
class JsonCalls:
    """The texts of a format whose calls are JSON after ``begin``, from a row of ``formats.yaml``."""

    begin: str = ""
    before: str = ""
    """Text before the first call, which may be missing."""
    after: tuple[str, ...] = ()
    """Texts after a call, each of which may be missing."""
    keys: tuple[str, ...] = ()
    """Calls are objects with ``name`` and one of these keys for the arguments, or lists of such objects."""
    first: bool = False
    """Calls may also stand at the beginning of the answer without ``begin``."""
    separator: str = ""
    """Text between two calls without ``begin``."""
    name_end: tuple[str, ...] = ()
    """The name stands before the arguments, and one of these texts between. With ``keys``, a list has no name."""
    ids: bool = False
    """An id as in ``ID`` stands in place of the name."""
    id_begin: str = ""
    """Begins an id after the name, which is not kept."""

    @cached_property
    def _name(self) -> str:
        """The pattern of the name before the arguments. Empty if no name stands there."""
        id_after = rf"(?:{re.escape(self.id_begin)}\w{{1,64}})?" if self.id_begin else ""
        name = ID if self.ids else f"(?P<id>)(?P<name>{NAME})"
        name = rf"{name}{BLANKS}{id_after}{one_of(self.name_end)}{BLANKS}(?=\{{)"
        return "" if not self.name_end else rf"(?:{name}|(?=\[))" if self.keys else name

    @cached_property
    def header(self) -> re.Pattern[str] | None:
        """The pattern of what stands before the arguments; None if no name stands there."""
        return re.compile(opening(self.before, self.begin) + self._name) if self.name_end else None

    def format(self) -> Format:
        """Return the format."""
        members = one_of(tuple([f'"{key}"' for key in ("name", *self.keys)]))
        begins_object = rf"\[?{BLANKS}\{{{BLANKS}{members}"
        return Format(
            rule=self.rule,
            read=self.read,
            markers=StopSet((self.before, self.begin)),
            openers="{[" if self.first else "",
            before=self.before,
            separator=self.separator,
            failure_signs=tuple(filter(None, (self.begin, '"name"' if self.first else ""))),
            sign=self.begin and opening("", self.begin) + (self._name or begins_object),
        )

    def rule(self, region: Region) -> Generator[None, None, int]:
        """Find the end of a region: see ``Format.rule``."""
        if self.header is not None:
            if not (yield from skip_header(region, self.header)):
                return region.marker
        elif region.text == self.begin:
            region.at = len(self.begin)
        yield from skip_value(region)
        return (yield from end_with(region, self.after))

    def read(self, text: str, tools: ToolSchemas) -> Found:
        """Read a complete region: see ``Format.read``."""
        found = None if self.header is None else self.header.match(text)
        if self.header is not None and found is None:
            raise ValueError("the name of the tool is missing")
        if found is not None and found["name"]:
            end = _value_at(text, found.end())[1]
            calls: Found = (ParsedCall(found["name"], one_object(text[found.end() : end]), found["id"]),)
        else:
            at = found.end() if found is not None else len(self.begin) if text.startswith(self.begin) else 0
            calls, end = _calls_at(text, at, self.keys)
        if not re.fullmatch(ending(self.after), text[end:]):
            raise ValueError("the text continues after the calls")
        return calls


def as_json(value: Any) -> str:
    """Return the value as JSON text. Raises ``ValueError`` for values such as NaN or a lone surrogate."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    text.encode()
    return text


def unique(members: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of these members. Raises ``ValueError`` for a key that comes twice."""
    if len(dict(members)) < len(members):
        raise ValueError("an object has a repeated key")
    return dict(members)


def one_object(text: str) -> str:
    """Return the text unchanged. Raises ``ValueError`` if the text is not one valid JSON object."""
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError("the arguments are not an object")
    as_json(value)
    return text


def calls_in(text: str, keys: Sequence[str]) -> Found:
    """Return the calls in an object or list of objects. Each has ``name``, and arguments under one of ``keys``."""
    calls, end = _calls_at(text, 0, keys)
    if blank_to(text, end) < len(text):
        raise ValueError("the text continues after the calls")
    return calls


def _calls_at(text: str, at: int, keys: Sequence[str]) -> tuple[Found, int]:
    """Return the calls in the object or list that starts at index ``at``, and the index where it ends."""
    calls: list[ParsedCall] = []

    def read(at: int) -> int:
        call, end = _call_at(text, at, keys)
        calls.append(call)
        return end

    at = blank_to(text, at)
    end = _read_items(text, at, "[]", read) if text[at : at + 1] == "[" else read(at)
    return tuple(calls), end


def _call_at(text: str, at: int, keys: Sequence[str]) -> tuple[ParsedCall, int]:
    """Return the call in the object that starts at index ``at``, and the index where the object ends."""
    members: dict[str, tuple[Any, str]] = {}

    def read(at: int) -> int:
        key, at = _value_at(text, at)
        at = blank_to(text, at)
        if not isinstance(key, str) or key in members or text[at : at + 1] != ":":
            raise ValueError("an object has an invalid or repeated key")
        at = blank_to(text, at + 1)
        value, end = _value_at(text, at)
        members[key] = value, text[at:end]
        return end

    end = _read_items(text, at, "{}", read)
    given = [key for key in keys if key in members]
    if len(given) != 1 or not members.keys() <= {"name", *given} | UNUSED_KEYS:
        raise ValueError("a tool call has missing or unknown keys")
    (name, _), (arguments, written) = members.get("name", (None, "")), members[given[0]]
    if not isinstance(name, str) or not name or not isinstance(arguments, dict):
        raise ValueError("a tool call has no name, or its arguments are not an object")
    as_json(arguments)
    return ParsedCall(name, written), end


def _read_items(text: str, at: int, brackets: str, read: Callable[[int], int]) -> int:
    """Return the end of the list or object that starts at ``at``. ``read``: maps an item's start to the item's end."""
    if text[at : at + 1] != brackets[0]:
        raise ValueError("the opening bracket is missing")
    while True:
        at = blank_to(text, read(blank_to(text, at + 1)))
        sign = text[at : at + 1]
        if sign == brackets[1]:
            return at + 1
        if sign != ",":
            raise ValueError("no comma and no closing bracket after a tool call")
