"""Scores → the next token.

The steps, in vLLM's order: penalties and bias on the scores, temperature, top_k, top_p, one draw. The random
stream of a seed depends on the seed and the copy's number only, not on other choices in the batch.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from gateway.backend.embedded.model_folder import Array
from gateway.backend.embedded.request import CallParams

GREEDY_BELOW = 1e-5
"""At this temperature and below, the likeliest token is chosen, as in vLLM."""

Scores = NDArray[np.float64]


def log_softmax(logits: Array) -> Scores:
    """Return the log probabilities over the last axis, in double precision."""
    scores = logits.astype(np.float64)
    scores -= scores.max(axis=-1, keepdims=True)
    scores -= np.log(np.exp(scores).sum(axis=-1, keepdims=True))
    return scores


def likeliest(scores: Scores, count: int) -> list[int]:
    """Return the ``count`` tokens with the highest scores, the highest one first."""
    best = np.argpartition(-scores, min(count, scores.size - 1))[:count]
    tokens: list[int] = best[np.argsort(-scores[best], kind="stable")].tolist()
    return tokens


class Sampler:
    """Chooses the tokens of one choice, one after the other."""

    def __init__(self, params: CallParams, copy: int) -> None:
        """``copy`` is the choice's number among the ``n`` of its prompt.

        With a seed, copy j draws from the stream of (seed, j), for each prompt of a list and for any ``n``.
        """
        self._params = params
        self._random = np.random.default_rng(None if params.seed is None else (params.seed % 2**64, copy))
        self._counts: Counter[int] = Counter()

    def choose(self, logits: Array) -> int:
        """Return the next token, given the scores of all tokens."""
        params, scores = self._params, logits.astype(np.float64)
        for token, count in self._counts.items():
            scores[token] -= params.presence_penalty + params.frequency_penalty * count
        for token, bias in params.logit_bias.items():
            scores[token] += bias
        greedy = params.temperature <= GREEDY_BELOW
        token = int(scores.argmax()) if greedy else self._draw(scores / params.temperature)
        if params.presence_penalty or params.frequency_penalty:
            self._counts[token] += 1
        return token

    def _draw(self, scores: Scores) -> int:
        params = self._params
        order = np.argsort(-scores, kind="stable")
        if params.top_k > 0:
            order = order[: params.top_k]
        weights = np.exp(scores[order] - scores[order[0]])
        weights /= weights.sum()
        if params.top_p < 1:
            # Keep the smallest set that reaches top_p: a token stays if the likelier tokens' sum is below top_p.
            order = order[np.cumsum(weights) - weights < params.top_p]
            weights = weights[: order.size]
        reach = np.cumsum(weights)
        place = np.searchsorted(reach, self._random.random() * reach[-1], side="right")
        return int(order[min(place, order.size - 1)])
