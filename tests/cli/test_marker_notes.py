"""The notes on models whose turns are protected only in part."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gateway.cli.marker_notes import marker_notes
from gateway.config.library import find_template, shipped_folder
from gateway.config.snapshot import MarkersPolicy, ModelSpec, PolicySpec, TargetSpec
from metatemplate.files.template import parse_spec
from metatemplate.files.template_file import BUILT_IN
from metatemplate.templates.spec import TemplateSpec

DEMO_MODEL = Path("demo/model")
PAGE = Path("docs/security.md").read_text(encoding="utf-8")
IN_TEXT, UNKNOWN = "A line of ordinary text begins a turn in", "Unknown are those of"


def model(template: TemplateSpec, speaks: str = "completions", text_like: str = "report", **keys: object) -> ModelSpec:
    policy = PolicySpec("p", markers=MarkersPolicy(text_like=text_like))  # type: ignore[arg-type]
    target = TargetSpec("m/0", speaks, url="http://127.0.0.1:1/v1")
    return ModelSpec("m", template, policy, (target,), **keys)  # type: ignore[arg-type]


def notes(*models: ModelSpec) -> list[str]:
    return [note.partition(";")[0].partition(". In")[0] for note in marker_notes(models)]


def jinja(template: str, **keys: object) -> TemplateSpec:
    return parse_spec({"kind": "jinja", "template": template, **keys}, name="j")


ROLES = "{% for m in messages %}{{ m.content }}{% endfor %}"
CASES: dict[str, tuple[ModelSpec, list[str]]] = {
    "a family with a source": (model(find_template("qwen1.5")), []),
    "a family without a source": (model(find_template("chatml")), ["special tokens unknown: m"]),
    "a configured tokenizer": (model(find_template("chatml"), tokenizer=DEMO_MODEL), []),
    "an embedded model": (model(find_template("chatml"), "embedded"), []),
    "an engine that writes the prompt": (model(BUILT_IN, "chat"), ["special tokens unknown: m"]),
    "a provider": (model(BUILT_IN, "litellm"), []),
    "turns in ordinary text": (
        model(find_template("vicuna")),
        ["a line of ordinary text begins a turn: m ('USER:': report)"],
    ),
    "turns in ordinary text that the policy escapes": (
        model(find_template("vicuna"), text_like="escape"),
        ["a line of ordinary text begins a turn: m ('USER:': escape)"],
    ),
    "a chat template with tokens and a list of tools": (
        model(jinja("<|im_end|>\nYour tools:\n" + ROLES, markers={"tokens": ["<s>"], "source": "x"})),
        [],
    ),
    "a chat template without tokens": (
        model(jinja("\nUSER:\n" + ROLES)),
        ["special tokens unknown: m", "a line of ordinary text begins a turn: m ('USER:': report)"],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_note_names_what_the_policy_cannot_know(case: str) -> None:
    one, expected = CASES[case]
    assert notes(one) == expected


@pytest.mark.parametrize(("line", "note"), [(IN_TEXT, "a line of ordinary text"), (UNKNOWN, "special tokens unknown")])
def test_the_page_on_security_lists_the_shipped_templates_with_a_note(line: str, note: str) -> None:
    [listed] = [sentence for sentence in PAGE.splitlines() if line in sentence]
    every = [find_template(path.stem) for path in shipped_folder("meta_templates").glob("*.yaml")]
    noted = [spec.name for spec in every if not spec.makes_messages and note in str(notes(model(spec)))]
    assert sorted(noted) == re.findall(r"`([a-z0-9.-]+)`", listed.partition(line)[2])
