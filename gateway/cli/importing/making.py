"""How does a draft become a file? Written, compared, given examples, and checked like every template."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gateway.cli.importing.examples import asking, examples_of, variables_of
from gateway.cli.importing.verdict import Verdict, judge
from gateway.config.files import yaml
from gateway.config.files.reader import Files
from gateway.config.sections.templates import read_template
from gateway.core.errors import ConfigError, GatewayError, Problem
from gateway.importer.draft import Draft, Reference
from gateway.importer.written import written
from gateway.template.base import Template
from gateway.template.registry import build
from gateway.template.spec.template import TemplateSpec


@dataclass(frozen=True, slots=True)
class Made:
    """A template file that has been checked."""

    name: str
    """Also of the folder for what lies beside."""
    text: str
    beside: tuple[tuple[str, bytes], ...]
    told: tuple[str, ...]
    """For standard error: the verdict, and what was not carried over."""


def made(draft: Draft) -> Made:
    """The file, compared and checked. Raises ``ConfigError`` for what cannot be written exactly."""
    with tempfile.TemporaryDirectory(prefix="gateway-import-") as scratch:
        spec = _checked(draft, written(draft), Path(scratch))
        template = build(spec)
        reference = draft.reference or (draft.port(spec) if draft.port is not None else None)
        examples = examples_of(template, reference, draft)  # first, because a template that never ends stops here
        verdict = judge(template, reference, draft)
        if not verdict.exact:
            raise ConfigError((Problem(draft.origin, 0, "", "\n  ".join(verdict.lines)),))
        whole = replace(draft, keys={**draft.keys, "examples": examples})
        lines = _said(verdict, reference, template)
        text = written(whole, lines)
        _checked(whole, text, Path(scratch))
    told = [f"{draft.name}: imported from {draft.origin}", *lines, *[f"note: {note}" for note in draft.notes]]
    return Made(draft.name, text, draft.beside, tuple(told))


def _checked(draft: Draft, text: str, scratch: Path) -> TemplateSpec:
    """Read the file as ``gateway check`` does, with what lies beside it; its values must be those of the draft."""
    path = scratch / f"{draft.name}.yaml"
    path.write_text(text, encoding="utf-8", newline="")
    for name, data in draft.beside:
        beside = scratch / draft.name / name
        beside.parent.mkdir(parents=True, exist_ok=True)
        beside.write_bytes(data)
    files = Files(scratch)
    spec = read_template(files, path, draft.name, files.blame(path))
    if spec is None:
        raise ConfigError(
            tuple([replace(problem, file=f"{draft.origin}: made of it", line=0) for problem in files.in_order()])
        )
    kept = yaml.parse(path.read_bytes(), path.name).value
    if kept != _plain(draft.keys):
        raise GatewayError(f"{draft.origin}: the file that was made does not hold what was read")
    return spec


def _plain(value: Any) -> Any:
    """Tuples as lists, as YAML gives them back."""
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value


def _said(verdict: Verdict, reference: Reference | None, template: Template) -> list[str]:
    lines = list(verdict.lines)
    if reference is not None:
        lines.append(f"The prompts of the examples were written by {reference.title}.")
    for variables in variables_of(template.spec):
        with suppress(GatewayError):
            stops = template.render(asking(({"role": "user", "content": "1+1=?"},), variables)).stops
            ends = ", ".join([repr(stop) for stop in stops]) or "no text that is known: write stop"
            return [*lines, f"Answers end at: {ends}"]
    return lines
