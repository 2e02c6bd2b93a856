"""The protocols that templates implement."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from gateway.core.dialogue import Dialogue
from gateway.core.prompt import Prompt
from gateway.template.opencompass.parsers import Mode
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


class PromptListTemplate(Protocol):
    """Writes the prompt lists of datasets by OpenCompass's rules. ``registry.build_for_prompt_lists`` makes it."""

    def write(self, items: str | list[Any], mode: Mode = "gen") -> Prompt:
        """Return the prompt of a prompt list, or of a text. With ``ppl`` the prompt has every turn and the answer.

        Raises InvalidValue for an item that the template cannot write, and MediaNotSupported.
        """
        ...
