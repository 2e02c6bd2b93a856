"""The reader ``quoted``: calls such as ``call:add{a:1,b:<|"|>text<|"|>}``, with bare keys and a text as quote.

The client receives the arguments as a JSON object.
"""

from __future__ import annotations

import json
import re
from collections.abc import Generator

from metatemplate.answers.stops.stop_search import StopSet
from metatemplate.answers.tool_calls.format import (
    NAME,
    Format,
    Found,
    ParsedCall,
    Region,
    ToolSchemas,
    opening,
    skip_header,
    skip_past,
)
from metatemplate.answers.tool_calls.readers.argument_types import PYTHON_WORDS
from metatemplate.answers.tool_calls.readers.json_calls import as_json, unique

BARE = re.compile(r"""(?s:"(?:[^"\\]|\\.)*")|([^\s{}\[\],:"]+)(\s*:)?""")
"""A string of JSON; or a key without quotes, or a value that is no string."""


def quoted_format(*, begin: str, quote: str, end: str) -> Format:
    """Return a format whose calls are ``begin``, the name, an object with strings in ``quote``, and ``end``."""
    header = re.compile(rf"{opening('', begin)}(?P<name>{NAME})(?=\{{)")

    def rule(region: Region) -> Generator[None, None, int]:
        if not (yield from skip_header(region, header)):
            return region.marker
        while (mark := (yield from skip_past(region, (quote, end, begin)))) == quote:
            yield from skip_past(region, (quote,))
        region.whole = mark == end
        return region.offset if region.whole else region.marker

    def read(text: str, tools: ToolSchemas) -> Found:
        head = header.match(text)
        if head is None:
            raise ValueError("the name of the tool is missing")
        pieces = text[head.end() :].removesuffix(end).split(quote)
        pieces[::2] = [BARE.sub(_as_json, piece) for piece in pieces[::2]]
        pieces[1::2] = map(as_json, pieces[1::2])
        value = json.loads("".join(pieces), object_pairs_hook=unique)
        if not isinstance(value, dict):
            raise ValueError("the arguments are not an object")
        return (ParsedCall(head["name"], as_json(value)),)

    return Format(rule=rule, read=read, markers=StopSet((begin,)), failure_signs=(begin,), sign=header.pattern)


def _as_json(bare: re.Match[str]) -> str:
    return as_json(bare[1]) + bare[2] if bare[2] else PYTHON_WORDS.get(bare[1] or "", bare[0])
