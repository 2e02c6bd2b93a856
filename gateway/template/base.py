"""What is a template? Something that renders a dialogue into a prompt."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from gateway.core.dialogue import Dialogue
from gateway.core.prompt import Prompt
from gateway.template.spec.template import TemplateSpec


@runtime_checkable
class Template(Protocol):
    """A renderer bound to one template file; made by ``build.build``, safe to share between calls."""

    @property
    def spec(self) -> TemplateSpec:
        """The file it was made from."""
        ...

    def render(self, dialogue: Dialogue) -> Prompt:
        """The prompt for this dialogue.

        Raises RoleNotSupported, MediaNotSupported, UnsupportedParameter or InvalidValue, each with ``param``.
        """
        ...


class AwaitedTemplate(Template, Protocol):
    """A renderer that may have to wait for another process."""

    async def render_awaited(self, dialogue: Dialogue) -> Prompt:
        """The prompt of ``render``, while the event loop goes on. Also raises ``TemplateError`` and ``Overloaded``."""
        ...
