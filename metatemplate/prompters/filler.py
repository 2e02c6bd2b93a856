"""Fills the instruction template of a prompter with the slot values of a request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from metatemplate.prompters.assembly import Turn
from metatemplate.prompters.dialects import DIALECTS
from metatemplate.prompters.instruction import (
    TOOL_NAMES,
    alpaca_instruction,
    chat_instruction,
    tool_names,
)
from metatemplate.prompters.request import SlotValues
from metatemplate.prompters.safe_fill import SafeInstruction
from metatemplate.prompters.segments import TOOLS
from metatemplate.templates.spec import PrompterSpec
from metatemplate.values.prompt import Segment, Segments


def instruction_of(spec: PrompterSpec) -> str:
    """Return the instruction template with LazyLLM's tags and with open slots."""
    dialect = DIALECTS[spec.dialect]
    if spec.form == "empty":
        return ""
    write = alpaca_instruction if spec.form == "alpaca" else chat_instruction
    return write(spec.instruction, spec.extra_keys, dialect)


def slots_in(spec: PrompterSpec) -> tuple[str, ...]:
    """Return the names of the slots that a request may fill."""
    return SafeInstruction.compiled(instruction_of(spec), spec.tokens, tools=False).slots


class InstructionFiller:
    """The instruction template of one prompter, ready to be filled for each request."""

    def __init__(self, spec: PrompterSpec) -> None:
        self._spec = spec
        self.dialect = DIALECTS[spec.dialect]
        self._instruction = instruction_of(spec)
        has_preamble = self.dialect.modern and not spec.messages
        self._safe = {
            tools: SafeInstruction.compiled(
                self._instruction, spec.tokens, tools=tools, preamble=tools and has_preamble
            )
            for tools in (False, True)
        }
        self.slots = slots_in(spec)
        """The names of the slots that a request may fill."""

    def fill(self, values: SlotValues, tools: list[Any], folded: Sequence[Turn] = ()) -> tuple[Segments, Segments]:
        """Return the filled system part and user part.

        ``folded``: the request's system messages, which are added to the system part. Raises InvalidInput for a tool
        without a name.
        """
        is_named = tools and (not self._spec.messages or f"{{{TOOL_NAMES}}}" in self._instruction)
        names = {TOOL_NAMES: Segment(tool_names(tools), *TOOLS)} if is_named else {}
        return self._safe[bool(tools)].fill({**values.segments, **names}, folded)
