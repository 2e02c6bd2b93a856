"""Other engines that render chat templates. Each is imported when a command line names it (extra ``engines``).

The gateway makes the variables of the template, and cuts a message that is continued; the engine does the rest. Engines
in this process have no time limit, except that of llama.cpp.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from gateway.workshop.parity.transformers_reference import CLOCK, TransformersTemplate, clock_of, installed
from metatemplate.chat_templates.renderer import JinjaTemplate
from metatemplate.chat_templates.sandbox.compiled_template import RenderedText, RenderingFailed, error_text, refusal
from metatemplate.chat_templates.sandbox.environment import ConversationRefused, raise_exception, tojson
from metatemplate.templates.base import Template
from metatemplate.templates.spec import TemplateSpec

RenderSource = Callable[[str, Mapping[str, Any]], str]
"""Renders the source of a template with variables. Raises ``refusal`` or ``RenderingFailed``."""

LLAMACPP_CLOCK = "2026-01-01"
"""The time that the template function for the present time always has in ``ggufdoctor``'s build of llama.cpp."""
EMPTY_TOKENS = dict.fromkeys(("bos_token", "eos_token", "unk_token", "pad_token"), "")
"""The special tokens for which ``ggufdoctor`` has texts of its own, if a template does not get them."""


class EngineTemplate(JinjaTemplate):
    """Renders dialogues as the gateway does, but the text of the chat template with another engine.

    Only ``_rendered`` differs, which gets the variables and returns the text.
    """

    def __init__(self, spec: TemplateSpec, render_source: RenderSource) -> None:
        self._render_source = render_source
        super().__init__(spec)

    def _rendered(self, job: Any) -> RenderedText:
        return RenderedText(self._render_source(self.compiled[job.template].source, job.variables))


def with_transformers(spec: TemplateSpec) -> tuple[Template, str]:
    """Return the renderer of ``transformers``, and its name and version."""
    return TransformersTemplate(spec), f"transformers {installed()}"


def with_llamacpp(spec: TemplateSpec) -> tuple[Template, str]:
    """Return the renderer of llama.cpp, and its name and build. It has the limits of ``ggufdoctor``."""
    from ggufdoctor.engines.llamacpp_engine import LlamaCppEngine

    engine = LlamaCppEngine()
    if not engine.available:
        raise ImportError(engine.unavailable_reason)

    def render_source(source: str, variables: Mapping[str, Any]) -> str:
        given = {name: value for name, value in variables.items() if value is not None}  # llama.cpp leaves it undefined
        result = engine.render(source, json.loads(json.dumps({**EMPTY_TOKENS, **given}, default=dict)))
        kind, _, reason = (result.error or "").partition(":")
        if kind:
            raise refusal(reason) if kind == "raise" else RenderingFailed(reason.strip())
        return str(result.text)

    return EngineTemplate(spec, render_source), f"llama.cpp {engine.version}"


def with_minijinja(spec: TemplateSpec) -> tuple[Template, str]:
    """Return the renderer of minijinja, with the functions and the JSON of chat templates, and its name and version."""
    from minijinja import Environment

    assert spec.jinja is not None
    functions = {CLOCK: clock_of(spec.jinja), "raise_exception": raise_exception}
    environment = Environment(trim_blocks=True, lstrip_blocks=True, globals=functions, filters={"tojson": tojson})

    def render_source(source: str, variables: Mapping[str, Any]) -> str:
        try:
            return environment.render_str(source, **variables)
        except ConversationRefused as error:
            raise refusal(error_text(error)) from None
        except Exception as error:  # a function in a template may raise any error
            raise RenderingFailed(str(getattr(error, "message", error))) from None

    return EngineTemplate(spec, render_source), f"minijinja {installed('minijinja')}"


CHAT_TEMPLATE_ENGINES: Mapping[str, Callable[[TemplateSpec], tuple[Template, str]]] = {
    "transformers": with_transformers,
    "llama.cpp": with_llamacpp,
    "minijinja": with_minijinja,
}
"""Name of an engine on the command line → what makes its renderer. Raises ``ImportError`` if it is not installed."""
