"""A side of a comparison: a template of the gateway, a chat template, or what makes the prompts of a source."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gateway.core.errors import UnsupportedParameter
from metatemplate.templates.base import Template
from metatemplate.values.dialogue import Dialogue
from metatemplate.values.prompt import Prompt


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two sides of a comparison."""

    render: Callable[[Dialogue], Prompt]
    """Returns the prompt of a dialogue. Raises GatewayError to refuse the dialogue."""
    writes_whole: bool = False
    """Whether this side can write a complete conversation (``RenderOptions.whole``)."""
    adds_bos: bool = False
    """Whether the engine adds a BOS by default; used for prompts with ``bos: none``."""
    adds_bos_on_request: bool = True
    """Whether the engine adds a BOS on request; used for prompts with ``bos: engine``."""


@dataclass(frozen=True, slots=True)
class SideResult:
    """The result of one side for a case."""

    text: str = ""
    """The text that the model sees, BOS included."""
    refused: str = ""
    """The reason why this side refused the case; empty if this side made a text."""
    code: str = ""
    """The error code if this side refused the case; else empty."""


def side_of(renderer: Side | Template, *, adds_bos: bool = False, adds_bos_on_request: bool = True) -> Side:
    """Return the side for a template. A side is returned unchanged.

    Raises UnsupportedParameter for a template that makes messages, because there is no text to compare.
    """
    if isinstance(renderer, Side):
        return renderer
    spec = renderer.spec
    if spec.makes_messages:
        raise UnsupportedParameter(f"the template {spec.name} makes messages, so there is no text to compare")
    return Side(renderer.render, spec.kind in ("meta", "base", "jinja"), adds_bos, adds_bos_on_request)


def chat_reference(template: Template) -> Side:
    """Return the side for a chat template. The text is tokenized without special tokens, so no engine adds a BOS."""

    def render(dialogue: Dialogue) -> Prompt:
        if dialogue.options.tools and template.spec.tools is None:
            raise UnsupportedParameter("the reference's chat template does not support tools", param="tools")
        return template.render(dialogue)

    return Side(render, writes_whole=True)
