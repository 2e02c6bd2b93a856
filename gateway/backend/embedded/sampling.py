"""Which token comes next?

The order is the one of vLLM: penalties and bias on the scores, then temperature, then the
cuts (top_k, top_p, min_p), then one draw. Seeds give streams that depend on nothing but the seed and
the copy's number, so a neighbour in the batch cannot disturb them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gateway.backend.embedded.params import Sampling
from gateway.backend.embedded.weights import Array

GREEDY_BELOW = 1e-5
"""Temperatures at or under this take the likeliest token, as vLLM does."""

Scores = NDArray[np.float64]


def log_softmax(logits: Array) -> Scores:
    """Log probabilities over the last axis, in double precision."""
    scores = logits.astype(np.float64)
    scores -= scores.max(axis=-1, keepdims=True)
    scores -= np.log(np.exp(scores).sum(axis=-1, keepdims=True))
    return scores


class Sampler:
    """Chooses the tokens of one choice, one after the other."""

    def __init__(self, how: Sampling, prompt: Sequence[int], copy: int) -> None:
        """``copy`` is the choice's number among the ``n`` of its prompt.

        With a seed, copy j draws from the stream of (seed, j): the same for each prompt of a
        list, and the same whatever ``n`` is.
        """
        self._how = how
        seed = None if how.seed is None else (how.seed % 2**64, copy)
        self._random = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed)))
        self._bias = (np.array([*how.logit_bias], np.int64), np.array([*how.logit_bias.values()], np.float64))
        self._prompt = np.unique(np.asarray(prompt, np.int64))
        self._counts: dict[int, int] = {}

    def choose(self, logits: Array) -> int:
        """The next token, given the scores of all."""
        scores = self._weighed(logits.astype(np.float64))
        if self._how.temperature <= GREEDY_BELOW:
            token = int(scores.argmax())
        else:
            token = self._drawn(scores / self._how.temperature)
        self._counts[token] = self._counts.get(token, 0) + 1
        return token

    def _weighed(self, scores: Scores) -> Scores:
        how = self._how
        seen = np.array([*self._counts], np.int64)
        if how.repetition_penalty != 1:
            both = np.union1d(self._prompt, seen)
            factor = how.repetition_penalty
            scores[both] = np.where(scores[both] > 0, scores[both] / factor, scores[both] * factor)
        if seen.size and (how.presence_penalty or how.frequency_penalty):
            counts = np.array([*self._counts.values()], np.float64)
            scores[seen] -= how.presence_penalty + how.frequency_penalty * counts
        scores[self._bias[0]] += self._bias[1]
        return scores

    def _drawn(self, scores: Scores) -> int:
        how = self._how
        order = np.argsort(-scores, kind="stable")
        if how.top_k > 0:
            order = order[: how.top_k]
        weights = np.exp(scores[order] - scores[order[0]])
        weights /= weights.sum()
        if how.top_p < 1:
            # The smallest set that reaches top_p: a token stays when those before it fall short.
            order = order[np.cumsum(weights) - weights < how.top_p]
            weights = weights[: order.size]
        if how.min_p > 0:
            order = order[weights >= how.min_p * weights[0]]
            weights = weights[: order.size]
        reach = np.cumsum(weights)
        place = np.searchsorted(reach, self._random.random() * reach[-1], side="right")
        return int(order[min(int(place), order.size - 1)])
