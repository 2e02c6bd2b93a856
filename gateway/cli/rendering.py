"""Finds models and renders prompts for the verbs. Prompts are rendered as in a call to the server."""

from __future__ import annotations

import asyncio
import json
import os
import re
from dataclasses import replace
from typing import Any

from gateway.assembly import PromptParts, bare_route, dataset_prompts
from gateway.calls.explain import rendering
from gateway.calls.preparation.prepare import Prepared, prepare
from gateway.calls.route import Route
from gateway.cli.options import CommandError, print_note
from gateway.config.library import find_template, is_template_file
from gateway.config.snapshot import ModelSpec, PolicySpec, Snapshot, TargetSpec
from gateway.core.call import Call, TurnRequests
from gateway.wire.requests import read_chat
from metatemplate.templates.registry import build
from metatemplate.values.dialogue import EMPTY_MAPPING
from metatemplate.values.prompt import Notice, Prompt, Segment
from metatemplate.values.words import suggest


def find_model(
    model: str | None, template: str | None, snapshot: Snapshot | None, *, generates: bool = True
) -> ModelSpec:
    """Return a configured model, or make a model for a template. Raises ``CommandError`` or ``ConfigError``.

    ``template``: a name or a file. ``generates``: whether the template needs a role with ``generate: true``.
    """
    if model is None:
        assert template is not None
        if is_template_file(template) and not os.path.exists(template):
            raise CommandError(f"{template}: no such file")
        spec = find_template(template, generates=generates)
        target = TargetSpec(label=f"{spec.name}/0", speaks="scripted", model=spec.name)
        return ModelSpec(spec.name, spec, PolicySpec("default"), (target,))
    assert snapshot is not None
    if model not in snapshot.models:
        raise CommandError(f'no model "{model}" in the configuration{suggest(model, snapshot.models)}')
    return snapshot.models[model]


def find_any(name: str, snapshot: Snapshot | None) -> ModelSpec:
    """Return the configured model with this name, or else a model made for the template with this name or path."""
    if snapshot is not None and name in snapshot.models:
        return snapshot.models[name]
    return find_model(None, name, None)


def route_of(model: ModelSpec, snapshot: Snapshot | None = None) -> Route:
    """Return a route that renders prompts but has no backend. ``snapshot`` contains the dataset prompts."""
    prompts = EMPTY_MAPPING if snapshot is None else dataset_prompts(snapshot)
    return bare_route(model, PromptParts(prompts))


def explain(model: ModelSpec, body: dict[str, Any], snapshot: Snapshot | None = None) -> dict[str, Any]:
    """Return the answer that ``POST /v1/render`` would give to a request body."""
    return asyncio.run(rendering(*_route_and_call(model, body, snapshot)))[1]


def render(model: ModelSpec, body: dict[str, Any], snapshot: Snapshot | None = None) -> Prompt:
    """Return the prompt of a chat request as in a call to the server, and print the request's notices."""
    route, call = _route_and_call(model, body, snapshot)
    dataset_prompt = None if call.dataset_prompt is None else route.prompts.get(call.dataset_prompt.id)
    if call.turns is not None or (dataset_prompt is not None and dataset_prompt.labels):
        raise CommandError(
            "the request has several prompts, one for each turn or label; show them with gateway render --json"
        )
    prepared = asyncio.run(prepare(route, call))
    for notice in notices_of(prepared, body):
        print_note(f"{model.name}: {notice}")
    assert prepared.prompt is not None
    return prepared.prompt


def notices_of(prepared: Prepared, body: dict[str, Any]) -> list[Notice]:
    """Return the notices to print: all notices except those about parameters that the request does not contain.

    The policy sets such parameters to the same values in every call, and they do not change the prompt.
    """
    return [
        notice
        for notice in prepared.notices
        if not notice.rule.endswith("_parameter") or re.split("[= ]", notice.detail)[0] in body
    ]


def prompt_text(model: ModelSpec, body: dict[str, Any], snapshot: Snapshot | None = None) -> str:
    """Return the prompt as one text. If the prompt is a list of messages, each message becomes one line of JSON."""
    prompt = render(model, body, snapshot)
    if prompt.messages is not None:
        return "".join([f"{json.dumps(message, ensure_ascii=False)}\n" for message in prompt.messages])
    return prompt.text


def conversation_segments(model: ModelSpec, body: dict[str, Any]) -> tuple[Segment, ...]:
    """Return the segments of the complete conversation, with no turn left open."""
    call = _call(model, {**body, "add_generation_prompt": False})
    if call.dialogue is None or call.dataset_prompt is not None:
        raise CommandError("--whole needs messages; remove --whole, or give messages instead of a dataset prompt")
    spec = model.template
    if spec.kind == "meta" and not spec.round:  # as OpenCompass: texts without roles are joined by line breaks
        template = build(replace(spec, kind="meta" if spec.reserved_roles else "base", turns="opencompass"))
    else:
        template = route_of(model).template
    segments = template.render(call.dialogue).segments
    if segments is None:
        raise CommandError(f"template {model.template.name} makes messages; the model's server writes the conversation")
    return segments


def _route_and_call(model: ModelSpec, body: dict[str, Any], snapshot: Snapshot | None) -> tuple[Route, Call]:
    """Return the route and the call. For a dataset prompt with several turns, the call asks for every turn."""
    route, call = route_of(model, snapshot), _call(model, body)
    prompt = None if call.dataset_prompt is None else route.prompts.get(call.dataset_prompt.id)
    if prompt is not None and prompt.spec.multi_turn and call.turns is None:
        call = replace(call, turns=TurnRequests(mode="every"))
    return route, call


def _call(model: ModelSpec, body: dict[str, Any]) -> Call:
    return read_chat({**body, "model": model.name}, request_id="cli", answered=False)
