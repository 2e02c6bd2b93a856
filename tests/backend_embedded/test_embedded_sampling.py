"""The choice of a token by its scores."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from gateway.backend.embedded.request import read_params
from gateway.backend.embedded.sampling import Sampler

LOGITS = np.log(np.array([0.1, 0.4, 0.3, 0.2], np.float32))

CHOICES: dict[str, tuple[dict[str, Any], set[int]]] = {  # name: (params, tokens that can come)
    "everything": ({}, {0, 1, 2, 3}),
    "temperature 0": ({"temperature": 0}, {1}),
    "nearly 0": ({"temperature": 1e-6}, {1}),
    "top_k": ({"top_k": 2}, {1, 2}),
    "top_k of -1 is no limit": ({"top_k": -1}, {0, 1, 2, 3}),
    "top_p reaches with the second": ({"top_p": 0.5}, {1, 2}),
    "top_p keeps at least one": ({"top_p": 0.001}, {1}),
    "bias bans": ({"logit_bias": {"1": -100}}, {0, 2, 3}),
    "bias forces": ({"logit_bias": {"0": 100}}, {0}),
}


@pytest.mark.parametrize("name", CHOICES)
def test_the_cuts_leave_these_tokens(name: str) -> None:
    params, expected = CHOICES[name]
    ask = read_params({**params, "seed": 1}, 4)
    drawn = {Sampler(ask, copy).choose(LOGITS) for copy in range(150)}
    assert drawn == expected


def test_draws_follow_the_probabilities() -> None:
    sampler = Sampler(read_params({"seed": 2}, 4), 0)
    drawn = Counter(sampler.choose(LOGITS) for _ in range(4000))
    assert [drawn[token] / 4000 for token in range(4)] == pytest.approx([0.1, 0.4, 0.3, 0.2], abs=0.03)


def test_without_a_seed_draws_differ() -> None:
    flat, ask = np.zeros(1000, np.float32), read_params({}, 4)
    assert len({Sampler(ask, 0).choose(flat) for _ in range(20)}) > 10


PENALTIES: dict[str, tuple[dict[str, Any], list[int]]] = {  # name: (params, greedy tokens in order)
    "none": ({}, [1, 1, 1, 1]),
    "presence": ({"presence_penalty": 0.5}, [1, 2, 1, 1]),
    "frequency": ({"frequency_penalty": 0.5}, [1, 2, 1, 3]),
}


@pytest.mark.parametrize("name", PENALTIES)
def test_penalties_lower_what_was_said(name: str) -> None:
    params, expected = PENALTIES[name]
    sampler = Sampler(read_params({**params, "temperature": 0}, 4), 0)
    assert [sampler.choose(LOGITS) for _ in range(4)] == expected
