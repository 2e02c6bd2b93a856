"""How do tools, calls and results look in the prompt? (``kind: meta`` with ``tools``)

The turns are those of ``meta.py``. Into them go, as the file's ``tools`` says: the list of tools, inside or beside one
turn; the calls of an assistant's message, behind its text; each result, in the turn of the role that
``roles: {tool: …}`` names. Client text is joined, never formatted.
"""

from __future__ import annotations

import keyword
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gateway.core.dialogue import Dialogue, Message
from gateway.core.errors import InvalidValue, UnsupportedParameter
from gateway.core.prompt import Notice, Pieces, Prompt, SegmentLabel
from gateway.template.messages import SYSTEM, check_open_turn, role_names, text_of, unread_fields
from gateway.template.meta.renderer import MetaTemplate, fallback_notice, origin_of
from gateway.template.spec.template import TemplateSpec
from gateway.template.spec.tools import CallForm, ToolList
from gateway.template.tools import ToolCall, as_json, calls_of, choice_of, forced, tools_of

Said = tuple[str, str, bool]
"""A text, its origin, and whether the template wrote it."""

TOOL = "tool"


class ToolTemplate(MetaTemplate):
    """A meta template that declares tools."""

    def __init__(self, spec: TemplateSpec) -> None:
        super().__init__(spec)
        assert spec.tools is not None
        assert spec.tools.declare is not None
        self._tools = spec.tools
        self._list = spec.tools.declare
        self._leads = {role for role, name in role_names(spec).items() if name == SYSTEM}
        """OpenAI roles whose message may lead as the system turn."""

    def _rendered(self, dialogue: Dialogue) -> Prompt:
        """Tools, calls and results as the template declares them; what has none of them, as without ``tools``."""
        choice = choice_of(dialogue)
        if choice.mode == "none" and not any(_has_tools(message) for message in dialogue.messages):
            return super()._rendered(Dialogue(dialogue.messages, replace(dialogue.wishes, tools=(), tool_choice=None)))
        return _Rendering(self, dialogue, () if choice.mode == "none" else tools_of(dialogue)).prompt(
            forced(self._tools, dialogue, choice)
        )


def _has_tools(message: Message) -> bool:
    return message.role == TOOL or bool(message.raw.get("tool_calls"))


class _Rendering:
    """One conversation on its way into pieces."""

    def __init__(self, template: ToolTemplate, dialogue: Dialogue, tools: Sequence[Mapping[str, Any]]) -> None:
        check_open_turn(dialogue)
        self._template = template
        self._dialogue = dialogue
        self._list = list(_listed(template._list, tools)) if tools else []
        self._at = self._beside() if tools else None
        """The message by which the tools stand; None: none, or a turn made for them."""
        self.pieces = list(template._opening.pieces)
        self.marks: list[SegmentLabel | None] = list(template._opening.marks)
        self.notices: dict[Notice, None] = {}

    def prompt(self, force: tuple[str, str, str]) -> Prompt:
        """The whole prompt. ``force``: see ``tools.forced``."""
        template, dialogue = self._template, self._dialogue
        if self._list and self._at is None:
            self._system_turn()
        said: set[int] = set()
        for speaker, _, number in template._order.turns(dialogue):
            if speaker is not None:
                self._turn(number)
            else:
                template._say_own(number, said, self.pieces, self.marks, self.notices)
        if not dialogue.continue_final:
            self.pieces.append(template._generate)
            self.marks.append(template._generate_mark)
        role = template._generate_mark[0]
        begin, name, end = force
        self._write([(begin, "generate", True), (name, "tool_choice", False), (end, "generate", True)], role)
        manner = replace(template._manner, notices=tuple(self.notices), opened=begin + name + end)
        return Prompt("".join(self.pieces), manner, Pieces(tuple(self.pieces), tuple(self.marks)))

    # ---------------------------------------------------------------- turns

    def _turn(self, number: int) -> None:
        messages, template = self._dialogue.messages, self._template
        message = messages[number]
        voice = template._voices[message.role]
        here, place = self._at == number, template._list.place
        origin = origin_of(number)
        joins = template._tools.results.together and message.role == TOOL
        before = joins and number > 0 and messages[number - 1].role == TOOL
        after = joins and number + 1 < len(messages) and messages[number + 1].role == TOOL
        role = voice.role.role
        if here and place == "before_turn":
            self._write(self._list, "")
        opening = template._tools.results.separator if before else voice.begin
        self._write([(opening, origin, True)], role)
        self._write(self._inner(message, number, origin, here=here), role)
        if not after and not (self._dialogue.continue_final and number == len(messages) - 1):
            self._write([(voice.end, origin, True)], role)
        if here and place == "after_turn":
            self._write(self._list, "")
        if voice.fallback_for:
            self.notices[fallback_notice(voice.fallback_for, voice.role, number)] = None
        self.notices.update(dict.fromkeys(unread_fields(message, number)))

    def _inner(self, message: Message, number: int, origin: str, *, here: bool) -> Iterator[Said]:
        """What stands inside a message's turn."""
        template, text = self._template, text_of(message, number, self._template.spec.media)
        if message.role == TOOL:
            results = template._tools.results
            yield from ((results.begin, origin, True), (text, origin, False), (results.end, origin, True))
        elif calls := calls_of(message, number):
            yield text, origin, False
            yield from self._calls(calls, number, origin, says_more=bool(text))
        elif here:
            yield from self._with_list(text, origin)
        else:
            yield text, origin, False

    def _with_list(self, text: str, origin: str, *, scaffold: bool = False) -> Iterator[Said]:
        """A turn's text and the tools, as far as they stand inside it. ``scaffold``: the text is the template's."""
        form = self._template._list
        between = form.between if text else ""
        if form.place == "before_text":
            yield from self._list
            yield between, "template", True
        yield text, origin, scaffold
        if form.place == "after_text":
            yield between, "template", True
            yield from self._list

    def _system_turn(self) -> None:
        """A system turn for the tools, because no system message leads."""
        form, voice = self._template._list, self._template._voices["system"]
        role = voice.role.role
        if form.place == "before_turn":
            self._write(self._list, "")
        if form.system or form.place in ("before_text", "after_text"):
            self._write([(voice.begin, "template", True)], role)
            self._write(self._with_list(form.system, "template", scaffold=True), role)
            self._write([(voice.end, "template", True)], role)
        if form.place == "after_turn":
            self._write(self._list, "")

    def _calls(self, calls: Sequence[ToolCall], number: int, origin: str, *, says_more: bool) -> Iterator[Said]:
        form = self._template._tools.calls
        if form is None:
            raise UnsupportedParameter(
                "this model's template cannot write tool_calls: it declares no `calls` under `tools`",
                param=f"messages[{number}].tool_calls",
            )
        if self._dialogue.continue_final and number == len(self._dialogue.messages) - 1:
            raise InvalidValue(
                "a message that calls tools is complete; only text can be continued", param="continue_final_message"
            )
        yield form.after_text if says_more else "", origin, True
        yield form.begin, origin, True
        for at, call in enumerate(calls):
            yield form.separator if at else "", origin, True
            yield form.each_begin, origin, True
            yield from _BODIES[form.body](form, call, origin)
            yield form.each_end, origin, True
        yield form.end, origin, True

    # ---------------------------------------------------------------- places

    def _beside(self) -> int | None:
        """The message by which the tools stand."""
        messages, turn = self._dialogue.messages, self._template._list.turn
        if turn == "system":
            return 0 if messages[0].role in self._template._leads else None
        users = [number for number, message in enumerate(messages) if message.role == "user"]
        if not users:
            raise InvalidValue(
                "tools are told to this model with a user's message, and there is none", param="messages"
            )
        return users[0] if turn == "first_user" else users[-1]

    def _write(self, said: Sequence[Said] | Iterator[Said], role: str) -> None:
        for text, origin, scaffold in said:
            if text:
                self.pieces.append(text)
                self.marks.append((role, origin, scaffold))


def _listed(form: ToolList, tools: Sequence[Mapping[str, Any]]) -> Iterator[Said]:
    yield form.begin, "template", True
    for number, tool in enumerate(tools):
        yield form.separator if number else "", "template", True
        yield as_json(tool["function"] if form.each == "function" else tool, form.indent), f"tools[{number}]", False
    yield form.end, "template", True


# ---------------------------------------------------------------- one call


def _json(form: CallForm, call: ToolCall, origin: str) -> Iterator[Said]:
    yield as_json({"name": call.name, form.key: call.arguments}), origin, False


def _named(form: CallForm, call: ToolCall, origin: str) -> Iterator[Said]:
    yield from ((call.name, origin, False), (form.between, origin, True), (as_json(call.arguments), origin, False))


def _python(form: CallForm, call: ToolCall, origin: str) -> Iterator[Said]:
    if not all(map(_is_name, (*call.name.split("."), *call.arguments))):
        raise InvalidValue(
            "this model's calls are written in Python, and the name of the function or of an argument is none there",
            param=f"{origin}.tool_calls",
        )
    yield f"{call.name}({', '.join(f'{key}={value!r}' for key, value in call.arguments.items())})", origin, False


def _is_name(word: str) -> bool:
    return word.isidentifier() and not keyword.iskeyword(word)


_BODIES = {"json": _json, "named": _named, "python": _python}
