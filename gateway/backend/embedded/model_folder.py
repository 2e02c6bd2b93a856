"""A model folder of Hugging Face: ``config.json``, ``generation_config.json`` and ``model.safetensors``.

If a key of the configuration would change the scores and is not implemented, the model is refused, because an
approximate model gives plausible but wrong answers. Problems are raised as ``ValueError``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]

SUPPORTED: Mapping[str, tuple[object, ...]] = {
    # All three are the same decoder: RMS norm before each block, rotary positions, grouped-query attention, gated SiLU.
    "model_type": ("llama", "qwen2", "qwen3"),
    "hidden_act": ("silu", "swish"),
    "quantization_config": (None,),
    "use_sliding_window": (False, None),
    "partial_rotary_factor": (1.0, None),
    "attention_bias": (False, None),
    "mlp_bias": (False, None),
}
"""Key of ``config.json`` → the supported values. Every key except ``model_type`` may be absent."""
SIZES = (
    "num_hidden_layers",
    "hidden_size",
    "intermediate_size",
    "num_attention_heads",
    "vocab_size",
    "max_position_embeddings",
)
"""Keys of ``config.json`` that must be positive whole numbers."""
STORED: Mapping[str, str] = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}
"""Type of a tensor in a safetensors file → numpy's name of the type."""
MAX_HEADER = 100 * 1024 * 1024
"""The maximum size of a safetensors header in bytes, as in the reference reader of the format."""
DERIVED = ("rotary_emb.inv_freq", "attn.bias", "attn.masked_bias")
"""Suffixes of tensors that some exporters wrote. Their content follows from ``config.json``, so they are not read."""
ELSEWHERE = "serve this model with vLLM or llama.cpp, and set speaks: completions"


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The properties of a model except the weights. Most fields have the names of keys in ``config.json``."""

    model_type: str
    num_hidden_layers: int
    hidden_size: int
    intermediate_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    vocab_size: int
    max_position_embeddings: int
    """The longest sequence, prompt and answer together, in tokens."""
    rms_norm_eps: float
    tie_word_embeddings: bool
    """True: the output matrix is the embedding matrix."""
    rope_frequencies: tuple[float, ...]
    """Radians per position of each of the ``head_dim / 2`` rotated pairs."""
    eos_token_ids: frozenset[int]
    """Each of these tokens ends a generation."""


def read_config(folder: Path, max_model_len: int | None = None) -> ModelConfig:
    """Read the configuration of a model. ``max_model_len`` can shorten the context."""
    config = _json_file(folder / "config.json")
    problems = [
        f"{key} {config.get(key)!r} is not supported (only {', '.join(map(str, values))})"
        for key, values in SUPPORTED.items()
        if config.get(key, None if key == "model_type" else values[0]) not in values
    ]
    if "sliding_attention" in (config.get("layer_types") or ()):
        problems.append("layer_types: attention over a sliding window is not supported")
    sizes: dict[str, Any] = {key: config.get(key) for key in SIZES}
    wrong = [key for key, size in sizes.items() if not isinstance(size, int) or size < 1]
    problems += [f"{key} must be a positive whole number" for key in wrong]
    if problems:
        raise ValueError(f"config.json: {'; '.join(problems)}; {ELSEWHERE}")
    generation = folder / "generation_config.json"
    ends: list[Any] = [
        file.get("eos_token_id") for file in (config, _json_file(generation) if generation.exists() else {})
    ]
    context, heads = config["max_position_embeddings"], config["num_attention_heads"]
    head_dim = config.get("head_dim") or config["hidden_size"] // heads
    sizes["max_position_embeddings"] = context if max_model_len is None else min(context, max_model_len)
    return ModelConfig(
        **sizes,
        model_type=config["model_type"],
        num_key_value_heads=config.get("num_key_value_heads") or heads,
        head_dim=head_dim,
        rms_norm_eps=config.get("rms_norm_eps", 1e-6),
        tie_word_embeddings=config.get("tie_word_embeddings", False),
        rope_frequencies=_rope_frequencies(config, head_dim),
        eos_token_ids=frozenset(token for end in ends for token in (end if isinstance(end, list) else [end])),
    )


def _json_file(file: Path) -> dict[str, Any]:
    try:
        value = json.loads(file.read_bytes())
    except FileNotFoundError:
        raise ValueError(f"{file.name} is missing; path must be a Hugging Face model folder") from None
    except NotADirectoryError:
        raise ValueError(f"path is a file, but must be a Hugging Face model folder; {ELSEWHERE}") from None
    except ValueError as error:
        raise ValueError(f"{file.name} cannot be read as JSON: {error}") from None
    if not isinstance(value, dict):
        raise ValueError(f"{file.name} must contain a JSON object")
    return value


def _rope_frequencies(config: Mapping[str, Any], head_dim: int) -> tuple[float, ...]:
    """Read ``rope_parameters`` of transformers 5, or ``rope_theta`` and ``rope_scaling`` of older versions."""
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    theta = float(rope.get("rope_theta") or config.get("rope_theta") or 10000.0)
    plain = tuple(theta ** (-i / head_dim) for i in range(0, head_dim, 2))
    kind = rope.get("rope_type") or rope.get("type") or "default"
    if kind == "default":
        return plain
    if kind != "llama3":
        raise ValueError(f"config.json: rope_type {kind!r} is not supported (only default, llama3); {ELSEWHERE}")
    keys = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
    if missing := [key for key in keys if key not in rope]:
        raise ValueError(f"config.json: rope_type llama3 needs {', '.join(missing)}")
    factor, low, high, length = (float(rope[key]) for key in keys)
    # Slow pairs turn ``factor`` times slower, fast pairs do not change, pairs between are interpolated.
    turns = length * np.array(plain) / (2 * math.pi)
    kept = np.clip((turns - low) / (high - low), 0, 1)
    return tuple(np.multiply(plain, kept + (1 - kept) / factor).tolist())


def read_weights(folder: Path, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Array]:
    """Read ``model.safetensors`` as float32. The file must contain the tensors in ``shapes`` and no others.

    The format: eight bytes of header length, a JSON header, the raw tensors.
    """
    file = folder / "model.safetensors"
    if not file.is_file():
        raise ValueError(
            f"{file.name} is missing; write all weights to this file with save_pretrained and a large max_shard_size"
        )
    unused = ("__metadata__", *DERIVED, *(() if "lm_head.weight" in shapes else ("lm_head.weight",)))
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        try:
            header = json.loads(stream.read(min(length, MAX_HEADER)))
            stored = {name: tuple(header[name]["shape"]) for name in header if not name.endswith(unused)}
            # If tensors were left unused, the model would differ from the trained model.
            if others := sorted({name for name, _ in stored.items() ^ shapes.items()}):
                listed = ", ".join(others[:3])
                raise ValueError(f"the tensors do not match config.json ({listed} …); {ELSEWHERE}")
            return {name: _tensor(file, header[name], 8 + length) for name in shapes}
        except (ValueError, LookupError, TypeError) as error:
            raise ValueError(f"{file.name} cannot be used: {error}") from None


def _tensor(file: Path, entry: Mapping[str, Any], base: int) -> Array:
    kind, shape = entry["dtype"], entry["shape"]
    if kind not in STORED:
        raise ValueError(f"tensors of type {kind} are not supported (only {', '.join(STORED)})")
    raw = np.fromfile(file, STORED[kind], math.prod(shape), offset=base + entry["data_offsets"][0])
    if raw.size < math.prod(shape):
        raise ValueError("the file is incomplete; copy the file again")
    # bfloat16 is the upper half of float32.
    values = (raw.astype(np.uint32) << 16).view(np.float32) if kind == "BF16" else raw.astype(np.float32, copy=False)
    return values.reshape(shape)
