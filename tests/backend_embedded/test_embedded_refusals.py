"""The embedded engine refuses, by name, each parameter and model property that it cannot compute exactly."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gateway.backend.embedded.backend import EmbeddedBackend
from gateway.backend.embedded.cache import EngineCache
from gateway.backend.embedded.model_folder import read_config
from gateway.backend.embedded.request import PARAMS
from gateway.config.snapshot import TargetSpec
from gateway.core.errors import ConfigError, ContextLengthExceeded, InvalidValue, RequestError, UnsupportedParameter
from gateway.core.exchange import AnswerFormat
from metatemplate.values.events import Begun
from tests.backend_embedded.conftest import DEMO, RIGHT, demo_target, exchange, hear

REQUESTS: dict[str, tuple[Any, type[RequestError], str | None, str]] = {  # name: (exchange, error, param, words)
    "unknown parameter": (exchange("x", guided_json={}), UnsupportedParameter, "guided_json", "temperature"),
    "best_of": (exchange("x", best_of=2), UnsupportedParameter, "best_of", "best_of"),
    "temperature as text": (exchange("x", temperature="0"), InvalidValue, "temperature", "number"),
    "negative max_tokens": (exchange("x", max_tokens=-1), InvalidValue, "max_tokens", "between 0 and"),
    "true as a number": (exchange("x", max_tokens=True), InvalidValue, "max_tokens", "whole number"),
    "top_p of 0": (exchange("x", top_p=0), InvalidValue, "top_p", "between"),
    "too many logprobs": (exchange("x", logprobs=21), InvalidValue, "logprobs", "20"),
    "bias by word": (exchange("x", logit_bias={"yes": 1}), InvalidValue, "logit_bias", "token ids"),
    "bias beyond the vocabulary": (exchange("x", logit_bias={"386": 1}), InvalidValue, "logit_bias", "0 to 385"),
    "id beyond the vocabulary": (exchange((1, 386)), InvalidValue, "prompt", "from 0 to 385"),
    "empty prompt": (exchange(()), InvalidValue, "prompt", "empty"),
    "no prompt": (exchange(), InvalidValue, "prompt", "no prompt"),
    "too many choices": (exchange("x", n=5000), InvalidValue, "n", "the number of prompts times n"),
    "full context": (
        exchange((5,) * 512),
        ContextLengthExceeded,
        "prompt",
        "maximum context length is 512 tokens, however you requested 528 tokens (512 in your prompt; 16",
    ),
    "long text": (exchange("z" * 60_000), ContextLengthExceeded, "prompt", "512"),
    "chat": (exchange("x", endpoint="chat"), RequestError, "model", "template"),
    "stream options": (
        exchange("x", stream=True, stream_options={"include_obfuscation": True}),
        UnsupportedParameter,
        "stream_options.include_obfuscation",
        "does not accept",
    ),
    "an answer in JSON": (
        exchange("x", answer_format=AnswerFormat()),
        UnsupportedParameter,
        "response_format",
        "(speaks: embedded) cannot",
    ),
    "embeddings": (exchange("x", endpoint="embeddings"), RequestError, "model", "speaks: completions, chat"),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_it_cannot_serve_is_refused_by_name(demo: EmbeddedBackend, name: str) -> None:
    asked, error, param, words = REQUESTS[name]
    with pytest.raises(error) as caught:
        asyncio.run(hear(demo, asked))
    assert caught.value.param == param
    assert words in caught.value.message


def test_nulls_and_defaults_ask_for_nothing(demo: EmbeddedBackend) -> None:
    nulls: dict[str, Any] = dict.fromkeys(PARAMS)
    inert: dict[str, Any] = {
        "user": "someone",
        "presence_penalty": 0,
        "top_p": 1,
        "max_tokens": 1,
    }
    assert asyncio.run(hear(demo, exchange("x", **{**nulls, **inert}))).usage.completion == 1


def test_neutral_values_of_unknown_fields_are_left_out_with_a_notice(demo: EmbeddedBackend) -> None:
    asked = exchange("x", best_of=1, stream=True, stream_options={"continuous_usage_stats": True}, max_tokens=1)
    heard = asyncio.run(hear(demo, asked))
    assert heard.usage.completion == 1
    assert isinstance(begun := heard.events[0], Begun)
    assert begun.notices == (
        "omitted_parameter: best_of",
        "omitted_parameter: stream_options.continuous_usage_stats",
    )


def test_a_full_context_can_still_be_scored(demo: EmbeddedBackend) -> None:
    heard = asyncio.run(hear(demo, exchange((5,) * 512, max_tokens=0, echo=True, logprobs=1)))
    assert len(heard.logprobs()) == 512


OPTIONS = {
    "wrong kind": ({"token_delay": "fast"}, "options.token_delay: must be a number"),
    "too small": ({"max_model_len": 0}, "options.max_model_len: must be a whole number above 0"),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_options_are_checked(cache: EngineCache, name: str) -> None:
    options, words = OPTIONS[name]
    target = demo_target(options=options)
    with pytest.raises(ConfigError, match=words):
        EmbeddedBackend(target, cache.get(target))


def test_a_missing_folder_is_refused(cache: EngineCache, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"config\.json is missing"):
        cache.get(TargetSpec(label="x/0", speaks="embedded", path=tmp_path / "nowhere"))


CONFIGS: dict[str, tuple[dict[str, Any], str]] = {
    "other architecture": ({"model_type": "mamba"}, "model_type 'mamba' is not supported"),
    "no layers": ({"num_hidden_layers": None}, "num_hidden_layers must be a positive whole number"),
    "other activation": ({"hidden_act": "gelu"}, "hidden_act 'gelu'"),
    "rope type": ({"rope_parameters": {"rope_type": "yarn"}}, "rope_type 'yarn'"),
    "half a rope": ({"rope_scaling": {"type": "llama3"}, "rope_parameters": None}, "llama3 needs factor"),
    "window": ({"model_type": "qwen2", "use_sliding_window": True, "sliding_window": 64}, "use_sliding_window True"),
    "window of some layers": ({"layer_types": ["full_attention", "sliding_attention"]}, "layer_types: attention over"),
    "biases": ({"mlp_bias": True}, "mlp_bias True is not supported"),
    "quantised": ({"quantization_config": {"bits": 4}}, "quantization_config"),
    "wrong kind": ({"rope_parameters": [1]}, "cannot be loaded"),
}


def folder_with(tmp_path: Path, **config: Any) -> Path:
    for file in DEMO.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    given = json.loads((DEMO / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**given, **config}))
    return tmp_path


@pytest.mark.parametrize("name", CONFIGS)
def test_a_model_it_cannot_compute_exactly_is_refused(cache: EngineCache, tmp_path: Path, name: str) -> None:
    config, words = CONFIGS[name]
    with pytest.raises(ConfigError, match=words):
        cache.get(TargetSpec(label="x/0", speaks="embedded", path=folder_with(tmp_path, **config)))


def test_both_spellings_of_rotary_positions_are_read(tmp_path: Path) -> None:
    llama3 = {"factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
    old: dict[str, Any] = {
        "rope_theta": 500.0,
        "rope_scaling": {"type": "llama3", **llama3},
        "rope_parameters": None,
    }
    new: dict[str, Any] = {"rope_parameters": {"rope_type": "llama3", "rope_theta": 500.0, **llama3}}
    first, second = [read_config(folder_with(tmp_path, **config)).rope_frequencies for config in (old, new)]
    assert first == second


BROKEN = {  # name: (file, new bytes or None, words)
    "no weights": ("model.safetensors", None, "model.safetensors is missing"),
    "weights cut short": (
        "model.safetensors",
        (DEMO / "model.safetensors").read_bytes()[:5000],
        "model.safetensors cannot be used",
    ),
    "weights of another kind": ("model.safetensors", b"PK\x03\x04" + bytes(100), "model.safetensors cannot be used"),
    "no tokenizer": ("tokenizer.json", None, "tokenizer.json tokenizer: no such file"),
    "half a tokenizer": ("tokenizer.json", b'{"version"', "tokenizer.json tokenizer: cannot be read"),
    "config that is no JSON": ("config.json", b"{", "config.json cannot be read as JSON"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_folder_says_which_file(cache: EngineCache, tmp_path: Path, name: str) -> None:
    file, content, words = BROKEN[name]
    folder = folder_with(tmp_path)
    if content is None:
        (folder / file).unlink()
    else:
        (folder / file).write_bytes(content)
    with pytest.raises(ConfigError, match=words):
        cache.get(TargetSpec(label="x/0", speaks="embedded", path=folder))


WEIGHTS: dict[str, tuple[dict[str, Any], str]] = {
    "other sizes": (
        {"intermediate_size": 128},
        r"do not match config\.json \(model\.layers\.0\.mlp\.down_proj",
    ),
    "fewer layers": ({"num_hidden_layers": 1}, r"do not match config\.json \(model\.layers\.1\."),
    "more layers": ({"num_hidden_layers": 3}, r"do not match config\.json \(model\.layers\.2\."),
    "an output matrix that is not there": ({"tie_word_embeddings": False}, r"lm_head\.weight"),
    "norms that are not there": ({"model_type": "qwen3"}, "k_norm"),
}


@pytest.mark.parametrize("name", WEIGHTS)
def test_weights_that_do_not_fit_the_config_are_refused(cache: EngineCache, tmp_path: Path, name: str) -> None:
    config, words = WEIGHTS[name]
    with pytest.raises(ConfigError, match=words):
        cache.get(TargetSpec(label="x/0", speaks="embedded", path=folder_with(tmp_path, **config)))


def test_importing_the_package_does_not_import_its_libraries() -> None:
    code = "import sys, gateway.backend.embedded; print({'numpy', 'tokenizers'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout == b"set()\n"


def test_an_answer_fits_the_prompt_s_remaining_room(demo: EmbeddedBackend) -> None:
    heard = asyncio.run(hear(demo, exchange(RIGHT.format("1+1"), max_tokens=100_000, temperature=0, ignore_eos=True)))
    assert heard.usage.prompt + heard.usage.completion == 512
