"""The protocols that templates implement."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from metatemplate.templates.spec import TemplateSpec
from metatemplate.values.dialogue import Dialogue
from metatemplate.values.prompt import Prompt

if TYPE_CHECKING:
    from metatemplate.opencompass.parsers import ParserMode


@runtime_checkable
class Template(Protocol):
    """Renders dialogues by the rules of one template file. ``registry.build`` makes a template. All calls share it."""

    @property
    def spec(self) -> TemplateSpec:
        """The content of the template file."""
        ...

    def render(self, dialogue: Dialogue) -> Prompt:
        """Return the prompt for this dialogue.

        Raises UnknownRole, UnsupportedMedia, UnsupportedInput or InvalidInput. The error's ``param`` names
        the field of the request.
        """
        ...


class PromptListTemplate(Protocol):
    """Writes the prompt lists of datasets by OpenCompass's rules. Made by ``registry.build_for_prompt_lists``."""

    def write(self, items: str | list[Any], mode: ParserMode = "gen") -> Prompt:
        """Return the prompt for a prompt list or for a text. Mode ``ppl`` includes every turn and the answer.

        Raises InvalidInput for an item that the template cannot write, and UnsupportedMedia for media that the
        template does not support.
        """
        ...
