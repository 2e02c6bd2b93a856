"""The protocol that every template implements."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from gateway.core.dialogue import Dialogue
from gateway.core.prompt import Prompt
from gateway.template.spec import TemplateSpec


@runtime_checkable
class Template(Protocol):
    """Renders dialogues into prompts as one template file describes. ``registry.build`` makes it. Calls share it."""

    @property
    def spec(self) -> TemplateSpec:
        """The template file."""
        ...

    def render(self, dialogue: Dialogue) -> Prompt:
        """Return the prompt for this dialogue.

        Raises RoleNotSupported, MediaNotSupported, UnsupportedParameter or InvalidValue. ``param`` names the field.
        """
        ...
