"""``config.json`` of a Hugging Face folder: the model's shape.

A property that would change the numbers and is not implemented is refused by its key: an approximate model answers
plausibly and wrongly.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gateway.core.errors import ConfigError, Problem

ARCHITECTURES = ("llama", "qwen2", "qwen3")
"""Values of ``model_type``. All are the same decoder: RMS norm before each block, rotary positions, grouped-query
attention, gated SiLU feed-forward."""
QKV_BIAS = frozenset({"qwen2"})
"""Formats with a bias on queries, keys and values."""
HEAD_NORMS = frozenset({"qwen3"})
"""Formats that normalise each query and key head before the rotation."""
ROPE_TYPES: Mapping[str, tuple[str, ...]] = {
    "default": (),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
}
"""Rotary positions → the numbers they need."""
ACTIVATIONS = ("silu", "swish")


@dataclass(frozen=True, slots=True)
class RotaryPositions:
    """The rotation frequency of each pair of dimensions."""

    theta: float
    llama3: tuple[float, float, float, float] | None = None
    """Factor, low and high frequency factor, original length; None: not scaled."""

    def frequencies(self, head_dim: int) -> list[float]:
        """Radians per position for each of the ``head_dim / 2`` pairs."""
        plain = [self.theta ** (-i / head_dim) for i in range(0, head_dim, 2)]
        return plain if self.llama3 is None else [_scaled(frequency, *self.llama3) for frequency in plain]


def _scaled(frequency: float, factor: float, low: float, high: float, original_length: float) -> float:
    """Slow pairs turn ``factor`` times slower, fast ones as before, those between by interpolation."""
    turns = original_length * frequency / (2 * math.pi)
    kept = min(1.0, max(0.0, (turns - low) / (high - low)))
    return frequency * (kept + (1 - kept) / factor)


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
    """The longest sequence, prompt and answer together, in tokens."""
    norm_eps: float
    rope: RotaryPositions
    qkv_bias: bool
    head_norms: bool
    tied: bool
    """The output matrix is the embedding matrix."""
    eos: frozenset[int]
    """Each of these tokens ends a generation."""


def read_shape(folder: Path, max_model_len: int | None = None) -> ModelShape:
    """The shape of the model in ``folder``; ``max_model_len`` can shorten the context.

    Raises ``ConfigError`` with every problem found.
    """
    file = folder / "config.json"
    reader = _ConfigReader(file, _json_object(file))
    try:
        shape = reader.shape(_generation_eos(folder), max_model_len)
    except (TypeError, ValueError, AttributeError) as error:
        raise _config_error(file, f"holds a value of the wrong kind ({error})") from None
    if reader.problems or shape is None:
        raise ConfigError(tuple(reader.problems))
    return shape


def _json_object(file: Path) -> Mapping[str, Any]:
    try:
        value = json.loads(file.read_bytes())
    except FileNotFoundError:
        raise _config_error(
            file, "missing; path must be a Hugging Face model folder (config.json, *.safetensors, tokenizer.json)"
        ) from None
    except (OSError, ValueError) as error:
        raise _config_error(file, f"cannot be read as JSON ({type(error).__name__})") from None
    if not isinstance(value, dict):
        raise _config_error(file, "must hold a JSON object")
    return value


def _config_error(file: Path, message: str) -> ConfigError:
    return ConfigError((Problem(file=str(file), line=0, key="", message=message),))


def _generation_eos(folder: Path) -> object:
    """The end tokens in ``generation_config.json``, which may be more than those in ``config.json``."""
    file = folder / "generation_config.json"
    return _json_object(file).get("eos_token_id") if file.exists() else None


def _ids(*values: object) -> frozenset[int]:
    found = [item for value in values for item in (value if isinstance(value, list) else [value])]
    return frozenset(item for item in found if isinstance(item, int))


class _ConfigReader:
    """Reads one config.json and collects its problems."""

    def __init__(self, file: Path, config: Mapping[str, Any]) -> None:
        self._file = file
        self._config = config
        self.problems: list[Problem] = []

    def shape(self, generation_eos: object, max_model_len: int | None) -> ModelShape | None:
        config = self._config
        kind = config.get("model_type")
        if kind not in ARCHITECTURES:
            self._refuse(
                "model_type",
                f"{kind!r} is not supported (only {', '.join(ARCHITECTURES)}); "
                "serve it with vLLM or llama.cpp and use speaks: completions",
            )
            return None
        hidden, heads = self._size("hidden_size"), self._size("num_attention_heads")
        layers, context = self._size("num_hidden_layers"), self._size("max_position_embeddings")
        feed_forward, vocabulary = self._size("intermediate_size"), self._size("vocab_size")
        if self.problems:
            return None
        kv_heads = config.get("num_key_value_heads") or heads
        head_dim = config.get("head_dim") or hidden // heads
        if heads % kv_heads or head_dim % 2:
            self._refuse("num_key_value_heads", "heads must be a multiple of it, and head_dim even")
        self._refuse_unsupported()
        return ModelShape(
            layers=layers,
            hidden=hidden,
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            feed_forward=feed_forward,
            vocabulary=vocabulary,
            context=context if max_model_len is None else min(context, max_model_len),
            norm_eps=float(config.get("rms_norm_eps", 1e-6)),
            rope=self._rope(),
            qkv_bias=kind in QKV_BIAS,
            head_norms=kind in HEAD_NORMS,
            tied=bool(config.get("tie_word_embeddings", False)),
            eos=_ids(config.get("eos_token_id"), generation_eos),
        )

    def _refuse(self, key: str, message: str) -> None:
        self.problems.append(Problem(file=str(self._file), line=0, key=key, message=message))

    def _size(self, key: str) -> int:
        value = self._config.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
        self._refuse(key, "must be a positive whole number")
        return 0

    def _refuse_unsupported(self) -> None:
        config = self._config
        if config.get("hidden_act", "silu") not in ACTIVATIONS:
            self._refuse("hidden_act", f"{config['hidden_act']!r} is not supported (only silu)")
        if config.get("quantization_config"):
            self._refuse("quantization_config", "quantised weights are not supported; use a bf16, f16 or f32 copy")
        if config.get("use_sliding_window") or "sliding_attention" in (config.get("layer_types") or ()):
            self._refuse("sliding_window", "attention over a sliding window is not supported")
        if config.get("partial_rotary_factor", 1.0) not in (1, None):
            self._refuse("partial_rotary_factor", "only full rotation is supported")
        for key in ("attention_bias", "mlp_bias"):
            if config.get(key):
                self._refuse(key, "is not supported")

    def _rope(self) -> RotaryPositions:
        """Read ``rope_parameters`` (transformers 5), or ``rope_theta`` with ``rope_scaling`` (older)."""
        given = self._config.get("rope_parameters") or self._config.get("rope_scaling") or {}
        theta = float(given.get("rope_theta") or self._config.get("rope_theta") or 10000.0)
        kind = given.get("rope_type") or given.get("type") or "default"
        if kind not in ROPE_TYPES:
            self._refuse("rope_parameters.rope_type", f"{kind!r} is not supported (only {', '.join(ROPE_TYPES)})")
            return RotaryPositions(theta)
        missing = [key for key in ROPE_TYPES[kind] if not isinstance(given.get(key), (int, float))]
        if missing:
            self._refuse("rope_parameters", f"{kind} needs {', '.join(missing)}")
        if kind == "default" or missing:
            return RotaryPositions(theta)
        factor, low, high, original_length = (float(given[key]) for key in ROPE_TYPES[kind])
        return RotaryPositions(theta, (factor, low, high, original_length))
