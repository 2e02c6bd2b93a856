"""Renders dialogues as a LazyLLM prompter does (``kind: prompter``), for targets that take one string."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from metatemplate.prompters.assembly import assemble, pair_segments, turn_segments
from metatemplate.prompters.fast_layouts import FastLayouts
from metatemplate.prompters.filler import InstructionFiller
from metatemplate.prompters.instruction import write_tools
from metatemplate.prompters.request import PrompterInput, SlotValues, read_dialogue, slot_values, with_default_tools
from metatemplate.prompters.segments import text_of
from metatemplate.templates.spec import TemplateSpec
from metatemplate.templates.stops import prompt_metadata
from metatemplate.templates.tools import choice_of, forced, tools_of
from metatemplate.values import fast_paths
from metatemplate.values.dialogue import Dialogue
from metatemplate.values.prompt import Prompt, Segment, Segments


class PrompterTemplate:
    """Renders dialogues with the prompter of a template file."""

    def __init__(self, spec: TemplateSpec) -> None:
        assert spec.prompter is not None
        self.spec = spec
        self._prompter = spec.prompter
        self._filler = InstructionFiller(spec.prompter)
        self._metadata = prompt_metadata(spec, lambda dialogue: self._render_general(dialogue).segments or ())
        self._fast: FastLayouts | None = None
        if fast_paths.ENABLED:
            slots = [slot for slot in self._filler.slots if slot != spec.prompter.input_slot]
            self._fast = FastLayouts(self._render_general, slots)

    def render(self, dialogue: Dialogue) -> Prompt:
        """Return the prompt for this dialogue. See ``base.Template``."""
        if self._prompter.default_tools:
            dialogue = with_default_tools(dialogue, self._prompter)
        prompt = self._fast.render(dialogue) if self._fast is not None else None
        return self._render_general(dialogue) if prompt is None else prompt

    def _render_general(self, dialogue: Dialogue) -> Prompt:
        """Render any dialogue, without the fast path. The prompt has segments."""
        choice = choice_of(dialogue)
        tools = [] if choice.mode == "none" else [dict(tool) for tool in tools_of(dialogue)]
        found = read_dialogue(dialogue, self._prompter)
        values = slot_values(found, dialogue.options.variables, self._filler.slots, self._prompter)
        segments: Segments = values.current
        if self._prompter.form != "empty":
            segments = self._assembled(found, values, tools)
        if dialogue.options.whole and found.answer is not None:  # the mark at which an answer ends
            segments = (*segments, Segment(self._prompter.tokens.eoa, "assistant", found.answer.origin, True))
        opened = forced(self.spec.tools, dialogue, choice, "assistant") if self.spec.tools else ()
        segments = tuple([segment for segment in (*segments, *opened) if segment.text])
        metadata = replace(self._metadata, notices=found.notices, opened=text_of(opened))
        return Prompt.of(segments, metadata)

    def _assembled(self, found: PrompterInput, values: SlotValues, tools: list[Any]) -> Segments:
        tokens, dialect, current = self._prompter.tokens, self._filler.dialect, found.current[0]
        system, user = self._filler.fill(values, tools, found.system)
        return assemble(
            self._prompter.form,
            tokens,
            dialect,
            system=system,
            user=user,
            tools=write_tools(tools, dialect),
            history=(*pair_segments(self._prompter.history, tokens), *turn_segments(found.history, tokens, dialect)),
            current=values.current,
            label=(current.role, current.origin, True),
            in_environment=found.in_environment and dialect.modern,
            answer=found.answer.text if found.answer is not None else None,
        )
