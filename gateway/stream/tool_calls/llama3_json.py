"""``llama3_json``: ``{"name": …, "parameters": {…}}`` at the beginning, or after ``<|python_tag|>``.

Between two calls stands a ``;``. Either of ``parameters`` and ``arguments`` names the arguments. Code after the marker
is no call: it stays text.
"""

from __future__ import annotations

from gateway.stream.stop_search import StopSet
from gateway.stream.tool_calls.base import Calls, Format, Region
from gateway.stream.tool_calls.values import Value, calls_in

MARKER = "<|python_tag|>"
KEYS = ("parameters", "arguments")


class _Region:
    """The marker, if there is one, and one JSON value."""

    __slots__ = ("_value",)

    def __init__(self) -> None:
        self._value: Region | None = None

    @property
    def whole(self) -> bool:
        """See ``base.Region``."""
        return self._value is not None and self._value.whole

    def feed(self, text: str) -> int | None:
        """See ``base.Region``; whoever opens the region feeds a marker whole."""
        if self._value is None:
            self._value = Value(MARKER if text.startswith(MARKER) else "")
        return self._value.feed(text)


def _read(region: str) -> Calls | None:
    return calls_in(region.removeprefix(MARKER), KEYS)


LLAMA3_JSON = Format(
    _Region, _read, markers=StopSet((MARKER,)), openers="{[", separator=";", telling=(MARKER, '"name"')
)
