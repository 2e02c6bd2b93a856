"""Models and prompts for the verbs. Prompts are rendered as in a served call."""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path
from typing import Any

from gateway.assembly import bare_route
from gateway.backend.embedded.cache import EngineCache
from gateway.calls.route import Route
from gateway.cli.options import CommandError
from gateway.config.files.reader import Files
from gateway.config.library import Library
from gateway.config.schema.names import suggest
from gateway.config.sections.templates import read_template
from gateway.config.snapshot import ModelSpec, PolicySpec, Snapshot, TargetSpec
from gateway.core.call import Call
from gateway.core.dialogue import Dialogue
from gateway.core.errors import ConfigError
from gateway.core.prompt import Prompt, Segment
from gateway.edge.provenance import rendering
from gateway.template.opencompass.renderer import full_segments
from gateway.template.spec import TemplateSpec
from gateway.wire.requests import read_chat


def find_model(
    model: str | None, template: str | None, snapshot: Snapshot | None, *, generates: bool = True
) -> ModelSpec:
    """Return a configured model, or one made for a template's file or name. Raises ``CommandError``, ``ConfigError``.

    ``generates``: a template needs a role with ``generate: true``.
    """
    if model is None:
        assert template is not None
        spec = _find_template(template, generates)
        target = TargetSpec(label=f"{spec.name}/0", speaks="scripted", model=spec.name)
        return ModelSpec(spec.name, spec, PolicySpec("default"), (target,))
    assert snapshot is not None
    if model not in snapshot.models:
        raise CommandError(f'no model "{model}" in the configuration{suggest(model, snapshot.models)}')
    return snapshot.models[model]


def find_any(name: str, snapshot: Snapshot | None) -> ModelSpec:
    """Return the model of that name if there is one, otherwise the template."""
    if snapshot is not None and name in snapshot.models:
        return snapshot.models[name]
    return find_model(None, name, None)


def _find_template(name: str, generates: bool) -> TemplateSpec:
    """A template's file by its path, or a template of ``./meta_templates`` or the package by its name."""
    path = Path(name)
    is_file = path.suffix in (".yaml", ".yml") or os.sep in name
    if is_file and not path.exists():
        raise CommandError(f"{name}: no such file")
    path = path.absolute() if is_file else path
    files = Files(path.parent if is_file else Path.cwd())
    blame = files.blame(path)
    spec = (
        read_template(files, path, path.stem, blame, generates=generates)
        if is_file
        else Library(files).template(name, blame)
    )
    if spec is None:
        raise ConfigError(files.in_order())
    return spec


def route_of(model: ModelSpec) -> Route:
    """Return a route that renders and has no backend."""
    return bare_route(model, EngineCache())


def explain(model: ModelSpec, body: dict[str, Any]) -> dict[str, Any]:
    """Return the result of ``POST /v1/render``."""
    return asyncio.run(rendering(route_of(model), _call(model, body)))[1]


def render(model: ModelSpec, body: dict[str, Any]) -> Prompt:
    """Return the prompt of a chat request."""
    return route_of(model).template.render(_dialogue(model, body))


def prompt_text(model: ModelSpec, body: dict[str, Any]) -> str:
    """Return the prompt as one text; messages as JSON, one on each line."""
    prompt = render(model, body)
    if prompt.messages is not None:
        return "".join([f"{json.dumps(message, ensure_ascii=False)}\n" for message in prompt.messages])
    return prompt.text


def conversation_segments(model: ModelSpec, body: dict[str, Any]) -> tuple[Segment, ...]:
    """Return the segments of the complete conversation, with no turn left open."""
    return full_segments(model.template, _dialogue(model, body))


def _call(model: ModelSpec, body: dict[str, Any]) -> Call:
    return read_chat({**body, "model": model.name}, request_id="cli", received=time.monotonic())


def _dialogue(model: ModelSpec, body: dict[str, Any]) -> Dialogue:
    dialogue = _call(model, body).dialogue
    assert dialogue is not None
    return dialogue
