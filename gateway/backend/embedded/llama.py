"""Tokens → scores: a decoder of the Llama family in float32.

One step takes new tokens of many sequences. Their rows are stacked for the matrix products, which cost nearly the same
for one row as for ten, and separated for attention.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gateway.backend.embedded.model_config import ModelShape
from gateway.backend.embedded.weights import Array, Weights


class KeyValueCache:
    """Keys and values of one sequence, in all layers; grows by doubling up to the context."""

    def __init__(self, shape: ModelShape, expected: int) -> None:
        self._limit = shape.context
        size = (2, shape.layers, shape.kv_heads, min(max(expected, 16), shape.context), shape.head_dim)
        self._rows: Array = np.empty(size, np.float32)
        self.length = 0
        """Positions filled."""

    def reserve(self, count: int) -> None:
        """Make room for ``count`` more positions."""
        capacity = self._rows.shape[3]
        if self.length + count <= capacity:
            return
        wider = min(self._limit, max(2 * capacity, self.length + count))
        rows = np.empty((*self._rows.shape[:3], wider, self._rows.shape[4]), np.float32)
        rows[:, :, :, : self.length] = self._rows[:, :, :, : self.length]
        self._rows = rows

    def extend(self, layer: int, keys: Array, values: Array) -> tuple[Array, Array]:
        """Append rows (kv heads, positions, head_dim); returns all keys and values of the layer."""
        end = self.length + keys.shape[1]
        self._rows[0, layer, :, self.length : end] = keys
        self._rows[1, layer, :, self.length : end] = values
        return self._rows[0, layer, :, :end], self._rows[1, layer, :, :end]


@dataclass(frozen=True, slots=True)
class _Layer:
    """The weights of one block; products with the same input are one matrix."""

    attention_norm: Array
    qkv: Array
    qkv_bias: Array | None
    query_norm: Array | None
    key_norm: Array | None
    out: Array
    mlp_norm: Array
    gate_up: Array
    down: Array


Span = tuple[Sequence[int], KeyValueCache]
"""New tokens of one sequence, and the cache of those before them."""


class Llama:
    """The weights and the computation; holds no state between steps."""

    def __init__(self, shape: ModelShape, weights: Weights) -> None:
        """Raises ``ConfigError`` if the weights do not fit the shape."""
        self.shape = shape
        self._embedding = weights.take("model.embed_tokens.weight", shape.vocabulary, shape.hidden)
        self._layers = [_layer(shape, weights, f"model.layers.{index}.") for index in range(shape.layers)]
        self._norm = weights.take("model.norm.weight", shape.hidden)
        if shape.tied:
            weights.drop("lm_head.weight")
            self._head = self._embedding
        else:
            self._head = weights.take("lm_head.weight", shape.vocabulary, shape.hidden)
        weights.finish()
        self._frequencies = np.array(shape.rope.frequencies(shape.head_dim))

    def step(self, spans: Sequence[Span]) -> list[Array]:
        """Hidden states (tokens, hidden) after the last block, per span; the caches grow by its tokens."""
        for tokens, cache in spans:
            cache.reserve(len(tokens))
        ids = np.concatenate([np.asarray(tokens, np.int64) for tokens, _ in spans])
        x = self._embedding[ids]
        rotation = self._rotation(spans)
        for index, layer in enumerate(self._layers):
            x = x + self._attention(index, layer, x, spans, rotation)
            x = x + self._mlp(layer, x)
        for tokens, cache in spans:
            cache.length += len(tokens)
        return np.split(x, np.cumsum([len(tokens) for tokens, _ in spans])[:-1])

    def logits(self, hidden: Array) -> Array:
        """Scores of every token after each of the given states."""
        scores: Array = self._normed(hidden, self._norm) @ self._head.T
        return scores

    def _rotation(self, spans: Sequence[Span]) -> tuple[Array, Array]:
        """Cosine and sine of each new row's position, (rows, 1, head_dim / 2)."""
        positions = np.concatenate([np.arange(cache.length, cache.length + len(tokens)) for tokens, cache in spans])
        angles = np.outer(positions, self._frequencies)[:, None, :]
        return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)

    def _normed(self, x: Array, weight: Array) -> Array:
        mean = np.mean(x * x, axis=-1, keepdims=True)
        normed: Array = x / np.sqrt(mean + np.float32(self.shape.norm_eps)) * weight
        return normed

    def _attention(
        self, index: int, layer: _Layer, x: Array, spans: Sequence[Span], rotation: tuple[Array, Array]
    ) -> Array:
        shape, rows = self.shape, x.shape[0]
        mixed = self._normed(x, layer.attention_norm) @ layer.qkv.T
        if layer.qkv_bias is not None:
            mixed = mixed + layer.qkv_bias
        heads = mixed.reshape(rows, shape.heads + 2 * shape.kv_heads, shape.head_dim)
        q, k, v = np.split(heads, [shape.heads, shape.heads + shape.kv_heads], axis=1)
        if layer.query_norm is not None and layer.key_norm is not None:
            q, k = self._normed(q, layer.query_norm), self._normed(k, layer.key_norm)
        q, k = _rotated(q, rotation), _rotated(k, rotation)
        attended = np.empty((rows, shape.heads * shape.head_dim), np.float32)
        start = 0
        for tokens, cache in spans:
            end = start + len(tokens)
            keys, values = cache.extend(index, k[start:end].swapaxes(0, 1), v[start:end].swapaxes(0, 1))
            attended[start:end] = _attend(q[start:end], keys, values)
            start = end
        out: Array = attended @ layer.out.T
        return out

    def _mlp(self, layer: _Layer, x: Array) -> Array:
        gate, up = np.split(self._normed(x, layer.mlp_norm) @ layer.gate_up.T, 2, axis=-1)
        # Very negative gates overflow the exponential to infinity, and x / infinity is the right 0.
        with np.errstate(over="ignore"):
            activated = gate / (1 + np.exp(-gate))
        out: Array = (activated * up) @ layer.down.T
        return out


def _rotated(x: Array, rotation: tuple[Array, Array]) -> Array:
    """Rotate each head's pairs (i, i + half) by the angle of the row's position."""
    cos, sin = rotation
    half = x.shape[-1] // 2
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


def _attend(q: Array, keys: Array, values: Array) -> Array:
    """Attention of new rows (rows, heads, dim) over keys and values (kv heads, positions, dim), themselves included."""
    rows, heads, dim = q.shape
    groups, length = keys.shape[0], keys.shape[1]
    # Query heads that share a key head are stacked as more rows of it.
    stacked = q.reshape(rows, groups, heads // groups, dim).transpose(1, 2, 0, 3).reshape(groups, -1, dim)
    scores = stacked @ keys.swapaxes(1, 2) * np.float32(dim**-0.5)
    if rows > 1:
        future = np.triu(np.full((rows, length), -np.inf, np.float32), length - rows + 1)
        scores = (scores.reshape(groups, heads // groups, rows, length) + future).reshape(groups, -1, length)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    mixed: NDArray[np.float32] = weights @ values
    return mixed.reshape(groups, heads // groups, rows, dim).transpose(2, 0, 1, 3).reshape(rows, heads * dim)


def _layer(shape: ModelShape, weights: Weights, prefix: str) -> _Layer:
    hidden, inner = shape.hidden, shape.feed_forward
    wide, narrow = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    qkv = (("self_attn.q_proj", wide), ("self_attn.k_proj", narrow), ("self_attn.v_proj", narrow))
    gate_up = (("mlp.gate_proj", inner), ("mlp.up_proj", inner))

    def matrix(parts: Sequence[tuple[str, int]]) -> Array:
        return np.concatenate([weights.take(f"{prefix}{name}.weight", size, hidden) for name, size in parts])

    def head_norm(name: str) -> Array | None:
        return weights.take(f"{prefix}self_attn.{name}.weight", shape.head_dim) if shape.head_norms else None

    bias = np.concatenate([weights.take(f"{prefix}{n}.bias", size) for n, size in qkv]) if shape.qkv_bias else None
    return _Layer(
        attention_norm=weights.take(f"{prefix}input_layernorm.weight", hidden),
        qkv=matrix(qkv),
        qkv_bias=bias,
        query_norm=head_norm("q_norm"),
        key_norm=head_norm("k_norm"),
        out=weights.take(f"{prefix}self_attn.o_proj.weight", hidden, wide),
        mlp_norm=weights.take(f"{prefix}post_attention_layernorm.weight", hidden),
        gate_up=matrix(gate_up),
        down=weights.take(f"{prefix}mlp.down_proj.weight", hidden, inner),
    )
