"""What does a target get that applies its own template? The messages, untouched. (``kind: chat``)"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.core.dialogue import Dialogue, Message, PlainMessages
from gateway.core.prompt import Prompt
from gateway.template.speakers import refuse_variables
from gateway.template.spec import TemplateSpec
from gateway.template.stops import stop_strings, stop_token_ids


class ChatTemplate:
    """Hands the messages on as they came."""

    def __init__(self, spec: TemplateSpec) -> None:
        self.spec = spec
        self._stops = stop_strings(spec)
        self._stop_token_ids = stop_token_ids(spec)

    def render(self, dialogue: Dialogue) -> Prompt:
        """See ``base.Template``; every role is accepted, because the target decides."""
        refuse_variables(dialogue)
        said = dialogue.messages
        return Prompt(
            messages=tuple(said.raws if type(said) is PlainMessages else [as_sent(message) for message in said]),
            stops=self._stops,
            stop_token_ids=self._stop_token_ids,
        )


def as_sent(message: Message) -> Mapping[str, Any]:
    """The message as it came over the wire; one made in Python has no such form and gets the plain one."""
    return message.raw or {"role": message.role, "content": message.text}
