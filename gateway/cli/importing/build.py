"""Builds a template file of a draft: compared with the source, with examples, and checked like every template."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gateway.cli.importing.verdict import verdict_of
from gateway.config.files import yaml
from gateway.config.files.reader import Files
from gateway.config.sections.templates import read_template
from gateway.core.dialogue import Dialogue
from gateway.core.errors import ConfigError, GatewayError, Problem
from gateway.importer.draft import Draft, Reference
from gateway.importer.yaml_writer import write_yaml
from gateway.template.base import Template
from gateway.template.lazyllm.template import slots_in
from gateway.template.registry import build, dialogue_of
from gateway.template.spec import Example, TemplateSpec

SYSTEM = {"role": "system", "content": "Answer with a number."}
QUESTION = {"role": "user", "content": "1+1=?"}
FOLLOW_UP = (QUESTION, {"role": "assistant", "content": "2"}, {"role": "user", "content": "2+2=?"})
CONVERSATIONS = ((QUESTION,), FOLLOW_UP, (SYSTEM, QUESTION), (SYSTEM, *FOLLOW_UP))
"""For the examples; without those that the reference excludes or refuses."""
MAX_EXAMPLES = 3


@dataclass(frozen=True, slots=True)
class TemplateFile:
    """A checked template file."""

    name: str
    """Of the file, and of the folder for ``files``."""
    text: str
    files: tuple[tuple[str, bytes], ...]
    """Paths and contents."""
    report: tuple[str, ...]
    """Lines for standard error: the verdict, and what was not carried over."""


def build_file(draft: Draft) -> TemplateFile:
    """The template file of a draft. Raises ``ConfigError`` if it is not exact."""
    with tempfile.TemporaryDirectory(prefix="gateway-import-") as scratch:
        spec = _check(draft, write_yaml(draft), Path(scratch))
        template = build(spec)
        reference = draft.reference or (draft.port(spec) if draft.port is not None else None)
        examples = _examples(template, reference, draft)  # first, because a template that never ends stops here
        lines = verdict_of(template, reference, draft)
        if reference is not None:
            lines.append(f"The prompts of the examples were written by {reference.name}.")
        lines += _ends(template)
        complete = replace(draft, keys={**draft.keys, "examples": examples})
        text = write_yaml(complete, lines)
        _check(complete, text, Path(scratch))
    report = [f"{draft.name}: imported from {draft.origin}", *lines, *[f"note: {note}" for note in draft.notes]]
    return TemplateFile(name=draft.name, text=text, files=draft.files, report=tuple(report))


def _check(draft: Draft, text: str, scratch: Path) -> TemplateSpec:
    """Read the file as ``gateway check`` does, with its folder; its values must be those of the draft."""
    path = scratch / f"{draft.name}.yaml"
    path.write_text(text, encoding="utf-8", newline="")
    for name, data in draft.files:
        beside = scratch / draft.name / name
        beside.parent.mkdir(parents=True, exist_ok=True)
        beside.write_bytes(data)
    files = Files(scratch)
    spec = read_template(files, path, draft.name, files.blame(path))
    if spec is None:
        found = [replace(problem, file=f"{draft.origin}: the template", line=0) for problem in files.in_order()]
        raise ConfigError(tuple(found))
    if yaml.parse(path.read_bytes(), path.name).value != draft.keys:
        raise GatewayError(f"{draft.origin}: the written file differs from what was read")
    return spec


def _examples(template: Template, reference: Reference | None, draft: Draft) -> list[dict[str, Any]]:
    """Examples with the reference's prompts. Raises ``ConfigError`` if no conversation can be rendered."""
    examples: list[dict[str, Any]] = []
    refusals: list[str] = []
    for messages in CONVERSATIONS:
        if reference is not None and any(one.matches(_dialogue(messages)) for one in reference.excluded):
            continue
        for variables in _variables(template.spec):
            try:
                examples.append(_example(template, reference, messages, variables))
                break
            except GatewayError as error:
                refusals.append(error.message)
    if not examples:
        why = refusals[0] if refusals else "the source excludes all of them"
        raise ConfigError((Problem(draft.origin, 0, "", f"no conversation can be shown as an example: {why}"),))
    return examples[:MAX_EXAMPLES]


def _example(
    template: Template, reference: Reference | None, messages: Sequence[Mapping[str, str]], variables: dict[str, str]
) -> dict[str, Any]:
    dialogue = _dialogue(messages, variables)
    prompt = template.render(dialogue)
    example: dict[str, Any] = {"messages": list(messages), **({"variables": variables} if variables else {})}
    if prompt.messages is not None:
        return {**example, "sent": [dict(message) for message in prompt.messages]}
    return {**example, "prompt": reference.render(dialogue) if reference is not None else prompt.text}


def _variables(spec: TemplateSpec) -> list[dict[str, str]]:
    """Variables to try for the slots of a prompter: none, then a text for each."""
    slots = [] if spec.prompter is None else slots_in(spec.prompter)
    named = {slot: f"(the {slot})" for slot in slots if spec.prompter is None or slot != spec.prompter.input_slot}
    return [{}, named] if named else [{}]


def _dialogue(messages: Sequence[Mapping[str, str]], variables: Mapping[str, str] | None = None) -> Dialogue:
    return dialogue_of(Example(tuple(messages), variables=variables or {}))


def _ends(template: Template) -> list[str]:
    """A line with the texts that end an answer."""
    for variables in _variables(template.spec):
        with suppress(GatewayError):
            stops = template.render(_dialogue((QUESTION,), variables)).metadata.stops
            return [f"Answers end at: {', '.join(map(repr, stops)) or 'no text that is known: write stop'}"]
    return []
