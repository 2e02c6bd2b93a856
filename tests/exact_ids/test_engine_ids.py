"""What vLLM made of the conversations of these tests, as ``engine_ids.json`` keeps it, is what the gateway makes."""

from __future__ import annotations

import json
from collections import Counter
from itertools import islice
from typing import Any

import pytest

from tests.exact_ids.compare import Subject, conversations
from tests.exact_ids.conftest import subject_of
from tests.exact_ids.engine_ids import CALLED, SEED, TRANSCRIPT

FOUND: dict[str, Any] = json.loads(TRANSCRIPT.read_text(encoding="utf-8"))
each = pytest.mark.parametrize("name", FOUND)


@each
def test_the_engine_made_the_same_ids_of_every_conversation(name: str) -> None:
    counts, hostile = FOUND[name]["conversations"], FOUND[name]["hostile"]
    number = int(FOUND[name]["command"].rpartition(" ")[2])
    calls = -(-number // CALLED)
    assert {what: count for what, count in counts.items() if not what.startswith("BOS")} == {
        "the text: equal": number,
        "the messages: equal": number,
        "a chat call: equal": calls,
        "received: equal": calls,
    }
    assert len([what for what in counts if what.startswith("BOS")]) == 1
    assert hostile["received as sent"] == hostile["sent"] > 0
    assert hostile["other ids than the engine's"] > 0


@each
def test_the_gateway_makes_the_ids_of_the_samples(name: str) -> None:
    subject: Subject = subject_of(name)
    for sample in FOUND[name]["samples"]:
        prompt = subject.render(sample["messages"])
        assert list(subject.encode(prompt.segments or ())) == sample["ids"]


@each
def test_the_samples_are_conversations_of_the_program(name: str) -> None:
    talks = list(islice(conversations(subject_of(name), 100, SEED, hostile=False), 100))
    samples = [sample["messages"] for sample in FOUND[name]["samples"]]
    assert samples
    assert Counter(map(str, samples)) <= Counter(map(str, talks))
