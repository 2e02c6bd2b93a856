"""A target with ``prompt: ids`` gives the answers of a target with text, and receives the ids that were computed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.engines.deep_table import CHECKED
from tests.exact_ids.compare import Subject, conversations
from tests.exact_ids.conftest import subject_of
from tests.exact_ids.engine_ids import TRANSCRIPT
from tests.exact_ids.tokenizers import DEMO
from tests.exact_ids.wire import called, configuration, files
from tests.support.engines.engine import engines_folder
from tests.support.serving import Gateway, gateway

TARGETS = {
    "embedded": f"speaks: embedded, path: {DEMO}",
    "numpy": CHECKED["numpy"].target,
    "llama-server": CHECKED["llama-server"].target,
}
FOUND: dict[str, Any] = json.loads(TRANSCRIPT.read_text(encoding="utf-8"))


@pytest.fixture(scope="module", params=TARGETS)
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    place = tmp_path_factory.mktemp(request.param)
    engine, url = CHECKED[request.param], ""
    if not engine.is_installed(engines_folder()):
        pytest.skip(f"{engine.title} is not installed")
    with ExitStack() as stack:
        if request.param != "embedded":
            url = stack.enter_context(engine.running(engines_folder(), place / "engine"))
        (place / "gateway").mkdir()
        config = configuration(DEMO, TARGETS[request.param].format(url=url))
        yield stack.enter_context(gateway(place / "gateway", config, files=files(DEMO)))


def test_a_sum_has_the_same_answer_as_ids_and_as_text(served: Gateway) -> None:
    for a, b in ((1, 1), (12, 30), (99, 99), (53, 26), (7, 8)):
        messages = [{"role": "user", "content": f"{a}+{b}=?"}]
        as_ids, as_text = called(served, "ids", messages), called(served, "text", messages)
        assert as_ids == as_text
        assert as_ids["text"].startswith(str(a + b))


def test_a_plain_conversation_has_the_same_answer_as_ids_and_as_text(served: Gateway) -> None:
    subject: Subject = subject_of("demo")
    for messages in conversations(subject, 8, 3, hostile=False):
        ours = subject.encode(subject.render(messages).segments or ())
        as_ids, as_text = called(served, "ids", messages), called(served, "text", messages)
        assert as_ids == as_text
        if as_ids["status"] == 200:
            assert as_ids["prompt"] == ours


@pytest.mark.parametrize("name", [name for name, row in FOUND.items() if "wire" in row])
def test_vllm_received_the_ids_as_they_were_sent(name: str) -> None:
    plain, hostile = FOUND[name]["wire"]["plain"], FOUND[name]["wire"]["hostile"]
    assert plain.keys() <= {"received as sent", "the text's ids are the same", "too long"}
    assert plain["received as sent"] == plain["the text's ids are the same"] >= 75
    assert hostile.keys() <= {"received as sent", "refused by the gateway"}
    assert hostile["received as sent"] >= 90
