"""Makes the renderer of a checked template file, and runs the examples in the file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, cast

from metatemplate.errors import MetaTemplateError
from metatemplate.templates.base import PromptListTemplate, Template
from metatemplate.templates.spec import Example, RoleSpec, SpecProblem, TemplateSpec
from metatemplate.values.dialogue import Dialogue, read_messages, render_options
from metatemplate.values.prompt import Prompt

if TYPE_CHECKING:
    from metatemplate.answers.output_parsing import OutputParsing

SHOWN = 40
"""The number of characters that an error shows of the expected and of the rendered text, from the first difference."""


RENDERERS: Mapping[str, str] = {
    "api": "metatemplate.meta.api_messages:ApiTemplate",
    "base": "metatemplate.opencompass.joined:JoinedTemplate",
    "chat": "metatemplate.templates.chat.passthrough:ChatTemplate",
    "jinja": "metatemplate.chat_templates.renderer:JinjaTemplate",  # imports jinja2, which is optional
    "natural": "metatemplate.meta.renderer:MetaTemplate",
    "opencompass": "metatemplate.opencompass.renderer:OpenCompassTemplate",
    "prompter": "metatemplate.prompters.template:PrompterTemplate",
    "prompter for messages": "metatemplate.prompters.api_messages:ApiPrompterTemplate",
    "tools": "metatemplate.meta.tools:ToolTemplate",
}
"""A kind of template, or for ``kind: meta`` what it makes or its ``turns`` → its renderer, imported when it is made."""


def build(spec: TemplateSpec) -> Template:
    """Make the renderer of a checked template file."""
    return cast(Template, resolve_name(RENDERERS[_renderer(spec)])(spec))


def _renderer(spec: TemplateSpec) -> str:
    """Return the row of ``RENDERERS`` for a template file."""
    if spec.kind == "prompter" and spec.makes_messages:
        return "prompter for messages"
    if spec.kind != "meta":
        return spec.kind
    if spec.api:
        return "api"
    if spec.tools is not None:
        return "tools"
    return spec.turns


DEFAULT_API = TemplateSpec(
    name="chat",
    kind="meta",
    round=(
        RoleSpec(role="HUMAN", api_role="HUMAN"),
        RoleSpec(role="BOT", api_role="BOT", generate=True),
    ),
    reserved_roles=(RoleSpec(role="SYSTEM", api_role="SYSTEM"),),
)
"""AISBench's meta template for a model that has none (``docs/spec/opencompass.md`` 6). This template makes messages."""


def build_for_prompt_lists(spec: TemplateSpec) -> PromptListTemplate:
    """Make the writer of prompt lists. For most kinds it makes messages, which the template then renders."""
    if spec.kind not in ("base", "meta"):
        spec = DEFAULT_API
    kind = spec.kind if spec.kind == "base" else "api" if spec.api else "opencompass"
    return cast(PromptListTemplate, resolve_name(RENDERERS[kind])(spec))


def output_parsing(spec: TemplateSpec) -> OutputParsing | None:
    """Return the object that makes the options of the output parser. None if all text of the model is content."""
    if not spec.parses_answers:
        return None
    from metatemplate.answers.output_parsing import OutputParsing

    return OutputParsing(spec)


def run_examples(template: Template) -> list[SpecProblem]:
    """Render every example of the template file. Return a problem for each unexpected result."""
    problems: list[SpecProblem] = []
    spec = template.spec
    for number, example in enumerate(spec.examples):
        for key, wanted in (("prompt", example.prompt), ("sent", example.sent)):
            if wanted is None:
                continue
            # The targets of a model decide whether a prompter makes a string or messages.
            renderer = build(spec.for_messages()) if key == "sent" and spec.kind == "prompter" else template
            try:
                prompt = renderer.render(dialogue_of(example, whole=spec.scores_only))
                message = _without_answer(spec, prompt, wanted) or _difference(prompt, wanted)
            except MetaTemplateError as error:
                key, message = "messages", f"this example cannot be rendered: {error.message}"
            if message:
                problems.append(SpecProblem(("examples", number, key), message))
    return problems


def dialogue_of(example: Example, *, whole: bool = False) -> Dialogue:
    """Return the dialogue of a request that has the messages and options of an example.

    ``whole``: True for a complete conversation, in which no new answer is opened.
    """
    return Dialogue(
        read_messages(list(example.messages)),
        render_options(
            continue_final=example.continue_final_message,
            tools=example.tools,
            tool_choice=example.tool_choice,
            variables=example.variables,
            whole=whole,
        ),
    )


def _difference(prompt: Prompt, wanted: str | Sequence[Mapping[str, Any]]) -> str:
    if isinstance(wanted, str):
        return "" if prompt.text == wanted else _text_difference(wanted, prompt.text)
    sent, expected = list(prompt.messages or ()), list(wanted)
    texts = [json.dumps(messages, ensure_ascii=False) for messages in (expected, sent)]
    return "" if sent == expected else _text_difference(*texts)


def _without_answer(spec: TemplateSpec, prompt: Prompt, wanted: str | Sequence[Mapping[str, Any]]) -> str:
    """Return the message for an expected prompt that opens an answer, but no role has ``generate``; otherwise empty."""
    begun = prompt.text.removesuffix(spec.end)
    if not spec.scores_only or not isinstance(wanted, str) or not begun or not wanted.startswith(begun):
        return ""
    missing = wanted[len(begun) :]
    for role in spec.round:
        if missing and isinstance(role, RoleSpec) and role.begin == missing:
            return f"no role has generate: true, so the prompt ends before {missing!r}; add it to the role {role.role}"
    return ""


def _text_difference(wanted: str, got: str) -> str:
    """Return the error message for an expected text and a different rendered text."""
    at = first_difference(wanted, got)
    return (
        f"the rendered prompt differs from the example at position {at}\n  expected {wanted!r}\n  got      {got!r}\n"
        f"  there    {wanted[at : at + SHOWN]!r} became {got[at : at + SHOWN]!r}"
    )


def first_difference(one: Sequence[object], other: Sequence[object]) -> int:
    """Return the number of equal characters (or items) at the start of both texts (or lists)."""
    pairs = zip(one, other, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))
