"""The texts that mark reasoning and tool calls in a model's answer."""

from __future__ import annotations

from typing import Literal

from metatemplate.values.frozen import dataclass
from metatemplate.values.kinds import NonEmpty, SwitchOrAuto

ReasoningField = Literal["reasoning_content", "reasoning"]
REASONING_FIELDS: tuple[ReasoningField, ...] = ("reasoning_content", "reasoning")


@dataclass(frozen=True, slots=True)
class ToolTokens:
    """The texts around a tool call in the format ``lazyllm``. If all texts are empty, each tool call is one line."""

    start: str = ""
    args: str = ""
    end: str = ""


@dataclass(frozen=True, slots=True)
class Thinking:
    """The two markers between which a model writes its reasoning."""

    begin: NonEmpty
    end: NonEmpty
    open: SwitchOrAuto = False
    """True: every answer begins inside the reasoning, because the prompt opens it. ``auto`` (in template files only):
    an answer begins inside the reasoning only if the prompt ends with ``begin``."""
    fields: tuple[ReasoningField, ...] = REASONING_FIELDS
    """The keys of the answer's message that contain the reasoning."""
