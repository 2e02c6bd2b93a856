"""The logits are those of transformers, for every architecture and storage we read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gateway.backend.embedded.llama import KeyValueCache, Llama, tensor_shapes
from gateway.backend.embedded.model_folder import ModelConfig, read_config, read_weights

GOLDENS = Path(__file__).parent / "goldens"
FOLDERS = sorted(folder.name for folder in GOLDENS.iterdir() if folder.is_dir())
SLICINGS = {"at once": [40], "token by token": [1] * 40, "in chunks": [7, 1, 20, 12]}


def load(name: str) -> tuple[ModelConfig, Llama]:
    config = read_config(GOLDENS / name)
    return config, Llama(config, read_weights(GOLDENS / name, tensor_shapes(config)))


@pytest.mark.parametrize("slicing", SLICINGS)
@pytest.mark.parametrize("name", FOLDERS)
def test_the_logits_are_those_of_transformers(name: str, slicing: str) -> None:
    config, model = load(name)
    expected = np.load(GOLDENS / name / "expected.npz")
    ids, cache, logits = [int(token) for token in expected["ids"]], KeyValueCache(config), []
    for size in SLICINGS[slicing]:
        [states] = model.step([(ids[:size], cache)])
        logits += model.logits([states])
        ids = ids[size:]
    assert np.abs(np.concatenate(logits) - expected["logits"]).max() < 1e-3


@pytest.mark.parametrize("name", FOLDERS)
def test_neighbours_of_other_lengths_do_not_change_the_logits(name: str) -> None:
    config, model = load(name)
    expected = np.load(GOLDENS / name / "expected.npz")
    ids, caches = [int(token) for token in expected["ids"]], [KeyValueCache(config) for _ in range(3)]
    model.step([(ids[:3], caches[0]), (ids[:10], caches[1])])
    states = model.step([(ids[3:4], caches[0]), (ids[:9], caches[2]), (ids[10:], caches[1])])
    logits = model.logits(states)
    assert np.abs(logits[0] - expected["logits"][3:4]).max() < 1e-3
    assert np.abs(logits[1] - expected["logits"][:9]).max() < 1e-3
    assert np.abs(logits[2] - expected["logits"][10:]).max() < 1e-3
