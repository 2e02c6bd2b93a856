"""How do the verbs render? The same way as a served call, with a template file in place of a model if asked."""

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
from gateway.cli.options import NotFound
from gateway.config.files.reader import Files
from gateway.config.library import Library
from gateway.config.schema.names import suggest
from gateway.config.sections.templates import read_template
from gateway.config.snapshot import ModelSpec, PolicySpec, Snapshot, TargetSpec
from gateway.core.call import Call
from gateway.core.dialogue import Dialogue
from gateway.core.errors import ConfigError
from gateway.core.prompt import Segment
from gateway.edge.provenance import rendering
from gateway.template.full_text import full_segments
from gateway.template.spec.template import TemplateSpec
from gateway.wire.requests import read_chat


def find_route(model: str | None, template: str | None, snapshot: Snapshot | None) -> Route:
    """The route of a configured model, or one made around a template."""
    if model is None:
        assert template is not None
        return _around(_template(template))
    return bare_route(_model(model, snapshot), EngineCache())


def find_either(name: str, snapshot: Snapshot | None) -> Route:
    """A model if there is one of that name, else a template."""
    if snapshot is not None and name in snapshot.models:
        return find_route(name, None, snapshot)
    return find_route(None, name, snapshot)


def explain(route: Route, body: dict[str, Any]) -> dict[str, Any]:
    """What ``/v1/render`` answers."""
    return asyncio.run(rendering(route, _call(route.spec.name, body)))[1]


def segments_of(route: Route, body: dict[str, Any]) -> tuple[tuple[Segment, ...], tuple[Any, ...] | None]:
    """The prompt's segments, or the messages of a message template."""
    prompt = route.template.render(_dialogue(route.spec.name, body))
    return prompt.segments or (), prompt.messages


def whole_of(
    model: str | None, template: str | None, snapshot: Snapshot | None, body: dict[str, Any]
) -> tuple[Segment, ...]:
    """The complete conversation. Nobody is asked, so a template file needs no role that generates."""
    if model is None:
        assert template is not None
        spec = _template(template, generates=False)
    else:
        spec = _model(model, snapshot).template
    return full_segments(spec, _dialogue(spec.name, body))


def text_of(route: Route, body: dict[str, Any]) -> str:
    """The prompt as one string; messages one a line."""
    segments, messages = segments_of(route, body)
    if messages is not None:
        return "".join(f"{json.dumps(message, ensure_ascii=False)}\n" for message in messages)
    return "".join(segment.text for segment in segments)


def visible(text: str) -> str:
    """A text on one line: line ends, tabs and trailing blanks are shown."""
    shown = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    stripped = shown.rstrip(" ")
    return stripped + "·" * (len(shown) - len(stripped))


def _call(model: str, body: dict[str, Any]) -> Call:
    return read_chat({**body, "model": model}, request_id="cli", received=time.monotonic())


def _dialogue(model: str, body: dict[str, Any]) -> Dialogue:
    dialogue = _call(model, body).dialogue
    assert dialogue is not None
    return dialogue


def _model(name: str, snapshot: Snapshot | None) -> ModelSpec:
    assert snapshot is not None
    spec = snapshot.models.get(name)
    if spec is None:
        raise NotFound(f'no model "{name}" in the configuration{suggest(name, snapshot.models)}')
    return spec


def _around(template: TemplateSpec) -> Route:
    target = TargetSpec(label=f"{template.name}/0", speaks="scripted", model=template.name)
    return bare_route(ModelSpec(template.name, template, PolicySpec("default"), (target,)), EngineCache())


def _template(name: str, *, generates: bool = True) -> TemplateSpec:
    """A template file by path, or a shipped one (or one in ./meta_templates) by name."""
    path = Path(name)
    is_file = path.suffix in (".yaml", ".yml") or os.sep in name
    files = Files(path.parent.absolute() if is_file else Path.cwd())
    blame = files.blame(path.absolute() if is_file else Path(name))
    if is_file and not path.exists():
        raise NotFound(f"{name}: no such file")
    if is_file:
        spec = read_template(files, path.absolute(), path.stem, blame, generates=generates)
    else:
        spec = Library(files).template(name, blame)
    if spec is None:
        raise ConfigError(files.in_order())
    return spec
