"""Which examples does an imported template get? Conversations with the prompts that the source itself makes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gateway.core.dialogue import Dialogue
from gateway.core.errors import ConfigError, GatewayError, Problem
from gateway.importer.draft import Draft, Reference
from gateway.template.base import Template
from gateway.template.lazyllm.template import slots_in
from gateway.template.registry import dialogue_of
from gateway.template.spec.template import Example, TemplateSpec

TALKS: tuple[tuple[tuple[str, str], ...], ...] = (
    (("user", "1+1=?"),),
    (("user", "1+1=?"), ("assistant", "2"), ("user", "2+2=?")),
    (("system", "Answer with a number."), ("user", "1+1=?")),
    (("system", "Answer with a number."), ("user", "1+1=?"), ("assistant", "2"), ("user", "2+2=?")),
)
"""The conversations of the examples; those that the reference is not asked for, or refuses, are left out."""
MOST_EXAMPLES = 3


def examples_of(template: Template, reference: Reference | None, draft: Draft) -> list[dict[str, Any]]:
    """Examples that the reference vouches for. Raises ``ConfigError`` where no conversation can be rendered at all."""
    examples: list[dict[str, Any]] = []
    refusals: list[str] = []
    for talk in TALKS:
        messages = [{"role": role, "content": content} for role, content in talk]
        if reference is not None and any(one.holds(asking(messages)) for one in reference.excluded):
            continue
        for variables in variables_of(template.spec):
            try:
                examples.append(_example(template, reference, messages, variables))
                break
            except GatewayError as error:  # what the source does not take is no example
                refusals.append(error.message)
    if not examples:
        told = refusals[0] if refusals else "the source vouches for none of them"
        raise ConfigError((Problem(draft.origin, 0, "", f"no conversation can be shown as an example: {told}"),))
    return examples[:MOST_EXAMPLES]


def variables_of(spec: TemplateSpec) -> list[dict[str, str]]:
    """What a request may bring for the slots of a prompter: nothing, or a text for each."""
    if spec.prompter is None:
        return [{}]
    slots = [slot for slot in slots_in(spec.prompter) if slot != spec.prompter.input_slot]
    return [{}, {slot: f"(the {slot})" for slot in slots}] if slots else [{}]


def asking(messages: Sequence[Mapping[str, str]], variables: Mapping[str, str] | None = None) -> Dialogue:
    """The messages as a request brings them."""
    return dialogue_of(Example(tuple(messages), variables=variables or {}))


def _example(
    template: Template, reference: Reference | None, messages: list[dict[str, str]], variables: dict[str, str]
) -> dict[str, Any]:
    dialogue = asking(messages, variables)
    prompt = template.render(dialogue)
    example: dict[str, Any] = {"messages": messages, **({"variables": variables} if variables else {})}
    if prompt.messages is not None:
        return {**example, "sent": [dict(message) for message in prompt.messages]}
    return {**example, "prompt": reference.render(dialogue) if reference is not None else prompt.text}
