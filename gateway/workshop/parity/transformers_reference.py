"""Renders a dialogue with ``transformers``, if installed. The text is the reference for the gateway's renderer.

Only ``gateway parity`` and ``gateway import`` use this module, because the render has no time limit and the import of
``transformers`` takes a second. The template gets the messages that the gateway's renderer gives to the template, and
the same requests are refused before the render.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from jinja2.exceptions import TemplateError as JinjaError

from metatemplate.chat_templates.call_content import (
    EMPTY_TEXT,
    LEFT_OUT,
    with_content_form,
    without_content,
)
from metatemplate.chat_templates.folder import TOOL_USE
from metatemplate.chat_templates.renderer import JinjaTemplate
from metatemplate.chat_templates.sandbox.compiled_template import error_text, refusal
from metatemplate.chat_templates.variables import check_call_fields, template_messages
from metatemplate.errors import InvalidInput, TemplateFailure
from metatemplate.templates.chat.messages import check_dialogue, check_open_turn
from metatemplate.templates.spec import JinjaSpec, TemplateSpec
from metatemplate.templates.tools import tools_of
from metatemplate.values.dialogue import Dialogue
from metatemplate.values.prompt import Prompt, PromptMetadata

PACKAGE = "transformers"
OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "TRANSFORMERS_NO_ADVISORY_WARNINGS": "1"}
"""Environment variables that prevent network access, and advice on standard error."""
CLOCK = "strftime_now"
"""The template function for the present time."""


def installed(package: str = PACKAGE) -> str:
    """Return the version of a package; empty if the package is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def clock_of(spec: JinjaSpec) -> Callable[[str], str]:
    """Return the template function for the present time, which is fixed if the template file has a ``clock``."""
    time = datetime.fromisoformat(spec.clock) if spec.clock else None
    return lambda form: (time or datetime.now()).strftime(form)


class TransformersTemplate:
    """Renders dialogues with the renderer of ``apply_chat_template``, without network access."""

    def __init__(self, spec: TemplateSpec) -> None:
        """Compile the templates. Raises ``ImportError`` if ``transformers`` is not installed.

        Raises ``TemplateFailure`` for a template that cannot be compiled.
        """
        os.environ.update(OFFLINE)
        from transformers.utils.chat_template_utils import _compile_jinja_template, render_jinja_template

        assert spec.jinja is not None
        self.spec = spec
        self._jinja: JinjaSpec = spec.jinja
        self._templates = dict(
            zip([name for name, _ in self._jinja.sources], JinjaTemplate(spec).compiled, strict=True)
        )
        self._fixed = {**self._jinja.special_tokens, **self._jinja.kwargs}
        self._render: Any = render_jinja_template
        """The part of ``apply_chat_template`` that renders. The part before it only leaves out fields that are null."""
        self._compile: Any = _compile_jinja_template
        """Returns the compiled template, one for each source."""

    def render(self, dialogue: Dialogue) -> Prompt:
        """Return the prompt for this dialogue. See ``base.Template``."""
        if dialogue.options.tools and self.spec.tools is None:
            check_dialogue(dialogue)  # raises the error
        check_open_turn(dialogue)
        tools = list(tools_of(dialogue)) or None
        default = next(iter(self._templates.values()))
        template = self._templates.get(TOOL_USE, default) if tools else default
        check_call_fields(dialogue, template)
        messages = template_messages(dialogue, self._jinja)
        numbers = without_content(messages)
        last = EMPTY_TEXT if numbers else LEFT_OUT
        for form in range(last):
            with suppress(TemplateFailure, InvalidInput):
                return self._prompt(dialogue, with_content_form(messages, numbers, form), tools, template.source)
        return self._prompt(dialogue, with_content_form(messages, numbers, last), tools, template.source)

    def _prompt(self, dialogue: Dialogue, messages: Any, tools: Any, source: str) -> Prompt:
        try:
            self._compile(source).globals[CLOCK] = clock_of(self._jinja)
            (text,), _ = self._render(
                conversations=[messages],
                tools=tools,
                chat_template=source,
                add_generation_prompt=not (dialogue.options.continue_final or dialogue.options.whole),
                continue_final_message=dialogue.options.continue_final,
                **{**self._fixed, **dialogue.options.template_kwargs},
            )
        except Exception as error:  # an expression in a template may raise any error
            if type(error) is JinjaError:  # ``raise_exception`` raises the base class itself
                raise refusal(error_text(error)) from None
            if isinstance(error, ValueError) and dialogue.options.continue_final:
                raise InvalidInput(
                    f"transformers refuses the request: {error_text(error)}", param="continue_final_message"
                ) from None
            raise TemplateFailure(f"{type(error).__name__}: {error_text(error)}") from None
        return Prompt(text, PromptMetadata(bos=self.spec.bos, bos_text=self.spec.bos_text))
