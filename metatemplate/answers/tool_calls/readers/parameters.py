"""The reader ``parameters``: calls whose arguments are written one by one, each with a key and a value between texts.

These are XML with the key in the tag, pairs of keys and values, and DSML, which also names the type of each value.
Between the texts there may be white space.

A value ends at the first ``value_end`` that the next key or the end of the call follows, so a string may contain all
other texts of the format.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping, Set
from dataclasses import dataclass, field
from functools import cached_property

from metatemplate.answers.stops.stop_search import StopSet
from metatemplate.answers.tool_calls.format import (
    BLANKS,
    NAME,
    BrokenCall,
    Format,
    Found,
    ParsedCall,
    Region,
    ToolSchemas,
    end_with,
    ending,
    one_of,
    opening,
    skip_header,
    skip_one,
    skip_past,
)
from metatemplate.answers.tool_calls.readers.argument_types import NO_STRING, STRING, typed, types_of
from metatemplate.answers.tool_calls.readers.json_calls import as_json

NAMED_TYPES: Mapping[str, Set[str]] = {"text": STRING, "json": NO_STRING}
"""The type of a value that its own tag names → the types in JSON Schema."""


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """The texts of a format whose calls are ``begin``, the name, ``name_end``, keys and values, and ``end``.

    They come from a row of ``formats.yaml``.
    """

    begin: str
    key_begin: str
    key_end: str
    value_end: str
    end: str
    name_end: str = ""
    before: str = ""
    """Text before the first call, which may be missing."""
    after: tuple[str, ...] = ()
    """Texts after a call, each of which may be missing."""
    value_begin: Mapping[str, str] = field(default_factory=lambda: {"": "schema"})
    """Text between ``key_end`` and a value → the type of the value: ``text``, ``json``, or ``schema``, as the schema
    of the tool says."""
    common: bool = False
    """The call may be ordinary XML. In an answer of another format, only one with ``before`` and an argument counts."""
    line_breaks: bool = False
    """A line break before and after each value does not belong to the value."""

    @cached_property
    def _follows(self) -> str:
        return f"(?={one_of((self.key_begin, self.end))})"

    @cached_property
    def _header(self) -> re.Pattern[str]:
        return re.compile(opening(self.before, self.begin) + self._name)

    @property
    def _name(self) -> str:
        return f"(?P<name>{NAME}){BLANKS}{re.escape(self.name_end)}{BLANKS}{self._follows}"

    @cached_property
    def _parameter(self) -> re.Pattern[str]:
        between = re.escape(self.key_end) + ("" if "" in self.value_begin else r"\s*")
        return re.compile(
            rf"(?s:{re.escape(self.key_begin)}(?P<key>[^\n<>\"]+){between}(?P<type>{one_of(tuple(self.value_begin))})"
            rf"(?P<value>.*?){re.escape(self.value_end)}\s*{self._follows})"
        )

    def format(self) -> Format:
        """Return the format."""
        outer = re.escape(self.before) + BLANKS if self.common and self.before else ""
        required = outer + re.escape(self.begin)
        return Format(
            rule=self.rule,
            read=self.read,
            markers=StopSet((self.before, self.begin)),
            before=self.before,
            failure_signs=(self.begin,),
            sign=f"{required}{self._name}{re.escape(self.key_begin)}" if self.common else required + self._name,
        )

    def rule(self, region: Region) -> Generator[None, None, int]:
        """Find the end of a region: see ``Format.rule``."""
        if not (yield from skip_header(region, self._header)):
            return region.marker
        mark = yield from skip_one(region, (self.key_begin, self.end))
        while mark != self.end:
            yield from skip_past(region, (self.value_end,))
            mark = yield from skip_one(region, (self.key_begin, self.end))
        region.whole = True
        return (yield from end_with(region, self.after))

    def read(self, text: str, tools: ToolSchemas) -> Found:
        """Read a complete region: see ``Format.read``."""
        head = self._header.match(text)
        if head is None:
            raise ValueError("the name of the tool is missing")
        at, given, mistyped = head.end(), dict[str, str](), []
        while (found := self._parameter.match(text, at)) is not None:
            key, value, of_type = found["key"].strip(), found["value"], self.value_begin[found["type"]]
            if key in given:
                raise BrokenCall("an argument comes twice")
            if self.line_breaks:
                value = value.removeprefix("\n").removesuffix("\n")
            types = NAMED_TYPES.get(of_type)
            given[key], fits = typed(value, types_of(tools.get(head["name"], {}), key) if types is None else types)
            if not fits and self._header.search(value):
                raise BrokenCall("a value has the wrong type and contains a call")
            mistyped += [] if fits else [key]
            at = found.end()
        if not re.fullmatch(re.escape(self.end) + ending(self.after), text[at:]):
            raise BrokenCall("the text continues after the arguments")
        arguments = ", ".join([f"{as_json(key)}: {value}" for key, value in given.items()])
        return (ParsedCall(head["name"], f"{{{arguments}}}", mistyped=tuple(mistyped)),)
