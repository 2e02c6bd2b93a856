"""``hermes``: ``<tool_call>{"name": …, "arguments": {…}}</tool_call>``, anywhere in the text.

The form of Nous Hermes and of the models that were trained on it. An end marker inside a string of the arguments is
part of the string. A call that is complete but for its end marker counts as one.
"""

from __future__ import annotations

from gateway.stream.stop_search import StopSet
from gateway.stream.tool_calls.base import Calls, Format
from gateway.stream.tool_calls.values import Closed, Value, calls_in

BEGIN, END = "<tool_call>", "</tool_call>"


def _read(region: str) -> Calls | None:
    return calls_in(region.removeprefix(BEGIN).removesuffix(END))


HERMES = Format(lambda: Closed(Value(BEGIN), END), _read, markers=StopSet((BEGIN,)), telling=(BEGIN,))
