"""Renders dialogues as LazyLLM's ``return_dict`` does (``kind: prompter``), for targets that take messages.

``docs/spec/lazyllm.md`` 8.3 has the rules. The first message is a system message with the model's system sentence and
the filled instruction. The template's own history follows, and then the client's messages in the same order. Only the
current turn may change: its text may fill a slot, and the instruction's user part may be written before the text.
The target gets the tools of the request in OpenAI's form, and writes the tokens around turns itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from metatemplate.errors import UnsupportedInput
from metatemplate.prompters.assembly import Turn
from metatemplate.prompters.filler import InstructionFiller
from metatemplate.prompters.request import (
    check_class,
    slot_values,
    sort_turns,
    with_default_tools,
)
from metatemplate.prompters.segments import text_of
from metatemplate.templates.chat.messages import content_of
from metatemplate.templates.chat.passthrough import as_sent
from metatemplate.templates.spec import TemplateSpec
from metatemplate.templates.stops import prompt_metadata
from metatemplate.values.dialogue import Dialogue
from metatemplate.values.prompt import Prompt


class ApiPrompterTemplate:
    """Renders dialogues into OpenAI's messages with the prompter of a template file."""

    def __init__(self, spec: TemplateSpec) -> None:
        assert spec.prompter is not None
        self.spec = spec
        self._prompter = spec.prompter
        self._filler = InstructionFiller(spec.prompter)
        self._metadata = prompt_metadata(spec)
        pairs = [
            {"role": role, "content": text}
            for pair in spec.prompter.history
            for role, text in zip(("user", "assistant"), pair, strict=True)
        ]
        self._history = (*pairs, *spec.prompter.history_messages)

    def render(self, dialogue: Dialogue) -> Prompt:
        """Return the prompt for this dialogue. See ``base.Template``. The caller sends the tools."""
        dialogue = with_default_tools(dialogue, self._prompter)
        turns = [Turn(number, message.role, message.text) for number, message in enumerate(dialogue.messages)]
        found = sort_turns(dialogue, turns)
        check_class(found, self._prompter)
        sent = [as_sent(message) for message in dialogue.messages]
        values = slot_values(found, dialogue.options.variables, self._filler.slots, self._prompter)
        if self._prompter.form == "empty":
            if dialogue.options.tools:
                raise UnsupportedInput(
                    "a prompter of class empty does not support tools; leave `tools` out", param="tools"
                )
            return Prompt("", self._metadata, tuple(sent))
        system, user = self._filler.fill(values, list(dialogue.options.tools))
        first, last = found.current[0].number, found.current[-1].number
        if not values.current:  # a slot has the text
            content_of(dialogue.messages[first], first, None)  # refuses media, which a slot cannot have
            sent[first] = {**sent[first], "content": ""}
        if user:
            sent[last] = _after(text_of(user), sent[last])
        return Prompt("", self._metadata, (*self._system(text_of(system)), *self._history, *sent))

    def _system(self, instruction: str) -> list[dict[str, Any]]:
        """Return a list with the system message; empty if the message has no text."""
        texts = [self._prompter.tokens.system, instruction]
        if self._filler.dialect.modern or not instruction:
            texts = [text for text in texts if text]
        content = "\n".join(texts)
        return [{"role": "system", "content": content}] if content else []


def _after(text: str, message: Mapping[str, Any]) -> dict[str, Any]:
    """Return the message with ``text`` before the content."""
    content = message.get("content") or ""
    if isinstance(content, str):
        return {**message, "content": text + content}
    return {**message, "content": [{"type": "text", "text": text}, *content]}
