"""The protocol of templates."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from gateway.core.dialogue import Dialogue
from gateway.core.prompt import Prompt
from gateway.template.spec import TemplateSpec


@runtime_checkable
class Template(Protocol):
    """Renders dialogues into prompts by one template file. Made by ``registry.build``, shared between calls."""

    @property
    def spec(self) -> TemplateSpec:
        """The template file."""
        ...

    def render(self, dialogue: Dialogue) -> Prompt:
        """Return the prompt for this dialogue.

        Raises RoleNotSupported, MediaNotSupported, UnsupportedParameter or InvalidValue, each with ``param``.
        """
        ...
