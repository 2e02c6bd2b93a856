"""Templates of ``kind: chat``: the messages are sent unchanged to a target that applies a chat template itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from metatemplate.templates.chat.messages import refuse_variables
from metatemplate.templates.spec import TemplateSpec
from metatemplate.templates.stops import prompt_metadata
from metatemplate.values.dialogue import Dialogue, Message, PlainMessages
from metatemplate.values.prompt import Prompt


class ChatTemplate:
    """Sends the client's messages unchanged, with any role."""

    def __init__(self, spec: TemplateSpec) -> None:
        self.spec = spec
        self._metadata = prompt_metadata(spec)

    def render(self, dialogue: Dialogue) -> Prompt:
        """Return the prompt for this dialogue. See ``base.Template``."""
        refuse_variables(dialogue)
        messages = dialogue.messages
        sent = messages.raws if type(messages) is PlainMessages else [as_sent(message) for message in messages]
        return Prompt("", self._metadata, tuple(sent))


def as_sent(message: Message) -> Mapping[str, Any]:
    """Return the message as the client sent it. For a message made in Python, return a dict of role and content."""
    return message.raw or {"role": message.role, "content": message.text}
