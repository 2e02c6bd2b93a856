"""The bytes are those of ``transformers``: 300 random conversations for each template, against its recorded prompts.

``record_goldens.py`` beside this file made the goldens, and compares them anew where ``transformers`` is installed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

import pytest

from metatemplate.chat_templates.renderer import JinjaTemplate
from metatemplate.chat_templates.sandbox.compiled_template import RenderedText
from metatemplate.errors import InvalidInput, MetaTemplateError, TemplateFailure
from metatemplate.files.template import parse_spec
from metatemplate.templates.registry import build
from tests.metatemplate.chat_templates import cases
from tests.metatemplate.chat_templates.samples import body_of, dialogue

GOLDENS = json.loads(cases.GOLDENS.read_text(encoding="utf-8"))
REFUSES = "this model's chat template refuses the conversation: "


def template(name: str) -> JinjaTemplate:
    keys: dict[str, Any] = {
        "kind": "jinja",
        "file": f"{name}.jinja",
        "special_tokens": cases.TOKENS,
        "request_kwargs": list(cases.KINDS[name].kwargs),
        "content": "parts" if cases.KINDS[name].parts else "text",
        "clock": cases.DAY,
        **({"tools": {"parser": "json"}} if cases.KINDS[name].tools else {}),
    }

    def fetch(path: str) -> bytes | None:
        file = cases.FOLDER / path
        return file.read_bytes() if file.exists() else None

    made = build(parse_spec(keys, name=name, fetch=fetch))
    assert isinstance(made, JinjaTemplate)
    return made


def outcome(made: JinjaTemplate, case: dict[str, Any]) -> str:
    """As the recorder writes it."""
    try:
        return f"={made.render(dialogue(body_of(case))).text}"
    except InvalidInput as error:
        return f"refused: {error.message.removeprefix(REFUSES)}" if error.message.startswith(REFUSES) else "error"
    except TemplateFailure:
        return "error"


@pytest.mark.parametrize("name", cases.KINDS)
def test_the_prompts_are_those_of_transformers(name: str) -> None:
    made, known = template(name), GOLDENS[name]
    for number, (case, digest) in enumerate(zip(cases.cases(name), known["hashes"].split(), strict=True)):
        got = outcome(made, case)
        if number < cases.WHOLE:
            assert got == known["whole"][number]
        assert hashlib.sha256(got.encode()).hexdigest()[:8] == digest, (number, case, got)


@pytest.mark.parametrize("name", cases.KINDS)
def test_the_subprocess_renders_the_same_text(name: str) -> None:
    made = template(name)
    for case in cases.cases(name)[:25]:
        job = made._job(dialogue(body_of(case)))  # the mark of a continued message is random, so both get the same job
        assert job.in_process == made.compiled[0].has_known_operations
        assert attempt(made.compiled[0].render, job.variables) == attempt(made._subprocess.render, 0, job.variables)


def attempt(render: Callable[..., RenderedText], *arguments: Any) -> RenderedText | str:
    """The rendered text or the error."""
    try:
        return render(*arguments)
    except (InvalidInput, TemplateFailure) as error:
        return f"{type(error).__name__}: {error}"


@pytest.mark.parametrize("name", cases.KINDS)
def test_segments_join_to_the_prompt_and_hold_what_was_said(name: str) -> None:
    made = template(name)
    mixed = 0
    for case in cases.cases(name)[:100]:
        asked = dialogue(body_of(case))
        try:
            prompt = made.render(asked)
        except MetaTemplateError:
            continue
        assert prompt.segments is not None
        assert "".join(segment.text for segment in prompt.segments) == prompt.text
        mixed += prompt.segments[0].origin == "mixed" and len(prompt.segments) == 1
        for segment in prompt.segments:
            assert segment.scaffold == (segment.origin in ("template", "generate"))
    assert mixed <= MIXED.get(name, 0), mixed


MIXED = {
    "chatml": 1,
    "inst": 10,
    "turns": 1,
    "plain": 1,
    "documents": 43,
    "controls": 78,
    "thinking": 6,
    "gathered": 10,
    "columns": 100,
}
"""Conversations out of a hundred, full of markers as they are, whose text cannot be taken apart: the template has cut,
measured or rewritten the words. These were counted; more of them would be a loss.
"""
