"""What engines made of the conversations of these tests, as the transcripts keep it, is what the gateway makes."""

from __future__ import annotations

import json
from collections import Counter
from itertools import islice
from typing import Any

import pytest

from tests.exact_ids.compare import Subject, conversations
from tests.exact_ids.conftest import subject_of
from tests.exact_ids.engine_ids import CALLED, COMPARED, REASONS, SEED
from tests.exact_ids.tokenizers import PUBLISHED
from tests.support.serving import ROOT

FOUND: dict[str, dict[str, Any]] = {
    engine: json.loads(compared.transcript.read_text(encoding="utf-8")) for engine, compared in COMPARED.items()
}
each = pytest.mark.parametrize("name", PUBLISHED)
each_engine = pytest.mark.parametrize("engine", COMPARED)


def counts_of(engine: str, name: str) -> dict[str, Counter[str]]:
    """What was compared → verdict → the number of conversations."""
    found: dict[str, Counter[str]] = {}
    for what, count in FOUND[engine][name]["conversations"].items():
        side, _, verdict = what.partition(": ")
        found.setdefault(side, Counter())[verdict] = count
    return found


@each
@each_engine
def test_the_engine_made_the_same_ids_of_every_conversation(engine: str, name: str) -> None:
    row, counts = FOUND[engine][name], counts_of(engine, name)
    number = int(row["command"].rpartition(" ")[2])
    calls = -(-number // CALLED)
    assert number == 1000
    assert {side: sum(found.values()) for side, found in counts.items()} == {
        **dict.fromkeys(("the text", "the messages", "BOS"), number),
        **dict.fromkeys(("a chat call", "received"), calls),
    }
    known = {*COMPARED[engine].reasons.get(name, ()), *(["no answer"] if (engine, name) in NO_ANSWER else [])}
    assert {verdict for side in counts.keys() - {"BOS"} for verdict in counts[side]} == {"equal", *known}
    assert counts["received"] == {"equal": calls}
    assert len(counts["BOS"]) == 1


NO_ANSWER = {("llama-server", "gptoss")}
"""Its chat endpoint refuses what the random weights answer."""


@each
@each_engine
def test_an_engine_received_hostile_texts_as_they_were_sent(engine: str, name: str) -> None:
    hostile = FOUND[engine][name]["hostile"]
    assert hostile["received as sent"] == hostile["sent"] > 0
    assert hostile["other ids than the engine's"] > 0


@each
def test_the_gateway_makes_the_ids_of_the_samples(name: str) -> None:
    subject: Subject = subject_of(name)
    for sample in FOUND["vllm"][name]["samples"]:
        prompt = subject.render(sample["messages"])
        assert list(subject.encode(prompt.segments or ())) == sample["ids"]


@each
def test_the_samples_are_conversations_of_the_program(name: str) -> None:
    talks = list(islice(conversations(subject_of(name), 100, SEED, hostile=False), 100))
    samples = [sample["messages"] for sample in FOUND["vllm"][name]["samples"]]
    assert samples
    assert Counter(map(str, samples)) <= Counter(map(str, talks))


def test_the_documentation_has_the_numbers() -> None:
    rows = ""
    for name, reasons in COMPARED["llama-server"].reasons.items():
        counts = counts_of("llama-server", name)
        text, messages = (sum(counts[side][one] for one in reasons) for side in ("the text", "the messages"))
        rows += f"| {name} | {text} | {messages} | {'; '.join(reasons)} |\n"
    assert rows in (ROOT / "docs/configuration.md").read_text(encoding="utf-8")
    assert {reason for one in COMPARED["llama-server"].reasons.values() for reason in one} == set(REASONS)
