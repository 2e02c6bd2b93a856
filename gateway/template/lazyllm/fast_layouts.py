"""Fast path of prompters: the words of a conversation, laid out once for each order of roles.

Conversations with the same roles, tools and slots differ in their texts only. The general form renders one of them, its
segments show where the texts stand, and each further request puts its texts into these gaps. Tests compare both forms.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any

import orjson

from gateway.core.dialogue import EMPTY_MAPPING, Dialogue, Message, PlainMessages, RenderOptions
from gateway.core.errors import RequestError
from gateway.core.prompt import Prompt, PromptMetadata, Segment
from gateway.template.layout import LayoutCache, PromptLayout, Roles, with_gaps
from gateway.template.lazyllm.instruction import LIST_HEADING

MAX_TOOL_LISTS = 32
"""Lists of tools whose layouts are kept; evaluations send the same list with every request."""
MAX_TOOLS_BYTES = 64 * 1024
"""Bytes of the JSON of such a list."""
STAND_IN = "x"
"""The text of every message and variable of the dialogue that is rendered for a layout."""

Tools = tuple[Mapping[str, Any], ...]


class FilledLayout:
    """The words of a conversation, with gaps for variables, the tools' text and messages, in any order."""

    __slots__ = ("_pick", "_slots", "_tools", "_words", "metadata")

    def __init__(
        self, words: list[str], metadata: PromptMetadata, slots: Sequence[str], tools: str, places: list[int]
    ) -> None:
        """``places``: for each gap, the index of its text among slot values, tools and messages, in this order."""
        self.metadata = metadata
        self._words = with_gaps(words)
        self._slots = slots
        self._tools = tools
        self._pick = itemgetter(*places) if len(places) > 1 else lambda texts: [texts[place] for place in places]

    def filled(self, messages: list[str], variables: Mapping[str, Any]) -> str | None:
        """The prompt's text; None if the variables are not texts for exactly these slots."""
        if len(variables) != len(self._slots):
            return None
        values = []
        for slot in self._slots:
            value = variables.get(slot)
            if type(value) is not str:
                return None
            values.append(value)
        pieces = self._words.copy()
        pieces[1::2] = self._pick([*values, self._tools, *messages])
        return "".join(pieces)


class _LayoutsOfTools:
    """The layouts of conversations with one list of tools, or with none."""

    def __init__(self, lay_out: Callable[[_LayoutsOfTools, bool, Roles], FilledLayout | None], tools: Tools) -> None:
        self.tools = tools
        self.tools_text = ""
        """The written list, one string for all layouts."""
        self.without_variables = LayoutCache(partial(lay_out, self, False))
        self.with_variables = LayoutCache(partial(lay_out, self, True))


class FastLayouts:
    """The layouts of one prompter template."""

    def __init__(self, render_general: Callable[[Dialogue], Prompt], slots: Sequence[str]) -> None:
        """``slots``: those that variables fill."""
        self._render_general = render_general
        self._slots = slots
        self._without_tools = _LayoutsOfTools(self._lay_out, ())
        self._with_tools: OrderedDict[bytes, _LayoutsOfTools] = OrderedDict()
        """By the JSON of the tools, the latest last."""

    def prompt_layout(self, roles: Roles) -> PromptLayout | None:
        """The layout of conversations whose gaps hold all messages in order, and nothing else."""
        found = self._words_and_gaps(roles, self._without_tools, has_variables=False)
        if found is None or found[1] != [f"messages[{number}]" for number in range(len(roles))]:
            return None
        return PromptLayout(found[0], found[2])

    def render(self, dialogue: Dialogue) -> Prompt | None:
        """The prompt; None for a dialogue that takes the general form."""
        messages, options = dialogue.messages, dialogue.options
        if not isinstance(messages, PlainMessages) or options.continue_final:
            return None
        layouts = self._without_tools
        if options.tools or options.tool_choice is not None:
            found = self._layouts_of(options.tools) if options.tool_choice in (None, "auto") else None
            if found is None:
                return None
            layouts = found
        layout = (layouts.with_variables if options.variables else layouts.without_variables).get(messages.roles)
        text = None if layout is None else layout.filled(messages.texts, options.variables)
        return None if layout is None or text is None else Prompt(text, layout.metadata, dialogue)

    def _layouts_of(self, tools: Tools) -> _LayoutsOfTools | None:
        if not tools:
            return self._without_tools
        try:
            key = orjson.dumps(tools)
        except orjson.JSONEncodeError:  # such as a lone surrogate half
            return None
        if len(key) > MAX_TOOLS_BYTES:
            return None
        known = self._with_tools.get(key)
        if known is None:
            known = self._with_tools[key] = _LayoutsOfTools(self._lay_out, tools)
            if len(self._with_tools) > MAX_TOOL_LISTS:
                self._with_tools.popitem(last=False)
        return known

    def _lay_out(self, of_tools: _LayoutsOfTools, has_variables: bool, roles: Roles) -> FilledLayout | None:
        found = self._words_and_gaps(roles, of_tools, has_variables)
        if found is None:
            return None
        words, gaps, metadata = found
        slots = self._slots if has_variables else ()
        names = [*[f"variables.{slot}" for slot in slots], "tools", *[f"messages[{n}]" for n in range(len(roles))]]
        place = {name: number for number, name in enumerate(names)}
        return FilledLayout(words, metadata, slots, of_tools.tools_text, [place[gap] for gap in gaps])

    def _words_and_gaps(
        self, roles: Roles, of_tools: _LayoutsOfTools, has_variables: bool
    ) -> tuple[list[str], list[str], PromptMetadata] | None:
        """The words around the gaps, and the origin of each gap's text.

        None: the general form refuses these roles, or the words depend on the texts.
        """
        variables = dict.fromkeys(self._slots, STAND_IN) if has_variables else EMPTY_MAPPING
        messages = tuple([Message(role, STAND_IN) for role in roles])
        try:
            prompt = self._render_general(Dialogue(messages, RenderOptions(tools=of_tools.tools, variables=variables)))
        except RequestError:
            return None
        segments = prompt.segments or ()
        words, gaps = [""], []
        for place, segment in enumerate(segments):
            if segment.text.startswith(LIST_HEADING) and segment.origin == "tools":
                of_tools.tools_text = of_tools.tools_text or segment.text
            elif segment.scaffold or segment.origin == "tools":
                words[-1] += segment.text
                continue
            elif place > 1 and _is_folded(segment) and _may_join(*segments[place - 2 : place]):
                return None
            words.append("")
            gaps.append(segment.origin)
        if not words[0]:  # leading line breaks are stripped, also those of a message
            return None
        return words, gaps, prompt.metadata


def _is_folded(segment: Segment) -> bool:
    return segment.role == "system" and segment.origin.startswith("messages")


def _may_join(value: Segment, separator: Segment) -> bool:
    """True for a slot's value before a folded system message: a line break is added unless the value ends with one."""
    return not value.scaffold and value.origin != "tools" and not _is_folded(value) and separator.text == "\n"
