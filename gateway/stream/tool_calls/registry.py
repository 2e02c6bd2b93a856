"""The table of tool-call formats. To add one: its ``Format``, its name in ``ToolParser``, and a row here."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from gateway.core.answer_markers import ToolTokens
from gateway.stream.tool_calls.format import Format
from gateway.stream.tool_calls.json_formats import HERMES, JSON, LLAMA3_JSON, MISTRAL
from gateway.stream.tool_calls.lazyllm import lazyllm
from gateway.stream.tool_calls.pythonic import PYTHONIC

FORMATS: Mapping[str, Callable[[ToolTokens, Collection[str]], Format]] = {
    "hermes": lambda tokens, names: HERMES,
    "json": lambda tokens, names: JSON,
    "llama3_json": lambda tokens, names: LLAMA3_JSON,
    "pythonic": lambda tokens, names: PYTHONIC,
    "mistral": lambda tokens, names: MISTRAL,
    "lazyllm": lazyllm,
}
"""By ``tools.parser``: the format for a template's tokens and a request's tool names, which only ``lazyllm`` needs."""
