"""Fast path of prompters: the words of a conversation, laid out once for each order of roles.

Conversations with the same roles, tools and slots differ in their texts only. The general form renders one of them, its
segments show where the texts stand, and each further request puts its texts into these gaps. Tests compare both forms.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from operator import itemgetter
from typing import Any

import orjson

from gateway.core.dialogue import EMPTY_MAPPING, Dialogue, Message, PlainMessages, RenderOptions
from gateway.core.errors import RequestError
from gateway.core.prompt import Prompt, PromptMetadata, Segment
from gateway.template.layout import MAX_LAYOUTS, MAX_MESSAGES, PromptLayout, Roles
from gateway.template.lazyllm.instruction import LIST_HEADING

MAX_TOOL_LISTS = 32
"""Lists of tools of which all layouts share one copy; evaluations send the same list with every request."""
MAX_TOOLS_BYTES = 64 * 1024
"""Bytes of the JSON of such a list."""
STAND_IN = "x"
"""The text of every message and variable of the dialogue that is rendered for a layout."""

Tools = tuple[Mapping[str, Any], ...]
FilledLayout = tuple[PromptLayout, Callable[[list[str]], Sequence[str]], str]
"""(layout, the choice of the texts for its gaps from slot values, tools' text and messages, the tools' text)."""


@dataclass(frozen=True, slots=True)
class ToolListKey:
    """A list of tools, known by its JSON."""

    json: bytes = b""
    tools: Tools = field(default=(), compare=False)


NO_TOOLS = ToolListKey()


class FastLayouts:
    """The layouts of one prompter template."""

    def __init__(self, render_general: Callable[[Dialogue], Prompt], slots: Sequence[str]) -> None:
        """``slots``: those that variables fill."""
        self._render_general = render_general
        self._slots = slots
        self._layouts = lru_cache(maxsize=MAX_LAYOUTS)(self._lay_out)
        self._shared: Callable[[Any], Any] = lru_cache(maxsize=2 * MAX_TOOL_LISTS)(lambda value: value)
        """Returns one copy of equal lists of tools, as key and as text."""

    def render(self, dialogue: Dialogue) -> Prompt | None:
        """The prompt; None for a dialogue that takes the general form."""
        messages, options = dialogue.messages, dialogue.options
        if not isinstance(messages, PlainMessages) or len(messages.roles) > MAX_MESSAGES or options.continue_final:
            return None
        if options.tool_choice not in (None, "auto"):
            return None
        tools = NO_TOOLS
        if options.tools:
            try:
                json = orjson.dumps(options.tools)
            except orjson.JSONEncodeError:  # such as a lone surrogate half
                return None
            if len(json) > MAX_TOOLS_BYTES:
                return None
            tools = self._shared(ToolListKey(json, options.tools))
        values: list[str] = []
        if options.variables:
            if len(options.variables) != len(self._slots):
                return None
            for slot in self._slots:
                value = options.variables.get(slot)
                if type(value) is not str:
                    return None
                values.append(value)
        found = self._layouts(tools, bool(values), messages.roles)
        if found is None:
            return None
        layout, pick, tools_text = found
        return Prompt(layout.fill(pick([*values, tools_text, *messages.texts])), layout.metadata, dialogue)

    def _lay_out(self, tools: ToolListKey, has_variables: bool, roles: Roles) -> FilledLayout | None:
        found = self._words_and_gaps(roles, tools.tools, has_variables)
        if found is None:
            return None
        words, gaps, metadata, tools_text = found
        slots = self._slots if has_variables else ()
        names = [*[f"variables.{slot}" for slot in slots], "tools", *[f"messages[{n}]" for n in range(len(roles))]]
        places = [names.index(gap) for gap in gaps]
        pick = itemgetter(*places) if len(places) > 1 else lambda texts: [texts[place] for place in places]
        return PromptLayout(words, metadata), pick, self._shared(tools_text)

    def _words_and_gaps(
        self, roles: Roles, tools: Tools, has_variables: bool
    ) -> tuple[list[str], list[str], PromptMetadata, str] | None:
        """The words around the gaps, the origin of each gap's text, and the tools' text.

        None: the general form refuses these roles, or the words depend on the texts.
        """
        variables = dict.fromkeys(self._slots, STAND_IN) if has_variables else EMPTY_MAPPING
        messages = tuple([Message(role, STAND_IN) for role in roles])
        options = RenderOptions(tools=tools, variables=variables)
        try:
            prompt = self._render_general(Dialogue(messages, options))
        except RequestError:
            return None
        segments = prompt.segments or ()
        words, gaps, tools_text = [""], [], ""
        for place, segment in enumerate(segments):
            if segment.text.startswith(LIST_HEADING) and segment.origin == "tools":
                tools_text = segment.text
            elif segment.scaffold or segment.origin == "tools":
                words[-1] += segment.text
                continue
            elif place > 1 and _is_folded(segment) and segments[place - 1].text == "\n":
                value = segments[place - 2]
                if not (value.scaffold or value.origin == "tools" or _is_folded(value)):
                    return None  # a line break is added behind a slot's value, unless the value ends with one
            words.append("")
            gaps.append(segment.origin)
        if not words[0]:  # leading line breaks are stripped, also those of a message
            return None
        return words, gaps, prompt.metadata, tools_text


def _is_folded(segment: Segment) -> bool:
    return segment.role == "system" and segment.origin.startswith("messages")
