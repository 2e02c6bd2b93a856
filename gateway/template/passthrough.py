"""What does a target get that applies its own template? The messages, untouched. (``kind: chat``)"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.core.dialogue import Dialogue, Message, PlainMessages
from gateway.core.prompt import Prompt, PromptMetadata
from gateway.template.messages import refuse_variables
from gateway.template.spec.template import TemplateSpec
from gateway.template.stops import stop_strings, stop_token_ids


class ChatTemplate:
    """Hands the messages on as they came."""

    def __init__(self, spec: TemplateSpec) -> None:
        self.spec = spec
        self._manner = PromptMetadata(stop_strings(spec), stop_token_ids(spec))

    def render(self, dialogue: Dialogue) -> Prompt:
        """See ``base.Template``; every role is accepted, because the target decides."""
        refuse_variables(dialogue)
        said = dialogue.messages
        sent = said.raws if type(said) is PlainMessages else [as_sent(message) for message in said]
        return Prompt("", self._manner, tuple(sent))


def as_sent(message: Message) -> Mapping[str, Any]:
    """The message as it came over the wire; one made in Python has no such form and gets the plain one."""
    return message.raw or {"role": message.role, "content": message.text}
