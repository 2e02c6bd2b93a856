"""Renders dialogues as a LazyLLM prompter does (``kind: prompter``).

``safe_fill`` fills the slots, or ``exact_fill`` if the template file has ``exact: true``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gateway.core import fast_paths
from gateway.core.dialogue import Dialogue
from gateway.core.errors import InvalidValue
from gateway.core.prompt import Pieces, Prompt, Segment, Segments
from gateway.template.lazyllm.assembly import Turn, assemble, pair_segments, turn_segments
from gateway.template.lazyllm.dialects import DIALECTS, PrompterError
from gateway.template.lazyllm.exact_fill import fill, fold, prepared, split_parts, with_folded_place
from gateway.template.lazyllm.fast_layouts import FastLayouts
from gateway.template.lazyllm.instruction import (
    TOOL_NAMES,
    alpaca_instruction,
    chat_instruction,
    slots_of,
    tool_names,
    write_tools,
)
from gateway.template.lazyllm.request import PrompterInput, SlotValues, read_dialogue, slot_values
from gateway.template.lazyllm.safe_fill import SafeInstruction
from gateway.template.lazyllm.segments import TOOLS, text_of
from gateway.template.spec import PrompterSpec, TemplateSpec
from gateway.template.stops import prompt_metadata
from gateway.template.tools import choice_of, forced, tools_of

REST = "the input"
"""LazyLLM's key for the current turn, next to the slot values. No slot can have this name, because of the space."""
MAX_SHOWN = 80
"""An error repeats at most this many characters of LazyLLM's error text."""


def instruction_of(spec: PrompterSpec) -> str:
    """The instruction template with LazyLLM's tags and with open slots."""
    dialect = DIALECTS[spec.dialect]
    if spec.form == "empty":
        return ""
    write = alpaca_instruction if spec.form == "alpaca" else chat_instruction
    return write(spec.instruction, spec.extra_keys, dialect)


def slots_in(spec: PrompterSpec) -> tuple[str, ...]:
    """The names of the slots that a request may fill."""
    instruction = instruction_of(spec)
    if spec.exact:
        return slots_of(text_of(prepared(instruction, spec.tokens, DIALECTS[spec.dialect], (), preamble=False)))
    return SafeInstruction.compiled(instruction, spec.tokens, tools=False).slots


class PrompterTemplate:
    """Renders dialogues with the prompter of a template file."""

    def __init__(self, spec: TemplateSpec) -> None:
        assert spec.prompter is not None
        self.spec = spec
        self._prompter = spec.prompter
        self._dialect = DIALECTS[spec.prompter.dialect]
        self._instruction = instruction_of(spec.prompter)
        self._safe = {
            tools: SafeInstruction.compiled(self._instruction, spec.prompter.tokens, tools=tools)
            for tools in (False, True)
        }
        self._slots = slots_in(spec.prompter)
        self._metadata = prompt_metadata(spec, self._segments)
        self._fast: FastLayouts | None = None
        if fast_paths.ENABLED and not (spec.prompter.exact and self._slots):  # exact filling searches the texts
            self._fast = FastLayouts(self._render_general, [s for s in self._slots if s != spec.prompter.input_slot])

    def render(self, dialogue: Dialogue) -> Prompt:
        """See ``base.Template``."""
        prompt = self._fast.render(dialogue) if self._fast is not None else None
        return self._render_general(dialogue) if prompt is None else prompt

    def _segments(self, dialogue: Dialogue) -> Segments:
        return self._render_general(dialogue).segments or ()

    def _render_general(self, dialogue: Dialogue) -> Prompt:
        """Render any dialogue, without the fast path. The prompt has segments."""
        choice = choice_of(dialogue)
        tools = [] if choice.mode == "none" else [dict(tool) for tool in tools_of(dialogue)]
        found = read_dialogue(dialogue, self._prompter)
        values = slot_values(found, dialogue.options.variables, self._slots, self._prompter)
        segments: Segments = values.current
        if self._prompter.form != "empty":
            try:
                segments = self._assembled(found, values, tools)
            except PrompterError as error:
                shown = ascii(error.message[:MAX_SHOWN])[1:-1]
                raise InvalidValue(
                    f"the prompter of this model refuses the request, as LazyLLM does: {shown}", param="messages"
                ) from error
        if dialogue.options.whole and found.answer is not None:  # the mark at which an answer ends
            segments = (*segments, Segment(self._prompter.tokens.eoa, "assistant", found.answer.origin, True))
        opened = forced(self.spec.tools, dialogue, choice, "assistant") if self.spec.tools else ()
        segments = tuple([segment for segment in (*segments, *opened) if segment.text])
        metadata = replace(self._metadata, notices=found.notices, opened=text_of(opened))
        if tools and self._prompter.exact and self._prompter.tokens.tool_end_token:
            metadata = replace(metadata, stops=(*metadata.stops, self._prompter.tokens.tool_end_token))
        labels = tuple([(segment.role, segment.origin, segment.scaffold) for segment in segments])
        texts = tuple([segment.text for segment in segments])
        return Prompt("".join(texts), metadata, Pieces(texts, labels))

    def _assembled(self, found: PrompterInput, values: SlotValues, tools: list[Any]) -> Segments:
        tokens, dialect, current = self._prompter.tokens, self._dialect, found.current[0]
        fill = self._exact_fill if self._prompter.exact else self._safe_fill
        system, user, texts = fill(values, tools, found.system)
        return assemble(
            self._prompter.form,
            tokens,
            dialect,
            system=system,
            user=user,
            tools=write_tools(tools, dialect),
            history=(*pair_segments(self._prompter.history, tokens), *turn_segments(found.history, tokens, dialect)),
            current=texts,
            label=(current.role, current.origin, True),
            in_environment=found.in_environment and dialect.modern,
            answer=found.answer.text if found.answer is not None else None,
        )

    def _safe_fill(
        self, values: SlotValues, tools: list[Any], folded: tuple[Turn, ...]
    ) -> tuple[Segments, Segments, Segments]:
        names = {TOOL_NAMES: Segment(tool_names(tools), *TOOLS)} if tools else {}
        return (*self._safe[bool(tools)].fill({**values.segments, **names}, folded), values.current)

    def _exact_fill(
        self, values: SlotValues, tools: list[Any], folded: tuple[Turn, ...]
    ) -> tuple[Segments, Segments, Segments]:
        tokens, dialect = self._prompter.tokens, self._dialect
        texts: dict[str, Any] = {name: segment.text for name, segment in values.segments.items()}
        given: Any = {**texts, **({REST: values.current} if values.current else {})}
        if values.only_slot:
            given = texts[values.only_slot]
        elif not self._slots and len(values.current) == 1 and values.current[0].role == "user":
            given = values.current[0].text
        labels = {name: (segment.role, segment.origin, False) for name, segment in values.segments.items()}
        own = with_folded_place(self._instruction) if folded else self._instruction
        instruction = prepared(own, tokens, dialect, tools, preamble=bool(tools))
        filled, rest = fill(instruction, given, labels, dialect)
        system, user = split_parts(filled, dialect.parts)
        return fold(system, folded) if folded else system, user, values.current if rest else ()
