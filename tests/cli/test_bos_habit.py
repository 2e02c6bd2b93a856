"""Does the model see a BOS that no template wrote? The same answer as ``backend/bos.py`` acts on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from gateway.cli.bos_habit import WRITERS, Habit, bos_of, habit_of, writer

from gateway.backend.tokenizer import LocalTokenizer
from gateway.config.sections.templates import CHAT
from gateway.config.snapshot import ModelSpec, PolicySpec, TargetSpec
from tests.serving import ROOT


class Without:
    """A tokenizer that puts nothing before a text: one token for each character."""

    def tokenize(self, text: str, add_special_tokens: bool = True) -> list[int]:
        return [ord(letter) for letter in text]

    def detokenize(self, ids: list[int], skip_special_tokens: bool = False) -> str:
        return "".join(map(chr, ids))


WITH = LocalTokenizer(ROOT / "demo" / "model")


def model(*targets: dict[str, Any]) -> ModelSpec:
    made = [TargetSpec(label=f"m/{n}", **{"speaks": "completions", **keys}) for n, keys in enumerate(targets)]
    return ModelSpec("m", CHAT, PolicySpec("default"), tuple(made))


def test_the_bos_is_what_the_tokenizer_puts_before_a_text() -> None:
    assert (bos_of(WITH), bos_of(Without()), bos_of(None)) == ("<s>", "", "")


HABITS: dict[str, tuple[Sequence[dict[str, Any]], Any, Habit]] = {
    # targets, tokenizer, habit
    "a dialect that adds, by a tokenizer that does": ([{"engine": "vllm"}], WITH, Habit(True, True)),
    "a dialect that adds, by a tokenizer that does not": ([{"engine": "vllm"}], Without(), Habit(False, False)),
    "a dialect that adds, by an unknown tokenizer": ([{"engine": "vllm"}], None, Habit(None, None)),
    "an unknown server": ([{"engine": "openai"}], WITH, Habit(None, None)),
    "a server that says it adds": ([{"engine": "openai", "adds_bos": True}], None, Habit(True, True)),
    "a server that says it adds none": ([{"engine": "llamacpp", "adds_bos": False}], WITH, Habit(False, False)),
    "adds none, but can be told to": ([{"engine": "vllm", "adds_bos": False}], WITH, Habit(False, True)),
    "the embedded engine": ([{"speaks": "embedded"}], WITH, Habit(True, True)),
    "two that agree": ([{"engine": "vllm"}, {"engine": "sglang"}], WITH, Habit(True, True)),
    "two that do not": (
        [{"engine": "sglang"}, {"engine": "sglang", "adds_bos": False}], WITH, Habit(None, None),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("targets", "tokens", "habit"), HABITS.values(), ids=HABITS)
def test_what_a_models_engines_do(targets: Sequence[dict[str, Any]], tokens: Any, habit: Habit) -> None:
    assert habit_of(model(*targets), tokens) == habit


def test_nothing_is_known_without_a_model() -> None:
    assert habit_of(None, WITH) == Habit(None, None)


def test_there_are_words_for_every_habit() -> None:
    said = {writer(bos, Habit(unasked, told)) for bos in ("none", "text", "engine")
            for unasked in (True, False, None) for told in (True, False, None)}  # fmt: skip
    assert said == set(WRITERS.values())
