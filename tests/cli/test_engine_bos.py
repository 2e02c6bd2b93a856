"""The BOS that a model receives without its template writing it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from gateway.config.snapshot import ModelSpec, PolicySpec, TargetSpec
from gateway.workshop.comparing.engine_bos import EngineBos, describe_bos, engine_bos_of, tokenizer_bos
from metatemplate.files.template_file import BUILT_IN
from metatemplate.tokenizer import Tokenizer
from metatemplate.values.prompt import Bos
from tests.support.serving import ROOT


class Without(Tokenizer):
    """A tokenizer that puts nothing before a text: one token for each character."""

    def __init__(self) -> None:
        """There is no file to read."""

    def tokenize(self, text: str, add_special_tokens: bool = True) -> list[int]:
        return [ord(letter) for letter in text]

    def detokenize(self, ids: list[int], skip_special_tokens: bool = False) -> str:
        return "".join(map(chr, ids))


WITH = Tokenizer(ROOT / "demo" / "model")


def model(*targets: dict[str, Any]) -> ModelSpec:
    made = [TargetSpec(label=f"m/{n}", **{"speaks": "completions", **keys}) for n, keys in enumerate(targets)]
    return ModelSpec("m", BUILT_IN, PolicySpec("default"), tuple(made))


def test_the_bos_is_what_the_tokenizer_puts_before_a_text() -> None:
    assert (tokenizer_bos(WITH), tokenizer_bos(Without()), tokenizer_bos(None)) == ("<s>", "", "")


ENGINES: dict[str, tuple[Sequence[dict[str, Any]], Any, EngineBos]] = {
    # targets, tokenizer, by default and on request
    "an engine that adds, with a BOS": ([{"engine": "vllm"}], WITH, EngineBos(True, True)),
    "an engine that adds, without a BOS": ([{"engine": "vllm"}], Without(), EngineBos(False, False)),
    "an engine that adds, with an unknown tokenizer": ([{"engine": "vllm"}], None, EngineBos(None, None)),
    "an unknown engine": ([{"engine": "openai"}], WITH, EngineBos(None, None)),
    "an engine configured to add": ([{"engine": "openai", "adds_bos": True}], None, EngineBos(True, True)),
    "an engine configured not to add": ([{"engine": "llamacpp", "adds_bos": False}], WITH, EngineBos(False, False)),
    "an engine with a switch": ([{"engine": "vllm", "adds_bos": False}], WITH, EngineBos(False, True)),
    "the embedded engine": ([{"speaks": "embedded"}], WITH, EngineBos(True, True)),
    "two alike": ([{"engine": "vllm"}, {"engine": "sglang"}], WITH, EngineBos(True, True)),
    "two that differ": (
        [{"engine": "sglang"}, {"engine": "sglang", "adds_bos": False}],
        WITH,
        EngineBos(None, None),
    ),
}


@pytest.mark.parametrize(("targets", "tokens", "expected"), ENGINES.values(), ids=ENGINES)
def test_the_bos_of_a_models_engines(targets: Sequence[dict[str, Any]], tokens: Any, expected: EngineBos) -> None:
    assert engine_bos_of(model(*targets), tokens) == expected


def test_nothing_is_known_without_a_model() -> None:
    assert engine_bos_of(None, WITH) == EngineBos(None, None)


PHRASES: dict[str, tuple[Bos | None, EngineBos, str]] = {
    # bos, engine, the end of the phrase
    "text": ("text", EngineBos(True, True), "in its text"),
    "a chat template": (None, EngineBos(True, True), "only as written in its text"),
    "requested, and added": ("engine", EngineBos(None, True), "added by the engine (bos: engine)"),
    "requested, not known": ("engine", EngineBos(None, None), "added by the engine (bos: engine)"),
    "requested, not added": ("engine", EngineBos(None, False), "which adds none"),
    "default, and added": ("none", EngineBos(True, None), "which adds one"),
    "default, not added": ("none", EngineBos(False, None), "which adds none"),
    "default, not known": ("none", EngineBos(None, None), "the comparison assumes that the engine adds none"),
}


@pytest.mark.parametrize(("bos", "engine", "end"), PHRASES.values(), ids=PHRASES)
def test_a_phrase_describes_the_bos(bos: Bos | None, engine: EngineBos, end: str) -> None:
    assert describe_bos(bos, engine).endswith(end)
