"""Answers from a recording: the same bytes without the engine, and requests that are not recorded."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.backend.replay import ReplayBackend, ReplayedEvents
from gateway.config.snapshot import RecordingsSpec, TargetSpec
from gateway.core.caller import Caller
from gateway.core.errors import ConfigError
from gateway.core.exchange import Exchange, RecordedExchange
from gateway.storage.recorder import CallFacts, Recorder
from gateway.telemetry.record import Record
from gateway.wire.redaction import NOTHING, Redactor
from metatemplate.values.events import Begun, Delta, Document, Event, Finish, TokenLogprob, Usage
from tests.backend.ask import Heard, exchange, listen
from tests.support.serving import ROOT, Gateway, gateway

ROWS = 200
SUMS = (ROOT / "meta_templates" / "sft-demo.yaml").read_text(encoding="utf-8")
ENGINE = "models:\n  demo: {template: base, targets: [{speaks: embedded, path: model}]}\n"
CONFIG = """\
recordings: {{path: {file}}}
models:
  sums: {{template: {template}, policy: full, targets: [{target}]}}
"""
FILES = {
    "policies/full.yaml": "record: full\n",
    "meta_templates/sums.yaml": SUMS,
    "meta_templates/spaced.yaml": SUMS.replace("<BOT>: ", "<BOT>:"),
}
CHANGING = re.compile(rb'"(id|created)":("[^"]*"|[0-9]+)')
"""What differs between two answers to one request: the gateway's id of the call, and the time."""


def ask(served: Gateway, row: int) -> httpx.Response:
    """One row of the run. Rows 100 apart ask the same; every second one is streamed."""
    body = {
        "model": "sums",
        "temperature": 1.5,
        "max_tokens": 6,
        "stream": row % 2 == 1,
        "logprobs": row % 5 == 0,
        "messages": [{"role": "user", "content": f"{row % 100}+7=?"}],
    }
    headers = {"x-gateway-run": "nightly", "x-gateway-row": f"row-{row}"}
    return served.http.post("/v1/chat/completions", json=body, headers=headers)


def contents(answer: httpx.Response) -> bytes:
    assert answer.status_code == 200, answer.text
    return CHANGING.sub(rb'"\1":0', answer.content)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[bytes]]:
    """A folder with the recording of a run whose engine has ended, and the answers of the run."""
    folder = tmp_path_factory.mktemp("replay")
    with gateway(tmp_path_factory.mktemp("engine"), ENGINE, files={"model": ROOT / "demo" / "model"}) as engine:
        target = f'{{speaks: completions, url: "{engine.url}", model: demo}}'
        with gateway(folder, CONFIG.format(file="a.sqlite", template="sums", target=target), files=FILES) as served:
            answers = [contents(ask(served, row)) for row in range(ROWS)]
    with pytest.raises(httpx.ConnectError):
        httpx.get(engine.root, trust_env=False)
    return folder, answers


def replaying(folder: Path, template: str = "sums", more: str = "") -> Any:
    target = f"{{speaks: replay, file: a.sqlite{more}}}"
    return gateway(folder, CONFIG.format(file="b.sqlite", template=template, target=target))


def events(file: Path) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(file)) as database:
        query = (
            "SELECT row, events, answer, prompt_tokens, completion_tokens FROM calls JOIN exchanges ON call = calls.id"
        )
        rows = database.execute(f"{query} ORDER BY row").fetchall()
    times = re.compile(r"\[[0-9.]+(?:e-?[0-9]+)?,(?=\"(?:Begun|Delta|Finish|Usage)\")")
    return [(name, times.sub("[", text), *rest) for name, text, *rest in rows]


def test_a_run_is_replayed_without_its_engine(recorded: tuple[Path, list[bytes]]) -> None:
    folder, answers = recorded
    assert len(set(answers)) > ROWS / 4, "the engine's answers differ"
    with replaying(folder) as served:
        for row in range(ROWS):
            answer = ask(served, row)
            assert contents(answer) == answers[row]
            assert answer.headers["x-gateway-target"] == "sums/0"
    assert len(events(folder / "b.sqlite")) == ROWS
    assert events(folder / "a.sqlite") == events(folder / "b.sqlite")


def test_a_changed_template_is_refused_with_the_first_different_byte(recorded: tuple[Path, list[bytes]]) -> None:
    folder, _ = recorded
    with replaying(folder, "spaced") as served:
        of_row, by_prompt = ask(served, 3), served.chat("sums", "5+7=?", temperature=1.5, max_tokens=6)
    for answer, question, name in ((of_row, 3, "(row row-3)"), (by_prompt, 5, "(row row-")):
        error = answer.json()["error"]
        assert (answer.status_code, error["code"]) == (400, "not_recorded")
        assert name in error["message"]
        place = f"<HUMAN>: {question}+7=?<eoh>\\n<BOT>:"[-25:]
        assert error["message"].endswith(
            "\n--- recorded\n+++ request\nfirst difference: byte 26 (line 2, column 7)"
            f'\n  - …"{place}⟨here⟩ "\n  + …"{place}⟨here⟩"'
        )


# ---------------------------------------------------------------- files with single calls


ANSWER: list[tuple[float, Event]] = [
    (0.5, Begun("engine/0", {"system_fingerprint": "fp"})),
    (0.5, Delta(0, "4", (TokenLogprob("4", -0.25, (("4", -0.25, (52,)),), (52,), 7),))),
    (2.0, Delta(0, "2")),
    (2.0, Finish(0, "stop", "<eoh>")),
    (2.0, Usage(7, 2)),
]
PLAYED = [Begun("m/0", {"system_fingerprint": "fp"}), *[event for _, event in ANSWER[1:]]]
Moments = list[tuple[float, Event]]


def record(
    file: Path, asked: Exchange, moments: Moments, row: str = "", run: str = "", outcome: str = "ok", **changes: Any
) -> Path:
    """Add a call to a file of recordings."""
    recorder = Recorder(file, lambda reason: pytest.fail(reason))
    mode, redactor = changes.get("mode", "full"), changes.get("redactor", NOTHING)
    call = recorder.begin(mode, CallFacts("eval", run=run, row=row), RecordingsSpec(path=file), redactor)
    call.exchanges.append(RecordedExchange(asked, 0.0, moments, [event for _, event in moments]))
    name = f"req_{row or 'x'}"
    key = changes.get("key", "")
    call.end(Record(name, "chat", "m", key=key, outcome=outcome, status=200, stream=True, duration=2.0))
    recorder.close()
    return file


def said(text: str) -> Moments:
    return [(0.1, Begun("engine/0")), (0.1, Delta(0, text)), (0.2, Finish(0, "stop"))]


def hear(file: Path, *asked: Exchange, **settings: Any) -> list[Heard]:
    backend = ReplayBackend(TargetSpec(label="m/0", speaks="replay", file=file, **settings))

    async def run() -> list[Heard]:
        return [await listen(backend, one) for one in asked]

    return asyncio.run(run())


def row_of(name: str, run: str = "", key: str = "", **changes: Any) -> Exchange:
    return exchange(caller=Caller(row=name, run=run, key=key), **changes)


def test_every_field_of_every_event_is_played(tmp_path: Path) -> None:
    file = record(tmp_path / "a.sqlite", exchange(params={"seed": 2**70, "temperature": 0.1}), ANSWER)
    (heard,) = hear(file, exchange(stream=False, params={"temperature": 0.1, "seed": 2**70}))
    assert heard.events == PLAYED


def test_other_kinds_of_requests_are_played(tmp_path: Path) -> None:
    embed = exchange(endpoint="embeddings", prompts=(), params={"input": "hi"})
    lists = exchange(prompts=("a", (1, 2)), n=1)
    both: Moments = [(0.0, Begun("e/0")), *[(0.0, Delta(index, "x")) for index in (0, 1)], (1.0, Finish(0, "stop"))]
    chat = exchange(endpoint="chat", prompts=(), messages=({"role": "user", "content": "\ud800"},))
    file = tmp_path / "a.sqlite"
    record(file, embed, [(0.0, Begun("e/0")), (0.0, Document({"data": []}))])
    record(file, lists, [*both, (1.0, Finish(1, "length"))])
    record(file, chat, said("c"))
    embedded, listed, chatted = hear(file, embed, lists, chat)
    assert (embedded.events[1], listed.finishes, chatted.text()) == (
        Document({"data": []}),
        {0: "stop", 1: "length"},
        "c",
    )


def test_a_row_gets_its_own_answer_and_another_call_none_of_several(tmp_path: Path) -> None:
    file = tmp_path / "a.sqlite"
    for row, text in (("a", "0"), ("a", "1"), ("b", "2"), ("c", "2")):
        record(file, exchange(), said(text), row)
    record(file, exchange(), said("3"), "a", run="second")
    record(file, exchange(prompts=("once",)), said("4"), "d")
    first, other, named, both, none, once = hear(
        file,
        row_of("b"),
        row_of("a", "second"),
        row_of("c", "third"),
        row_of("a", "third"),
        exchange(),
        exchange(prompts=("once",)),
    )
    assert [first.text(), other.text(), named.text(), once.text()] == ["2", "3", "2", "4"]
    for heard in (both, none):
        assert heard.error is not None
        assert "a.sqlite has different answers to this request, such as call req_a (row a) and" in heard.error.message


def test_runs_of_two_client_keys_with_one_name_are_two_runs(tmp_path: Path) -> None:
    file = tmp_path / "a.sqlite"
    for key, text in (("ann", "1"), ("bob", "2")):
        record(file, exchange(), said(text), "a", run="nightly", key=key)
        record(file, exchange(prompts=("same",)), said("3"), "b", run="nightly", key=key)
    ann, bob, same, other = hear(
        file,
        row_of("a", "nightly", "ann"),
        row_of("a", "nightly", "bob"),
        row_of("b", "nightly", prompts=("same",)),
        row_of("a", "nightly"),
    )
    assert [ann.text(), bob.text(), same.text()] == ["1", "2", "3"]
    assert other.error is not None
    assert "different answers to this request, such as call req_a (row a, key ann) and call req_a (row a, key bob)" in (
        other.error.message
    )


DIFFERENT: dict[str, tuple[dict[str, Any], str]] = {
    "a parameter": ({"params": {"max_tokens": 32}}, "max_tokens 16 → 32"),
    "a parameter that is not recorded": ({"params": {"max_tokens": 16, "top_k": 1}}, "top_k absent → 1"),
    "a parameter that is not sent": ({"params": {}}, "max_tokens 16 → absent"),
    "a stop": ({"stops": ("\n", "</s>")}, "stop ['\\n'] → ['\\n', '</s>']"),
    "a stop id": ({"stop_token_ids": (2,)}, "stop_token_ids of the template [] → [2]"),
    "the number of choices": ({"n": 2}, "n 1 → 2"),
    "the repeat": ({"repeat": 1}, "gateway.repeat 0 → 1"),
    "the BOS": ({"bos": "engine", "bos_text": "<s>"}, "bos 'none' → 'engine', bos_text '' → '<s>'"),
    "the prompt": ({"prompts": ("1+2=",)}, 'byte 2 (line 1, column 3)\n  - "1+⟨here⟩1="\n  + "1+⟨here⟩2="'),
    "token ids": ({"prompts": ((1, 2),)}, "byte 0"),
}
ASKED: dict[str, Any] = {"params": {"max_tokens": 16}, "stops": ("\n",)}


@pytest.mark.parametrize("case", DIFFERENT)
@pytest.mark.parametrize("row", ["a", ""], ids=["row", "no row"])
def test_another_request_is_refused_with_what_differs(tmp_path: Path, row: str, case: str) -> None:
    file = record(tmp_path / "a.sqlite", exchange(**ASKED), said("2"), "a")
    record(file, exchange(prompts=("0+0=",), params={"max_tokens": 16}), said("2"), "b")
    record(file, exchange(prompts=("9",)), said("2"), "c")
    changes, difference = DIFFERENT[case]
    (heard,) = hear(file, row_of(row, **{**ASKED, **changes}))
    assert heard.code == "not_recorded"
    assert heard.error is not None
    assert "the closest recorded request is that of call req_a (row a)" in heard.error.message
    assert difference in heard.error.message
    assert "1+" not in heard.error.log_message


def test_the_closest_of_many_requests_with_one_prompt_is_named(tmp_path: Path) -> None:
    for number in range(101, 230):
        file = record(tmp_path / "a.sqlite", exchange(params={"seed": number}), said("2"), f"{number}")
    (heard,) = hear(file, exchange(params={"seed": 228}, n=2))
    assert heard.error is not None
    assert heard.error.message.endswith("that of call req_228 (row 228), which differs: n 1 → 2")


@pytest.mark.parametrize("word", ["number", "数字"])
def test_the_closest_of_many_prompts_is_named(tmp_path: Path, word: str) -> None:
    for number in range(101, 330):
        file = record(tmp_path / "a.sqlite", exchange(prompts=(f"{word} {number}",)), said("2"), f"{number}")
    (heard,) = hear(file, exchange(prompts=(f"{word} 3201",)))
    assert heard.error is not None
    assert "the closest recorded request is that of call req_320 (row 320)" in heard.error.message


def test_answers_are_read_up_to_the_second_different_one(tmp_path: Path) -> None:
    for text in "123":
        file = record(tmp_path / "a.sqlite", exchange(), said(text))
    with closing(sqlite3.connect(file)) as database, database:
        database.execute("UPDATE exchanges SET events = 'unreadable' WHERE id = 3")
    (heard,) = hear(file, exchange())
    assert heard.code == "not_recorded"


def test_only_complete_answers_with_their_texts_are_played(tmp_path: Path) -> None:
    file = record(tmp_path / "a.sqlite", exchange(), said("2"), "whole")
    record(file, exchange(prompts=("my@mail.example",)), said("x"), "redacted", redactor=Redactor(("email",)))
    record(file, exchange(prompts=("hashed",)), said("x"), "metadata", mode="metadata")
    record(file, exchange(prompts=("long",)), said("x")[:2], "long")
    record(file, exchange(prompts=("left",)), said("x")[:1], "left", outcome="client_gone")
    prompts = {"redacted": "my@mail.example", "metadata": "hashed", "long": "long", "left": "left", "whole": "1+1="}
    asked = [row_of(name, prompts=(prompt,)) for name, prompt in prompts.items()]
    redacted, metadata, long, left, whole = hear(file, *asked)
    found = [heard.error.message for heard in (redacted, metadata, long, left) if heard.error is not None]
    assert found[0].endswith("the recording of its row is redacted, without token ids")
    assert found[1].endswith("the recording of its row is recorded as metadata, without texts")
    assert "call req_long (row long) ended with ok; the rest of a very long answer is not recorded" in found[2]
    assert "call req_left (row left) ended with client_gone" in found[3]
    assert whole.text() == "2"


def test_a_file_without_a_playable_answer_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.sqlite"
    record(file, exchange(), said("x"), mode="metadata")
    record(file, exchange(), said("x"), redactor=Redactor(("email",)))
    with pytest.raises(
        ConfigError, match=r"1 recorded as metadata, without texts, 1 redacted, without token ids\); rec"
    ):
        hear(file)
    (tmp_path / "b.sqlite").write_text("no database, but long enough for the head of one")
    for name, message in (("b", "file is not a database"), ("c", "unable to open")):
        with pytest.raises(ConfigError, match=message):
            hear(tmp_path / f"{name}.sqlite")


def test_a_damaged_or_removed_file_fails_as_an_upstream_does(tmp_path: Path) -> None:
    file = record(tmp_path / "a.sqlite", exchange(), said("2"))
    backend = ReplayBackend(TargetSpec(label="m/0", speaks="replay", file=file))
    with closing(sqlite3.connect(file)) as database, database:
        database.execute("UPDATE exchanges SET events = '[[0, \"Delta\"]]'")
    assert asyncio.run(listen(backend, exchange())).code == "upstream_invalid_response"
    with closing(sqlite3.connect(file)) as database, database:
        database.execute("DELETE FROM calls")
    removed = asyncio.run(listen(backend, exchange()))
    assert removed.error is not None
    assert "has no complete answer to this request: it was removed;" in removed.error.message
    file.unlink()
    assert asyncio.run(listen(backend, exchange())).code == "upstream_invalid_response"


@pytest.mark.virtual_clock
async def test_the_pace_is_the_recorded_one_or_none() -> None:
    loop = asyncio.get_running_loop()
    for paced, times in ((True, [0.5, 2.0]), (False, [0.0, 0.0])):
        started, played = loop.time(), ReplayedEvents(ANSWER, paced=paced)
        batches = []
        while not played.exhausted:
            batches.append((await played.next_batch(), round(loop.time() - started, 6)))
        assert batches == [([e for t, e in ANSWER if t == 0.5], times[0]), ([e for t, e in ANSWER if t == 2], times[1])]
        assert await played.next_batch() == ()


@pytest.mark.parametrize("count", [0, 1, 2], ids=["before", "during", "after the first event"])
async def test_a_replay_may_be_left_at_any_time(tmp_path: Path, count: int) -> None:
    file = record(tmp_path / "a.sqlite", exchange(), ANSWER)
    backend = ReplayBackend(TargetSpec(label="m/0", speaks="replay", file=file))
    async with backend.open(exchange()) as events:
        for _ in range(count):
            await events.next_batch()
    assert (await listen(backend, exchange())).events == PLAYED
