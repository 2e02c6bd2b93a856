"""Tokens → scores: a decoder of the Llama family in float32.

One step computes new tokens of many sequences. For matrix products the rows of all tokens are stacked, because a
product costs nearly the same for one row as for ten. For attention the rows are separated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from gateway.backend.embedded.model_folder import Array, ModelConfig

MIN_CAPACITY = 256
"""The number of positions for which a new cache reserves memory."""


class KeyValueCache:
    """Keys and values of one sequence, in all layers. The memory grows by doubling, up to the context length."""

    def __init__(self, config: ModelConfig) -> None:
        self._limit = config.max_position_embeddings
        shape = (2, config.num_hidden_layers, config.num_key_value_heads, 0, config.head_dim)
        self._rows: Array = np.empty(shape, np.float32)
        self.length = 0
        """The number of positions that are filled."""

    def reserve(self, count: int) -> None:
        """Make room for ``count`` more positions."""
        needed, old = self.length + count, self._rows
        if needed > old.shape[3]:
            capacity = min(self._limit, max(2 * old.shape[3], needed, MIN_CAPACITY))
            self._rows = np.empty((*old.shape[:3], capacity, old.shape[4]), np.float32)
            self._rows[:, :, :, : self.length] = old[:, :, :, : self.length]

    def extend(self, layer: int, keys: Array, values: Array) -> tuple[Array, Array]:
        """Append rows of shape (positions, kv heads, head_dim). Return all keys and all values of the layer.

        The returned arrays have the shape (kv heads, positions, head_dim).
        """
        end = self.length + len(keys)
        self._rows[0, layer, :, self.length : end] = keys.swapaxes(0, 1)
        self._rows[1, layer, :, self.length : end] = values.swapaxes(0, 1)
        return self._rows[0, layer, :, :end], self._rows[1, layer, :, :end]


Span = tuple[Sequence[int], KeyValueCache]
"""New tokens of one sequence, and the cache of the tokens before them."""


class Llama:
    """The weights and the computation of a model. No state is kept between steps."""

    def __init__(self, config: ModelConfig, weights: Mapping[str, Array]) -> None:
        """``weights``: the tensors that ``tensor_shapes`` lists."""
        self._config = config
        self._weights = weights
        self._head = weights.get("lm_head.weight", weights["model.embed_tokens.weight"])
        self._frequencies = np.array(config.rope_frequencies)

    def step(self, spans: Sequence[Span]) -> list[Array]:
        """Compute the tokens of each span, and add them to the caches.

        Returns for each span the hidden states after the last block, in the shape (tokens, hidden).
        """
        for tokens, cache in spans:
            cache.reserve(len(tokens))
        x = self._weights["model.embed_tokens.weight"][[token for tokens, _ in spans for token in tokens]]
        rotation = self._rotation(spans)
        for layer in range(self._config.num_hidden_layers):
            x = x + self._attention(layer, x, spans, rotation)
            x = x + self._mlp(layer, x)
        for tokens, cache in spans:
            cache.length += len(tokens)
        return _divided(x, [len(tokens) for tokens, _ in spans])

    def logits(self, hidden: Sequence[Array]) -> list[Array]:
        """Return the scores of all tokens of the vocabulary, for each of the hidden states of each array."""
        scores: Array = self._normed(np.concatenate(hidden), "model.norm") @ self._head.T
        return _divided(scores, [len(rows) for rows in hidden])

    def _linear(self, x: Array, name: str) -> Array:
        product: Array = x @ self._weights[f"{name}.weight"].T
        bias = self._weights.get(f"{name}.bias")
        return product if bias is None else product + bias

    def _normed(self, x: Array, name: str) -> Array:
        """Return the RMS norm of ``x``, or ``x`` itself if the model has no norm of this name."""
        weight = self._weights.get(f"{name}.weight")
        if weight is None:
            return x
        mean = np.mean(x * x, axis=-1, keepdims=True)
        normed: Array = x / np.sqrt(mean + np.float32(self._config.rms_norm_eps)) * weight
        return normed

    def _rotation(self, spans: Sequence[Span]) -> tuple[Array, Array]:
        """Return the cosine and sine of the rotation of each new row, in the shape (rows, 1, head_dim / 2)."""
        positions = np.concatenate([np.arange(cache.length, cache.length + len(tokens)) for tokens, cache in spans])
        angles = np.outer(positions, self._frequencies)[:, None, :]
        return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)

    def _attention(self, layer: int, x: Array, spans: Sequence[Span], rotation: tuple[Array, Array]) -> Array:
        block = f"model.layers.{layer}"
        x = self._normed(x, f"{block}.input_layernorm")
        q, k, v = (
            self._linear(x, f"{block}.self_attn.{name}_proj").reshape(len(x), -1, self._config.head_dim)
            for name in "qkv"
        )
        q = _rotated(self._normed(q, f"{block}.self_attn.q_norm"), rotation)
        k = _rotated(self._normed(k, f"{block}.self_attn.k_norm"), rotation)
        attended, start = [], 0
        for tokens, cache in spans:
            end = start + len(tokens)
            keys, values = cache.extend(layer, k[start:end], v[start:end])
            attended.append(_attend(q[start:end], keys, values))
            start = end
        return self._linear(np.concatenate(attended), f"{block}.self_attn.o_proj")

    def _mlp(self, layer: int, x: Array) -> Array:
        block = f"model.layers.{layer}"
        x = self._normed(x, f"{block}.post_attention_layernorm")
        gate, up = self._linear(x, f"{block}.mlp.gate_proj"), self._linear(x, f"{block}.mlp.up_proj")
        # Very negative gates overflow the exponential to infinity, and x / infinity is the right 0.
        with np.errstate(over="ignore"):
            return self._linear(gate / (1 + np.exp(-gate)) * up, f"{block}.mlp.down_proj")


def _divided(rows: Array, sizes: Sequence[int]) -> list[Array]:
    return np.split(rows, np.cumsum(sizes)[:-1])


def _rotated(x: Array, rotation: tuple[Array, Array]) -> Array:
    """Rotate each head's pairs (i, i + half) by the angle of the row's position."""
    cos, sin = rotation
    a, b = np.split(x, 2, axis=-1)
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


def _attend(q: Array, keys: Array, values: Array) -> Array:
    """Return the attention of new rows (rows, heads, dim) over all keys and values (kv heads, positions, dim)."""
    rows, heads, dim = q.shape
    groups, length = keys.shape[0], keys.shape[1]
    # Query heads that share a key head are stacked as further rows of this key head.
    stacked = q.reshape(rows, groups, heads // groups, dim).transpose(1, 2, 0, 3).reshape(groups, -1, dim)
    scores = stacked @ keys.swapaxes(1, 2) * np.float32(dim**-0.5)
    if rows > 1:
        future = np.triu(np.full((rows, length), -np.inf, np.float32), length - rows + 1)
        scores = (scores.reshape(groups, heads // groups, rows, length) + future).reshape(groups, -1, length)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    mixed: Array = weights @ values
    return mixed.reshape(groups, heads // groups, rows, dim).transpose(2, 0, 1, 3).reshape(rows, heads * dim)


def tensor_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Return the name and shape of each tensor of a model."""
    hidden, inner, dim = config.hidden_size, config.intermediate_size, config.head_dim
    wide, narrow = config.num_attention_heads * dim, config.num_key_value_heads * dim
    layer: dict[str, tuple[int, ...]] = {
        "input_layernorm.weight": (hidden,),
        "self_attn.q_proj.weight": (wide, hidden),
        "self_attn.k_proj.weight": (narrow, hidden),
        "self_attn.v_proj.weight": (narrow, hidden),
        "self_attn.o_proj.weight": (hidden, wide),
        "post_attention_layernorm.weight": (hidden,),
        "mlp.gate_proj.weight": (inner, hidden),
        "mlp.up_proj.weight": (inner, hidden),
        "mlp.down_proj.weight": (hidden, inner),
    }
    if config.model_type == "qwen2":
        layer |= {
            f"self_attn.{name}_proj.bias": (size,) for name, size in zip("qkv", (wide, narrow, narrow), strict=True)
        }
    if config.model_type == "qwen3":
        layer |= {"self_attn.q_norm.weight": (dim,), "self_attn.k_norm.weight": (dim,)}
    shapes = {
        f"model.layers.{index}.{name}": shape
        for index in range(config.num_hidden_layers)
        for name, shape in layer.items()
    }
    shapes |= {"model.embed_tokens.weight": (config.vocab_size, hidden), "model.norm.weight": (hidden,)}
    return shapes if config.tie_word_embeddings else {**shapes, "lm_head.weight": (config.vocab_size, hidden)}
