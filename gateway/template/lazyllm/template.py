"""How does a dialogue become the text of a prompter? (``kind: prompter``, design 4.4)

Three ways to the same text. *Plain*: user and assistant in turn, written in one pass. *Safe*: everything else, slots
filled by ``filling.py``. *Exact* (``exact: true``): the reference's own steps, its accidents and refusals included.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import orjson

from gateway.core.dialogue import Dialogue, PlainMessages
from gateway.core.errors import InvalidValue
from gateway.core.prompt import Pieces, Prompt, Segment, SegmentLabel
from gateway.template.layout_render import FramedTemplate
from gateway.template.lazyllm.assembly import text_runs
from gateway.template.lazyllm.dialects import DIALECTS
from gateway.template.lazyllm.errors import PrompterError
from gateway.template.lazyllm.filling import TOOL_NAMES, filling_of, folded_runs
from gateway.template.lazyllm.history import history_runs
from gateway.template.lazyllm.instructions import USER_BEGINS
from gateway.template.lazyllm.plain import Plain
from gateway.template.lazyllm.prompter import Prompter, alpaca, chat, empty
from gateway.template.lazyllm.request import Asked, Turn, read_dialogue
from gateway.template.lazyllm.runs import Run, Runs, joined
from gateway.template.lazyllm.slots import fill, slots_of
from gateway.template.lazyllm.tools import tool_names, write_tools
from gateway.template.lazyllm.values import Values, values_of
from gateway.template.meta.renderer import origin_of
from gateway.template.spec.prompter import PrompterSpec
from gateway.template.spec.template import TemplateSpec
from gateway.template.stops import manner_of
from gateway.template.tools import choice_of, forced, tools_of

OWN: SegmentLabel = ("", "template", True)
"""What the template itself says."""
GENERATE: SegmentLabel = ("assistant", "generate", True)
CHOSEN: SegmentLabel = ("assistant", "tool_choice", False)

KNOWN = 32
"""Lists of tools that are kept as they are written: evaluations send the same one with every request."""
KEPT_BYTES = 64 * 1024
"""Of the JSON of such a list; longer ones are written anew each time."""

FOLD = "<!gateway-system!>"
"""Marks, while the reference's steps are taken, the place of the request's system messages."""

REST = "the input"
"""The key of what fills no slot: the reference takes any, and no slot can have a blank."""

MAX_SHOWN = 80
"""Characters of the reference's words that an error repeats."""


def prompter_of(spec: PrompterSpec) -> Prompter:
    """The library's prompter that the file describes."""
    dialect = DIALECTS[spec.dialect]
    if isinstance(spec.instruction, tuple):
        instruction: Any = dict(zip(("system", "user"), spec.instruction, strict=True))
    else:
        instruction = spec.instruction
    keys = list(spec.extra_keys)
    if spec.form == "alpaca":
        made = alpaca(instruction, keys, dialect=dialect)
    elif spec.form == "chat":
        made = chat(instruction, keys, history=[list(pair) for pair in spec.history], dialect=dialect)
    else:
        made = empty(dialect=dialect)
    return replace(made, marks=spec.marks)


def slots_in(spec: PrompterSpec) -> tuple[str, ...]:
    """The slots that a request may fill."""
    if spec.form == "empty":
        return ()
    prompter = prompter_of(spec)
    if spec.exact:
        return slots_of(joined(prompter.prepared(None, as_text=False)))
    return filling_of(prompter.instruction, spec.marks, tools=False).slots


class PrompterTemplate(FramedTemplate):
    """Renders dialogues into marked pieces, as one prompter writes them."""

    def __init__(self, spec: TemplateSpec) -> None:
        if spec.prompter is None:
            raise ValueError("a prompter template without a prompter passed the checks")
        self.spec = spec
        self._said = spec.prompter
        self._prompter = prompter_of(spec.prompter)
        self._slots = slots_in(spec.prompter)
        self._fillings = {
            tools: filling_of(self._prompter.instruction, spec.prompter.marks, tools=tools) for tools in (False, True)
        }
        self._manner = manner_of(spec, self._segments)
        fits = Plain.fits(self._said, self._prompter, self._fillings[False])
        self._plain = Plain(self._said, self._prompter, self._fillings[False], self._manner) if fits else None
        super().__init__(self._plain.frame if self._plain else lambda _: None)
        self._writes_tools = fits and spec.tools is not None and not spec.prompter.exact
        self._known: OrderedDict[bytes, Plain] = OrderedDict()
        """By their tools as JSON: the plain ways of the latest requests with tools."""

    def _rendered(self, dialogue: Dialogue) -> Prompt:
        messages, wishes = dialogue.messages, dialogue.wishes
        if not wishes.continue_final and wishes.tool_choice in (None, "auto"):
            plain = self._with_tools(dialogue) if wishes.tools else self._plain
            if plain is not None and isinstance(messages, PlainMessages):
                roles, variables = messages.roles, wishes.variables
                layouts = plain.varied if variables else plain.unvaried
                try:  # ``layouts.of``, written out
                    known, layout = layouts.latest[len(roles)]
                except KeyError:
                    known = layout = None
                if known != roles:
                    layout = layouts.found(roles)
                if layout is not None:
                    text = layout.filled(messages.texts, variables)
                    if text is not None:
                        return Prompt(text, layout.manner, dialogue)
        return self._in_pieces(dialogue)

    def _with_tools(self, dialogue: Dialogue) -> Plain | None:
        """The plain way with the tools of this request."""
        if not self._writes_tools:
            return None
        try:
            key = orjson.dumps(dialogue.tools)
        except orjson.JSONEncodeError:  # half a character, say: the general way knows what is wrong with it
            return None
        if len(key) > KEPT_BYTES:
            return None
        known = self._known.get(key)
        if known is None:
            tools = [dict(tool) for tool in tools_of(dialogue)]
            known = Plain(self._said, self._prompter, self._fillings[True], self._manner, tools)
            self._known[key] = known
            while len(self._known) > KNOWN:
                self._known.popitem(last=False)
        return known

    def _segments(self, dialogue: Dialogue) -> tuple[Segment, ...]:
        return self._in_pieces(dialogue).segments or ()

    def _in_pieces(self, dialogue: Dialogue) -> Prompt:
        """What ``render`` gives, with everything that is to be told of it."""
        asked = read_dialogue(dialogue, self._said)
        choice = choice_of(dialogue)
        tools = () if choice.mode == "none" else tools_of(dialogue)
        runs, values = self._runs(asked, dialogue, [dict(tool) for tool in tools])
        roles = {turn.number: turn.item["role"] for turn in (*asked.history, *asked.input)}
        pieces = [run.text for run in runs]
        marks = [_mark(run, asked, values.input_slot, roles) if run.text else None for run in runs]
        begin, name, end = forced(self.spec.tools, dialogue, choice) if self.spec.tools else ("", "", "")
        for text, mark in ((begin, GENERATE), (name, CHOSEN), (end, GENERATE)):
            pieces += [text] if text else []
            marks += [mark] if text else []
        manner = replace(self._manner, notices=asked.notices, opened=begin + name + end)
        if tools and self._said.exact and self._said.marks.tool_end_token:
            manner = replace(manner, stops=(*manner.stops, self._said.marks.tool_end_token))
        return Prompt("".join(pieces), manner, Pieces(tuple(pieces), tuple(marks)))

    def _runs(self, asked: Asked, dialogue: Dialogue, tools: list[Any]) -> tuple[Runs, Values]:
        values = values_of(asked, dialogue.variables, self._slots, self._said)
        if self._said.form == "empty":
            return (Run(str(values.rest), "input", True),), values
        try:
            write = self._exact if self._said.exact else self._safe
            system, user, rest = write(values, tools, asked.system)
            turns = history_runs(
                self._prompter.history,
                [dict(turn.item) for turn in asked.history],
                self._prompter.marks,
                self._prompter.dialect,
            )
            listed = write_tools(tools, self._prompter.dialect)
        except PrompterError as error:
            said = ascii(error.message[:MAX_SHOWN])[1:-1]
            raise InvalidValue(
                f"the prompter of this model refuses the request, as LazyLLM does: {said}", param="messages"
            ) from error
        label = asked.label.item["content"] if asked.label else None
        return text_runs(self._prompter, system, user, rest, turns, listed, None, label), values

    def _safe(self, values: Values, tools: list[Any], folded: tuple[Turn, ...]) -> tuple[Runs, Runs, Any]:
        names = {TOOL_NAMES: tool_names(tools)} if tools else {}
        return (*self._fillings[bool(tools)].filled({**values.slots, **names}, folded), values.rest)

    def _exact(self, values: Values, tools: list[Any], folded: tuple[Turn, ...]) -> tuple[Runs, Runs, Any]:
        given: Any
        if values.bare:
            given = values.slots[values.input_slot]
        elif self._slots or not isinstance(values.rest, str):
            given = {**values.slots, **({} if values.input_slot else {REST: values.rest})}
        else:
            given = values.rest
        prompter = self._prompter
        if folded:
            own, place = prompter.instruction, _fold_place(prompter.instruction)
            prompter = replace(prompter, instruction=own[:place] + FOLD + own[place:])
        instruction, rest = fill(prompter.prepared(tools, as_text=True), given, prompter.dialect)
        system, user = prompter.split(instruction)
        return _folded_in(system, folded) if folded else system, user, rest


def _fold_place(instruction: str) -> int:
    """Where system messages go: the end of the system part."""
    return instruction.index(USER_BEGINS) if USER_BEGINS in instruction else len(instruction)


def _folded_in(system: Runs, turns: tuple[Turn, ...]) -> Runs:
    """The request's system messages in place of the mark, which only the template's own words can hold."""
    found: list[Run] = []
    for run in system:
        before, mark, after = run.text.partition(FOLD) if not run.content else (run.text, "", "")
        found.append(run._replace(text=before))
        if mark:
            found += (*folded_runs(turns, joined(found)), run._replace(text=after))
    return tuple(found)


# ---------------------------------------------------------------- where the pieces come from


def _mark(run: Run, asked: Asked, input_slot: str, roles: Mapping[int, str]) -> SegmentLabel:
    """The run's origin in the words of a prompt: ``messages[2]``, ``variables.city``, ``tools``, ``template`` …"""
    kind, _, detail = run.origin.partition(":")
    if kind == "slot" and detail == input_slot:
        kind = "input"
    if kind == "slot":
        return ("system", f"variables.{detail}", not run.content)
    if kind == "system":
        return ("system", origin_of(int(detail)), False)
    if kind == "generate":
        return GENERATE
    if kind == "label" and asked.label:
        return ("assistant", origin_of(asked.label.number), False)
    if kind == "tools":
        return ("system", "tools", False)
    name, _, place = kind.partition("[")
    turns = {"history": asked.history, "input": asked.input}.get(name, ())
    if not turns or (name == "history" and not place):
        return OWN  # the instruction, and turns that the template brings along
    turn = turns[int(place[:-1])] if place else turns[0]
    return (roles[turn.number], origin_of(turn.number), not run.content)
