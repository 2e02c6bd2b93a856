"""``hermes``: ``<tool_call>{"name": …, "arguments": {…}}</tool_call>``, anywhere in the text.

Nous Hermes and the models that were trained on its form write it. An end marker inside a string of the arguments
belongs to the string. A call that is complete but for its end marker counts.
"""

from __future__ import annotations

from collections.abc import Generator

from gateway.stream.stop_search import StopSet
from gateway.stream.tool_calls.format import Calls, Format
from gateway.stream.tool_calls.json_calls import calls_in
from gateway.stream.tool_calls.region import Region, end_with, skip_value

BEGIN, END = "<tool_call>", "</tool_call>"


def _rule(region: Region) -> Generator[None, None, int]:
    region.at = len(BEGIN)
    yield from skip_value(region)
    return (yield from end_with(region, END))


def _read(text: str) -> Calls | None:
    return calls_in(text.removeprefix(BEGIN).removesuffix(END))


HERMES = Format(rule=_rule, read=_read, markers=StopSet((BEGIN,)), failure_signs=(BEGIN,))
