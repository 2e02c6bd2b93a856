"""Meta templates that write tools, calls and results, as the key ``tools`` of the template file declares.

The list of tools is inside, before or after one turn. The calls of an assistant's message follow the text. Each result
is in the turn of the role that ``roles: {tool: …}`` names. Client text is only joined, never used as a format string.
"""

from __future__ import annotations

import keyword
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from metatemplate.errors import InvalidInput, UnsupportedInput
from metatemplate.meta.renderer import MetaTemplate, Rendering
from metatemplate.templates.chat.messages import check_open_turn, origin_of, text_of
from metatemplate.templates.roles import RoleMapping
from metatemplate.templates.spec import CallForm, TemplateSpec, ToolList, ToolsSpec
from metatemplate.templates.tools import ToolCall, as_json, calls_of, choice_of, forced, tools_of
from metatemplate.values.dialogue import Dialogue, Message
from metatemplate.values.prompt import Prompt, Segment, SegmentLabel

CallPiece = tuple[str, str, bool]
"""(text, origin, scaffold)."""

TOOL = "tool"


class ToolTemplate(MetaTemplate):
    """Renders dialogues with a meta template that has the key ``tools``."""

    def __init__(self, spec: TemplateSpec) -> None:
        super().__init__(spec)
        assert spec.tools is not None
        assert spec.generating is not None
        self.tools, self.generating_role = spec.tools, spec.generating.role

    def _render_general(self, dialogue: Dialogue) -> Prompt:
        choice = choice_of(dialogue)
        has_calls = any(message.role == TOOL or message.raw.get("tool_calls") for message in dialogue.messages)
        if choice.mode == "none" and not has_calls:
            without = replace(dialogue.options, tools=(), tool_choice=None)
            return super()._render_general(Dialogue(dialogue.messages, without))
        check_open_turn(dialogue)
        tools = () if choice.mode == "none" else tools_of(dialogue)
        opened = forced(self.tools, dialogue, choice, self.generating_role)
        return ToolRendering(self, dialogue, self.tools, tools, opened).prompt()


class ToolRendering(Rendering):
    """Collects the pieces of one prompt with tools."""

    def __init__(
        self,
        template: MetaTemplate,
        dialogue: Dialogue,
        spec: ToolsSpec,
        tools: Sequence[Mapping[str, Any]],
        forced: tuple[Segment, ...],
    ) -> None:
        super().__init__(template, dialogue)
        assert spec.declare is not None
        self._spec = spec
        self._form = spec.declare
        self._list = list(_list_pieces(spec.declare, tools)) if tools else []
        self._list_number = self._number_of_list() if tools else None
        """The index of the message that contains the tool list; None if no message contains the list."""
        self._forced = forced
        self.opened = "".join([segment.text for segment in forced])

    def before_turns(self) -> None:
        """Write a system turn with the list of tools if there are tools and no message contains the list."""
        if not self._list or self._list_number is not None:
            return
        form, role = self._form, self.template.roles["system"].role
        if form.place == "before_turn":
            self._write(self._list, "")
        if form.system or form.place in ("before_text", "after_text"):
            inner = self._with_list(form.system, "template", scaffold=True)
            self._write([(role.begin, "template", True), *inner, (role.end, "template", True)], role.role)
        if form.place == "after_turn":
            self._write(self._list, "")

    def after_turns(self) -> None:
        """Write the beginning of the forced call."""
        for segment in self._forced:
            self.add(segment.text, (segment.role, segment.origin, segment.scaffold))

    def turn(self, mapping: RoleMapping, number: int) -> None:
        """Write ``messages[number]``, and the list of tools if the list is directly before or after this turn."""
        has_list = self._list_number == number
        if has_list and self._form.place == "before_turn":
            self._write(self._list, "")
        begin = self._spec.results.separator if self._is_joined(number) else mapping.role.begin
        end = "" if number == self.open_number or self._is_joined(number + 1) else mapping.role.end
        self.write_turn(mapping, number, begin, end)
        if has_list and self._form.place == "after_turn":
            self._write(self._list, "")

    def content(self, message: Message, number: int, label: SegmentLabel) -> None:
        """Write the content of the turn of ``messages[number]``."""
        self._write(self._content_pieces(message, number), label[0])

    def _is_joined(self, number: int) -> bool:
        """Return whether ``messages[number]`` is a tool result that shares the turn of the previous result."""
        pair = self.dialogue.messages[number - 1 : number + 1] if number > 0 else ()
        return self._spec.results.together and len(pair) == 2 and pair[0].role == pair[1].role == TOOL

    def _content_pieces(self, message: Message, number: int) -> Iterator[CallPiece]:
        origin = origin_of(number)
        text = text_of(message, number, self.template.spec.media)
        if message.role == TOOL:
            results = self._spec.results
            yield from ((results.begin, origin, True), (text, origin, False), (results.end, origin, True))
        elif calls := calls_of(message, number):
            yield text, origin, False
            yield from self._call_pieces(calls, number, has_text=bool(text))
        elif self._list_number == number:
            yield from self._with_list(text, origin, scaffold=False)
        else:
            yield text, origin, False

    def _with_list(self, text: str, origin: str, *, scaffold: bool) -> Iterator[CallPiece]:
        """Yield the text of a turn, and the list of tools if the list is inside this turn.

        ``scaffold``: True if the text comes from the template.
        """
        between = self._form.between if text else ""
        if self._form.place == "before_text":
            yield from self._list
            yield between, "template", True
        yield text, origin, scaffold
        if self._form.place == "after_text":
            yield between, "template", True
            yield from self._list

    def _call_pieces(self, calls: Sequence[ToolCall], number: int, *, has_text: bool) -> Iterator[CallPiece]:
        form, origin = self._spec.calls, origin_of(number)
        if form is None:
            raise UnsupportedInput(
                "this model's template cannot write tool_calls: it has no key `calls` under `tools`",
                param=f"messages[{number}].tool_calls",
            )
        if number == self.open_number:
            raise InvalidInput(
                "the last message has tool_calls and cannot be continued; only text can be continued",
                param="continue_final_message",
            )
        yield form.after_text if has_text else "", origin, True
        yield form.begin, origin, True
        for at, call in enumerate(calls):
            yield form.separator if at else "", origin, True
            yield form.each_begin, origin, True
            yield from _BODIES[form.body](form, call, origin)
            yield form.each_end, origin, True
        yield form.end, origin, True

    def _number_of_list(self) -> int | None:
        messages, turn = self.dialogue.messages, self._form.turn
        if turn == "system":
            first = self.template.roles.get(messages[0].role)
            return 0 if first is not None and first.is_system else None
        users = [number for number, message in enumerate(messages) if message.role == "user"]
        if not users:
            raise InvalidInput(
                "this model's template writes tools into a user message; add a user message", param="messages"
            )
        return users[0] if turn == "first_user" else users[-1]

    def _write(self, pieces: Sequence[CallPiece] | Iterator[CallPiece], role: str) -> None:
        for text, origin, scaffold in pieces:
            if text:
                self.add(text, (role, origin, scaffold))


def _list_pieces(form: ToolList, tools: Sequence[Mapping[str, Any]]) -> Iterator[CallPiece]:
    yield form.begin, "template", True
    for number, tool in enumerate(tools):
        yield form.separator if number else "", "template", True
        yield as_json(tool["function"] if form.each == "function" else tool, form.indent), f"tools[{number}]", False
    yield form.end, "template", True


# ---------------------------------------------------------------- one call


def _json(form: CallForm, call: ToolCall, origin: str) -> Iterator[CallPiece]:
    yield as_json({"name": call.name, form.key: call.arguments}), origin, False


def _named(form: CallForm, call: ToolCall, origin: str) -> Iterator[CallPiece]:
    yield from ((call.name, origin, False), (form.between, origin, True), (as_json(call.arguments), origin, False))


def _python(form: CallForm, call: ToolCall, origin: str) -> Iterator[CallPiece]:
    names = (*call.name.split("."), *call.arguments)
    if not all(name.isidentifier() and not keyword.iskeyword(name) for name in names):
        raise InvalidInput(
            "the names of the function and of its arguments must be Python identifiers, not keywords such as class",
            param=f"{origin}.tool_calls",
        )
    yield f"{call.name}({', '.join(f'{key}={value!r}' for key, value in call.arguments.items())})", origin, False


_BODIES = {"json": _json, "named": _named, "python": _python}
