"""The table of tool-call formats. A new format needs a row here, and its name in core/answer_markers.ToolParser."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from metatemplate.answers.tool_calls.format import Format
from metatemplate.answers.tool_calls.readers.json_formats import HERMES, JSON, LLAMA3_JSON, MISTRAL
from metatemplate.answers.tool_calls.readers.lazyllm import lazyllm
from metatemplate.answers.tool_calls.readers.python_calls import PYTHONIC
from metatemplate.values.answer_markers import ToolTokens

FORMATS: Mapping[str, Callable[[ToolTokens, Collection[str]], Format]] = {
    "hermes": lambda tokens, names: HERMES,
    "json": lambda tokens, names: JSON,
    "llama3_json": lambda tokens, names: LLAMA3_JSON,
    "pythonic": lambda tokens, names: PYTHONIC,
    "mistral": lambda tokens, names: MISTRAL,
    "lazyllm": lazyllm,
}
"""``tools.parser`` → function that returns the format. Only ``lazyllm`` uses its arguments: tokens and tool names."""
