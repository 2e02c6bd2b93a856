"""``llama3_json``: ``{"name": …, "parameters": {…}}`` at the beginning, or after ``<|python_tag|>``.

A ``;`` separates two calls. The arguments stand under ``parameters`` or ``arguments``. Code after the marker is text.
"""

from __future__ import annotations

from collections.abc import Generator

from gateway.stream.stop_search import StopSet
from gateway.stream.tool_calls.format import Calls, Format
from gateway.stream.tool_calls.json_calls import calls_in
from gateway.stream.tool_calls.region import Region, skip_value

MARKER = "<|python_tag|>"
KEYS = ("parameters", "arguments")


def _rule(region: Region) -> Generator[None, None, int]:
    region.at = len(MARKER) if region.text.startswith(MARKER) else 0
    yield from skip_value(region)
    return region.offset


def _read(text: str) -> Calls | None:
    return calls_in(text.removeprefix(MARKER), KEYS)


LLAMA3_JSON = Format(
    rule=_rule, read=_read, markers=StopSet((MARKER,)), openers="{[", separator=";", failure_signs=(MARKER, '"name"')
)
