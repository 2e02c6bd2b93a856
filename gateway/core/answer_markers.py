"""The texts by which a model marks reasoning and tool calls in its answer."""

from __future__ import annotations

from typing import Annotated, Literal

from gateway.core.frozen import dataclass

NonEmpty = Annotated[str, "not empty"]
"""A text that is not empty in a template file."""
ToolParser = Literal["hermes", "json", "llama3_json", "pythonic", "mistral", "lazyllm"]
"""The formats of tool calls; ``FORMATS`` in ``stream/tool_calls/registry.py`` has a row for each."""
ReasoningField = Literal["reasoning_content", "reasoning"]


@dataclass(frozen=True, slots=True)
class ToolTokens:
    """The texts around a tool call in the format ``lazyllm``. If all are empty, each call is one line."""

    start: str = ""
    args: str = ""
    end: str = ""


@dataclass(frozen=True, slots=True)
class Thinking:
    """The model writes its reasoning between two markers."""

    begin: NonEmpty
    end: NonEmpty
    open: bool | Literal["auto"] = False
    """True: every prompt ends inside the reasoning. ``auto`` (in template files only): a prompt ends inside the
    reasoning only if the prompt ends with ``begin``."""
    fields: tuple[ReasoningField, ...] = ("reasoning_content", "reasoning")
    """The answer's keys for the reasoning."""
