"""What shape is the model in this folder, and can we compute it exactly?

Reads ``config.json`` (and the end tokens of ``generation_config.json``) of a Hugging Face
folder. Whatever would change the numbers and is not implemented is refused here, by name:
a model computed approximately answers plausibly and wrongly.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gateway.core.errors import ConfigError, Problem

# ``model_type`` of the checkpoint format -> is the query/key/value bias given by the format
# (True), or by ``attention_bias`` in the file (None)? All of them are the same decoder: RMS norm
# before each block, rotary positions, grouped-query attention, gated SiLU feed-forward.
ARCHITECTURES: Mapping[str, bool | None] = {"llama": None, "mistral": False, "qwen2": True, "qwen3": None}
HEAD_NORMS = frozenset({"qwen3"})
"""Formats that normalise each query and key head before the rotation."""
ROPE_TYPES = ("default", "linear", "llama3")
ACTIVATIONS = ("silu", "swish")


@dataclass(frozen=True, slots=True)
class Rope:
    """Rotary positions: how fast each pair of dimensions turns."""

    theta: float
    kind: str = "default"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_length: int = 8192

    def frequencies(self, head_dim: int) -> list[float]:
        """Radians per position for each of the ``head_dim / 2`` pairs."""
        plain = [self.theta ** (-i / head_dim) for i in range(0, head_dim, 2)]
        if self.kind == "linear":
            return [f / self.factor for f in plain]
        if self.kind == "llama3":
            return [self._stretched(f) for f in plain]
        return plain

    def _stretched(self, frequency: float) -> float:
        """Slow pairs turn ``factor`` times slower, fast ones are kept, a ramp lies between."""
        turns = self.original_length * frequency / (2 * math.pi)
        ramp = (turns - self.low_freq_factor) / (self.high_freq_factor - self.low_freq_factor)
        kept = min(1.0, max(0.0, ramp))
        return frequency * (kept + (1 - kept) / self.factor)


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Everything about a model but its weights."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    feed_forward: int
    vocabulary: int
    context: int
    """Longest sequence, prompt and answer together, in tokens."""
    norm_eps: float
    rope: Rope
    qkv_bias: bool
    output_bias: bool
    mlp_bias: bool
    head_norms: bool
    tied: bool
    """The output matrix is the embedding matrix."""
    eos: frozenset[int]
    """Any of these tokens ends a generation."""


def read_shape(folder: Path, max_model_len: int | None = None) -> ModelShape:
    """The shape of the model in ``folder``.

    ``max_model_len`` shortens the context, never lengthens it.
    Raises ``ConfigError`` with every problem found.
    """
    file = folder / "config.json"
    reader = _Reader(file, _json_object(file))
    try:
        shape = reader.shape(_ends(folder), max_model_len)
    except (TypeError, ValueError, AttributeError) as error:
        raise _refusal(file, f"holds a value of the wrong kind ({error})") from None
    if reader.problems or shape is None:
        raise ConfigError(tuple(reader.problems))
    return shape


def _json_object(file: Path) -> Mapping[str, Any]:
    try:
        value = json.loads(file.read_bytes())
    except FileNotFoundError:
        raise _refusal(
            file, "missing; path must be a Hugging Face model folder (config.json, *.safetensors, tokenizer.json)"
        ) from None
    except (OSError, ValueError) as error:
        raise _refusal(file, f"cannot be read as JSON ({type(error).__name__})") from None
    if not isinstance(value, dict):
        raise _refusal(file, "must hold a JSON object")
    return value


def _refusal(file: Path, message: str) -> ConfigError:
    return ConfigError((Problem(file=str(file), line=0, key="", message=message),))


def _ends(folder: Path) -> object:
    """The end tokens that generation uses, which may be more than config.json's one."""
    file = folder / "generation_config.json"
    return _json_object(file).get("eos_token_id") if file.exists() else None


def _ids(*values: object) -> frozenset[int]:
    found = [item for value in values for item in (value if isinstance(value, list) else [value])]
    return frozenset(item for item in found if isinstance(item, int))


class _Reader:
    """Reads one config.json and collects what speaks against it."""

    def __init__(self, file: Path, config: Mapping[str, Any]) -> None:
        self._file = file
        self._config = config
        self.problems: list[Problem] = []

    def shape(self, ends: object, max_model_len: int | None) -> ModelShape | None:
        kind = self._config.get("model_type")
        if not isinstance(kind, str) or kind not in ARCHITECTURES:
            self._refuse(
                "model_type",
                f"{kind!r} is not computed here (only {', '.join(ARCHITECTURES)}); "
                "serve it with vLLM or llama.cpp and use speaks: completions",
            )
            return None
        hidden, heads = self._size("hidden_size"), self._size("num_attention_heads")
        layers, context = self._size("num_hidden_layers"), self._size("max_position_embeddings")
        feed_forward, vocabulary = self._size("intermediate_size"), self._size("vocab_size")
        if self.problems:
            return None
        if max_model_len is not None:
            context = min(context, max_model_len)
        kv_heads = self._config.get("num_key_value_heads") or heads
        head_dim = self._config.get("head_dim") or hidden // heads
        if heads % kv_heads or head_dim % 2:
            self._refuse("num_key_value_heads", "heads must be a multiple of it, and head_dim even")
        self._refuse_what_would_change_the_numbers(kind, context)
        bias = bool(self._config.get("attention_bias", False))
        given = ARCHITECTURES[kind]
        return ModelShape(
            layers=layers, hidden=hidden, heads=heads, kv_heads=kv_heads, head_dim=head_dim,
            feed_forward=feed_forward, vocabulary=vocabulary, context=context,
            norm_eps=float(self._config.get("rms_norm_eps", 1e-6)), rope=self._rope(context),
            qkv_bias=bias if given is None else given, output_bias=bias and given is None,
            mlp_bias=bool(self._config.get("mlp_bias", False)), head_norms=kind in HEAD_NORMS,
            tied=bool(self._config.get("tie_word_embeddings", False)),
            eos=_ids(self._config.get("eos_token_id"), ends),
        )  # fmt: skip

    def _refuse(self, key: str, message: str) -> None:
        self.problems.append(Problem(file=str(self._file), line=0, key=key, message=message))

    def _size(self, key: str) -> int:
        value = self._config.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
        self._refuse(key, "must be a positive whole number")
        return 0

    def _refuse_what_would_change_the_numbers(self, kind: str, context: int) -> None:
        config = self._config
        if config.get("hidden_act", "silu") not in ACTIVATIONS:
            self._refuse("hidden_act", f"{config['hidden_act']!r} is not computed here (only silu)")
        if config.get("quantization_config"):
            self._refuse("quantization_config", "quantised weights are not read here; use a bf16, f16 or f32 copy")
        window = _window(kind, config)
        if window is not None and window < context:
            self._refuse(
                "sliding_window",
                f"attention over a sliding window of {window} tokens is not computed here; "
                f"set options.max_model_len to at most {window}, within which it is exact",
            )
        if config.get("partial_rotary_factor", 1.0) not in (1, None):
            self._refuse("partial_rotary_factor", "only full rotation is computed here")

    def _rope(self, context: int) -> Rope:
        """Both spellings: ``rope_parameters`` (transformers 5) and ``rope_theta`` with ``rope_scaling``."""
        given = self._config.get("rope_parameters") or self._config.get("rope_scaling") or {}
        theta = float(given.get("rope_theta") or self._config.get("rope_theta") or 10000.0)
        kind = given.get("rope_type") or given.get("type") or "default"
        if kind not in ROPE_TYPES:
            self._refuse("rope_parameters.rope_type", f"{kind!r} is not computed here (only {', '.join(ROPE_TYPES)})")
        needed = {"linear": ("factor",), "llama3": ("factor", "low_freq_factor", "high_freq_factor",
                                                    "original_max_position_embeddings")}  # fmt: skip
        missing = [key for key in needed.get(kind, ()) if not isinstance(given.get(key), (int, float))]
        if missing:
            self._refuse("rope_parameters", f"{kind} needs {', '.join(missing)}")
        if kind == "default" or kind not in ROPE_TYPES or missing:
            return Rope(theta)
        return Rope(theta, kind, float(given["factor"]), float(given.get("low_freq_factor", 1.0)),
                    float(given.get("high_freq_factor", 4.0)),
                    int(given.get("original_max_position_embeddings", context)))  # fmt: skip


def _window(kind: str, config: Mapping[str, Any]) -> int | None:
    """The narrowest sliding window of any layer, or None when all layers see everything."""
    # The Mistral format means 4096 when the key is left out, and no window when it is null.
    window = config.get("sliding_window", 4096 if kind == "mistral" else None)
    if not isinstance(window, int):
        return None
    if config.get("layer_types"):
        return window if "sliding_attention" in config["layer_types"] else None
    return window if kind == "mistral" or config.get("use_sliding_window", False) else None
