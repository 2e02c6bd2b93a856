"""The scripted backend: scripts, steps and files."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gateway.backend.scripted import ScriptedBackend, Step
from gateway.config.snapshot import TargetSpec
from gateway.core.errors import ConfigError
from metatemplate.values.events import Begun, Delta, Document, Finish, Usage
from tests.backend.ask import exchange, listen
from tests.support.recording_backend import RecordingBackend


def test_a_script_is_played_in_order() -> None:
    script: list[Step] = [
        "Hel",
        {"pause": 0.001},
        {"text": "lo", "index": 1},
        {"fields": {"reasoning_content": "hm"}},
        {"finish": "stop"},
        {"finish": "length", "index": 1},
        {"usage": [7, 2]},
        {"document": {"a": 1}},
    ]
    backend = RecordingBackend(script)
    heard = asyncio.run(listen(backend, exchange()))
    assert heard.events == [
        Begun("scripted/0"),
        Delta(0, "Hel"),
        Delta(1, "lo"),
        Delta(0, fields={"reasoning_content": "hm"}),
        Finish(0, "stop"),
        Finish(1, "length"),
        Usage(7, 2),
        Document({"a": 1}),
    ]
    assert [asked.prompts for asked in backend.exchanges] == [("1+1=",)]
    assert (backend.active, backend.left_early) == (0, 0)


async def test_an_error_may_come_before_or_after_the_first_event() -> None:
    backend = ScriptedBackend([{"error": "upstream_overloaded"}], ["a", {"error": "upstream_disconnected"}], ["b"])
    assert [((heard := await listen(backend, exchange())).text(), heard.code) for _ in range(4)] == [
        ("", "upstream_overloaded"),
        ("a", "upstream_disconnected"),
        ("b", None),
        ("b", None),
    ]


@pytest.mark.parametrize("count", [0, 1, 2], ids=["before", "during", "after the first event"])
async def test_leaving_early_is_noticed(count: int) -> None:
    backend = RecordingBackend(["a", "b", {"pause": 60}, {"finish": "stop"}])
    async with backend.open(exchange()) as events:
        for _ in range(count):
            await events.next_batch()
    assert (backend.active, backend.left_early) == (0, 1)


def test_a_script_without_a_document_embeds_nothing() -> None:
    embed = exchange(endpoint="embeddings", prompts=())
    assert asyncio.run(listen(ScriptedBackend(["a", {"finish": "stop"}]), embed)).code == "upstream_invalid_response"
    assert asyncio.run(listen(ScriptedBackend([{"error": "upstream_overloaded"}]), embed)).code == "upstream_overloaded"
    assert Document({"a": 1}) in asyncio.run(listen(ScriptedBackend([{"document": {"a": 1}}]), embed)).events


def test_a_script_comes_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "script.yaml"
    file.write_text("- Hello\n- {finish: stop}\n")
    heard = asyncio.run(
        listen(ScriptedBackend.from_target(TargetSpec(label="m/0", speaks="scripted", script=file)), exchange())
    )
    assert (heard.text(), heard.begun.target) == ("Hello", "m/0")


WRONG = {
    "no list": ("hello", "a script must be a list"),
    "unknown step": ("- {say: a}", "unknown step: say"),
    "no text": ("- {text: 5}", "wrong type"),
    "no seconds": ("- {pause: soon}", "wrong type"),
    "no counts": ("- {usage: 7}", "wrong type"),
    "no index": ("- {text: a, index: b}", "wrong type"),
    "no mapping": ("- {fields: [a]}", "wrong type"),
    "no code": ("- {error: [a]}", "wrong type"),
    "a key that is no text": ("- {5: a}", "unknown step: 5"),
    "unknown error": ("- {error: tired}", "no error with the code tired"),
    "no yaml": ("- {", "while parsing"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_script_that_cannot_be_played_is_refused(tmp_path: Path, name: str) -> None:
    text, message = WRONG[name]
    file = tmp_path / "script.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=message):
        ScriptedBackend.from_target(TargetSpec(label="m/0", speaks="scripted", script=file))
