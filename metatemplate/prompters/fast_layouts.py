"""Fast path of prompters: the text around the messages, stored for each order of roles.

Conversations with the same roles, tools and slots differ in the texts only. The general renderer renders the first such
conversation, and the segments show where the texts are. For a later request, other texts are put into these gaps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from operator import itemgetter
from typing import Any

import orjson

from metatemplate.errors import InputError
from metatemplate.prompters.instruction import LIST_HEADING
from metatemplate.templates.layout import MAX_LAYOUT_MESSAGES, MAX_LAYOUTS, PromptLayout, Roles
from metatemplate.values.dialogue import EMPTY_MAPPING, Dialogue, Message, PlainMessages, RenderOptions
from metatemplate.values.prompt import Prompt, PromptMetadata, Segment

MAX_TOOL_LISTS = 32
"""The number of tool lists that are stored for the layouts. Evaluations send the same tool list with every request."""
MAX_TOOLS_BYTES = 64 * 1024
"""The largest size of a shared tool list, as bytes of JSON."""
STAND_IN = "x"
"""The text of every message and variable in the dialogue from which a layout is made."""

Tools = tuple[Mapping[str, Any], ...]
FilledLayout = tuple[PromptLayout, Callable[[list[str]], Sequence[str]], str]
"""(layout, function that picks the gaps' texts from slot values, tool list and messages, text of the tool list)."""


@dataclass(frozen=True, slots=True)
class ToolListKey:
    """A list of tools as a cache key. Two lists with the same JSON are equal."""

    json: bytes = b""
    tools: Tools = field(default=(), compare=False)


NO_TOOLS = ToolListKey()


class FastLayouts:
    """The layouts of one prompter template."""

    def __init__(self, render_general: Callable[[Dialogue], Prompt], slots: Sequence[str]) -> None:
        """Create an empty cache of layouts. ``slots``: the slots that the request's variables fill."""
        self._render_general = render_general
        self._slots = slots
        self._layouts = lru_cache(maxsize=MAX_LAYOUTS)(self._lay_out)
        self._shared: Callable[[Any], Any] = lru_cache(maxsize=2 * MAX_TOOL_LISTS)(lambda value: value)
        """Returns the same object for equal values, so that equal tool lists are stored once, as key and as text."""

    def render(self, dialogue: Dialogue) -> Prompt | None:
        """Return the prompt; None if only the general renderer can render this dialogue."""
        messages, options = dialogue.messages, dialogue.options
        if type(messages) is not PlainMessages or len(messages.roles) > MAX_LAYOUT_MESSAGES:
            return None
        if options.continue_final or options.whole:
            return None
        if options.tool_choice not in (None, "auto"):
            return None
        tools = NO_TOOLS
        if options.tools:
            try:
                json = orjson.dumps(options.tools)
            except orjson.JSONEncodeError:  # for example, a lone surrogate
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
        """Return the texts around the gaps, the origin of each gap's text, the metadata, and the text of the tool list.

        None if the general renderer refuses these roles, or if the texts around the gaps depend on the texts in the
        gaps.
        """
        variables = dict.fromkeys(self._slots, STAND_IN) if has_variables else EMPTY_MAPPING
        messages = tuple([Message(role, STAND_IN) for role in roles])
        options = RenderOptions(tools=tools, variables=variables)
        try:
            prompt = self._render_general(Dialogue(messages, options))
        except InputError:
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
                    return None  # the value of a slot gets a line break, unless the value ends with a line break
            words.append("")
            gaps.append(segment.origin)
        if not words[0]:  # line breaks at the beginning are removed, also if a message begins with line breaks
            return None
        return words, gaps, prompt.metadata, tools_text


def _is_folded(segment: Segment) -> bool:
    return segment.role == "system" and segment.origin.startswith("messages")
