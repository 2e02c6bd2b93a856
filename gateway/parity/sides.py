"""Who renders? One of our templates, a chat template as a reference, or any function that makes a text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from gateway.core.dialogue import Dialogue
from gateway.core.errors import UnsupportedParameter
from gateway.core.prompt import Bos, Prompt
from gateway.template.base import Template
from gateway.template.full_text import full_segments


@runtime_checkable
class WholeTemplate(Template, Protocol):
    """A template that can also leave the generating turn out."""

    def whole(self, dialogue: Dialogue) -> str:
        """The complete conversation, no turn left open."""
        ...


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two that are compared."""

    render: Callable[[Dialogue], Prompt]
    """Raises ``GatewayError`` for what it refuses."""
    whole: Callable[[Dialogue], str] | None = None
    """The complete conversation; None: it knows none."""
    bos: Bos = "none"
    """Who writes the BOS of its prompts."""
    adds_bos: bool = False
    """With ``bos: none``: does the engine put one before the text, out of habit?"""
    adds_when_told: bool = True
    """With ``bos: engine``: does it put one there, as it is told to?"""


def side_of(
    renderer: Side | Template | Callable[[Dialogue], str], *, adds_bos: bool = False, adds_when_told: bool = True
) -> Side:
    """What can be compared. A function's text is what the model sees, as it is; it raises ``GatewayError`` to refuse.

    Raises ``UnsupportedParameter`` for a template that makes messages: there is no text to compare.
    """
    if isinstance(renderer, Side):
        return renderer
    if not isinstance(renderer, Template):
        return Side(lambda dialogue: Prompt(renderer(dialogue)))
    spec = renderer.spec
    if spec.kind == "chat" or spec.api:
        raise UnsupportedParameter(f"the template {spec.name} makes messages: there is no text to compare")
    whole: Callable[[Dialogue], str] | None = None
    if isinstance(renderer, WholeTemplate):
        whole = renderer.whole
    elif spec.kind == "meta":
        whole = _whole_of(renderer)
    return Side(renderer.render, whole, spec.bos, adds_bos, adds_when_told)


def chat_reference(template: WholeTemplate) -> Side:
    """A chat template as the reference: its text is tokenized as it stands, so no engine adds anything to it."""

    def render(dialogue: Dialogue) -> Prompt:
        if dialogue.tools and template.spec.tools is None:
            raise UnsupportedParameter("the reference's chat template never speaks of tools", param="tools")
        return template.render(dialogue)

    return Side(render, template.whole, template.spec.bos)


def _whole_of(template: Template) -> Callable[[Dialogue], str]:
    return lambda dialogue: "".join([segment.text for segment in full_segments(template.spec, dialogue)])
