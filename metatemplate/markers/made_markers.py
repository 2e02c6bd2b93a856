"""Finds markers that a chat template makes of texts that contain none, such as by removing a word.

A chat template is a program. So the markers of its prompt are compared with those of a conversation of the same shape
that has other texts.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from metatemplate.errors import InvalidInput, TemplateFailure
from metatemplate.markers.marker_rule import MarkerRule, refusal
from metatemplate.templates.chat.passthrough import as_sent
from metatemplate.values.dialogue import (
    COMPARED_KEYS,
    DEFAULT_OPTIONS,
    PLAIN_VALUE,
    Dialogue,
    PlainMessages,
    read_messages,
    render_options,
)
from metatemplate.values.json_values import changed, texts_with_keys
from metatemplate.values.prompt import DeferredSegments, Prompt

MAX_SHAPES = 256
"""The maximum number of conversation shapes that are remembered. It is limited because clients choose the shapes."""
MAX_SHAPE = 32
"""The maximum number of messages of a shape that is remembered."""
MAX_NAMES = 8
"""The maximum number of unusual names in a request. Each name costs one more rendering."""
USUAL_NAMES = frozenset(
    {
        "user",
        "system",
        "developer",
        "assistant",
        "tool",
        "function",
        "observation",
        "ipython",
        "text",
        "object",
        "string",
        "number",
        "integer",
        "boolean",
        "array",
        "null",
    }
)
"""The roles of chats, and the types of tools, content parts and JSON Schema."""
TEXT_KEYS = frozenset({"content", "text"})
"""The keys of texts that templates may change."""
LOG = logging.getLogger("gateway.calls")

Shape = tuple[tuple[str, ...], bool, bool]
"""The roles of a conversation, and its options ``continue_final`` and ``whole``."""


class MadeMarkers:
    """The comparison of a chat template's prompts, for one model with a policy that changes or refuses markers."""

    def __init__(self, rule: MarkerRule, render: Callable[[Dialogue], Awaitable[Prompt]]) -> None:
        """``render``: renders a conversation without the policy."""
        self._markers, self._form, self._kinds = rule.searched, rule.form, rule.enforced
        self._render = render
        self.expected: dict[Shape, tuple[str, ...]] = {}
        """Shape of a conversation → the markers that the template writes for this shape. Texts of requests have no
        effect on these entries."""

    async def refuse_names(self, dialogue: Dialogue) -> None:
        """Raise ``ForgedMarker`` if the template makes a marker of a role, a type or a plain variable.

        Templates compare such names with constants, so a conversation with other names may have other markers. Instead,
        each name is replaced by a number, and the numbers in the prompt are replaced by the name.
        """
        for name in self._unusual_names(dialogue):
            number = str(secrets.randbelow(10**20)).zfill(20)
            try:
                text = (await self._render(_renamed_dialogue(dialogue, name, number))).text
            except (InvalidInput, TemplateFailure):
                continue  # the template accepts only names that it compares with
            expected = self._in_order(text)
            for form in (name, name.upper(), name.lower(), name.title()):
                if self._in_order(text.replace(number, form)) != expected:
                    raise refusal(
                        "messages",
                        "the name of a role, or a value, of which the chat template makes a marker that separates",
                    )

    async def are_in(self, dialogue: Dialogue, prompt: Prompt, texts: Sequence[str]) -> bool:
        """Return whether the template has made a marker of ``texts``, the client's texts in a prompt.

        The expected markers of messages with only a role and a text depend on the shape of the conversation alone, so
        they are computed once for each shape, with fixed texts. Other conversations are rendered a second time.
        """
        if not self._markers.may_be_made_of(list(map(self._form, texts))):
            return False
        shape = _shape(dialogue)
        expected = None if shape is None else self.expected.get(shape)
        if shape is not None and expected is None:
            with suppress(InvalidInput, TemplateFailure):
                expected = self._in_order((await self._render(_example(shape))).text)
                if len(self.expected) >= MAX_SHAPES:
                    self.expected.clear()
                self.expected[shape] = expected
        if expected is None:
            return not await self.are_as_expected(prompt)
        return self._in_order(prompt.text) != expected

    async def are_as_expected(self, prompt: Prompt) -> bool:
        """Return whether a prompt has exactly the markers of the same conversation with numbers as texts.

        A template may compare texts with constants, or refuse numbers. So plain values, such as the id of a tool call,
        stay the same. If the markers differ, the texts of which no marker can be made stay the same too. False if the
        template refuses both.
        """
        assert isinstance(prompt.source, DeferredSegments)
        found = self._in_order(prompt.text)
        for keeps in (self._is_plain, lambda _key, text: self._markers.is_harmless(self._form(text))):
            try:
                if self._in_order(await prompt.source.render_without_texts(keeps)) == found:
                    return True
            except (InvalidInput, TemplateFailure) as error:
                LOG.info("a chat template refuses a conversation with other texts: %s", error)
        return False

    def _is_plain(self, key: str, text: str) -> bool:
        return key not in TEXT_KEYS and bool(PLAIN_VALUE.fullmatch(text)) and not self._markers.has_part(text)

    def _in_order(self, text: str) -> tuple[str, ...]:
        """Return the markers of a prompt, in order, of the kinds that the policy changes or refuses."""
        text = self._form(text)
        return tuple([marker for kind in self._kinds for marker in self._markers.in_order(text, kind)])

    def _unusual_names(self, dialogue: Dialogue) -> Sequence[str]:
        """Return the roles, types and plain variables that a marker may contain, except the usual ones."""
        messages, options = dialogue.messages, dialogue.options
        if type(messages) is PlainMessages and (
            options is DEFAULT_OPTIONS or (not options.tools and not options.template_kwargs)
        ):
            if USUAL_NAMES.issuperset(messages.roles):
                return ()
            found = set(messages.roles)
        else:
            sent = [*map(as_sent, messages), *options.tools]
            found = {text for key, text in texts_with_keys(sent) if key in COMPARED_KEYS}
        found.update(
            [one for one in options.template_kwargs.values() if isinstance(one, str) and PLAIN_VALUE.fullmatch(one)]
        )
        names = [one for one in found - USUAL_NAMES if not PLAIN_VALUE.fullmatch(one) or self._markers.has_part(one)]
        if len(names) > MAX_NAMES:
            raise refusal(
                "messages", f"more than {MAX_NAMES} unusual names of roles, which may make markers that separate"
            )
        return names


def _renamed_dialogue(dialogue: Dialogue, name: str, number: str) -> Dialogue:
    def change(value: Any, key: object) -> Any:
        return number if value == name and key in COMPARED_KEYS else value

    options = dialogue.options
    if options is not DEFAULT_OPTIONS:
        kwargs = {key: number if value == name else value for key, value in options.template_kwargs.items()}
        options = replace(options, tools=tuple(changed(options.tools, change)), template_kwargs=kwargs)
    return Dialogue(read_messages(changed([as_sent(one) for one in dialogue.messages], change)), options)


def _shape(dialogue: Dialogue) -> Shape | None:
    """Return the shape of a conversation. None if it is long, or has an empty text or other fields.

    Templates often compare a text with the empty text.
    """
    messages, options = dialogue.messages, dialogue.options
    if type(messages) is not PlainMessages or options.tools or options.template_kwargs:
        return None
    if len(messages) > MAX_SHAPE or any(not text or text.isspace() for text in messages.texts):
        return None
    return messages.roles, options.continue_final, options.whole


def _example(shape: Shape) -> Dialogue:
    """Return a conversation of a shape, with texts that contain no marker."""
    roles, continue_final, whole = shape
    messages = [{"role": role, "content": f"text{number}"} for number, role in enumerate(roles)]
    return Dialogue(read_messages(messages), render_options(continue_final=continue_final, whole=whole))
