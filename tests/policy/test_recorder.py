"""The writer of recordings: several writers of one file, retention, size."""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from gateway.assembly import assemble, open_shared_resources
from gateway.config.snapshot import RecordingsSpec, ServerSpec, Snapshot, TargetSpec
from gateway.core.call import Call
from gateway.core.exchange import RecordedExchange
from gateway.storage.recorder import (
    MAX_WAITING_SIZE,
    SCHEMA,
    SCHEMA_VERSION,
    CallFacts,
    Recorder,
    asked_json,
)
from gateway.storage.recordings import open_recording
from gateway.storage.sqlite_file import open_database
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.record import Record
from gateway.wire.redaction import Redactor
from metatemplate.values.dialogue import Dialogue, Message
from metatemplate.values.events import Delta, Event, Finish
from tests.policy.responses import exchange

RECORD = Record(
    request_id="req-1", endpoint="chat", model="m", outcome="ok", status=200, stream=False, duration=1.0, target="m/0"
)
SPEC = RecordingsSpec(path=Path("unused"))


def write(recorder: Recorder, names: Sequence[str], text: str = "hello", spec: RecordingsSpec = SPEC) -> None:
    for name in names:
        call = recorder.begin("full", CallFacts("policy"), spec)
        call.exchanges.append(RecordedExchange(exchange(), 1000.0, [(0.5, Delta(0, text))]))
        call.end(replace(RECORD, request_id=name))


def ids(path: Path) -> list[str]:
    database = sqlite3.connect(path)
    (orphans,) = database.execute("SELECT count(*) FROM exchanges WHERE call NOT IN (SELECT id FROM calls)").fetchone()
    found = [name for (name,) in database.execute("SELECT request_id FROM calls ORDER BY id")]
    database.close()
    assert orphans == 0
    return found


TARGETS: dict[str, tuple[dict[str, Any], dict[str, Any] | None]] = {
    "a folder": ({"speaks": "embedded", "path": Path("/a/folder")}, {"model": None, "file": "folder"}),
    "a script": ({"speaks": "scripted", "script": Path("/a/one.yaml")}, {"model": None, "file": "one.yaml"}),
    "a server": ({"speaks": "completions", "url": "http://a/v1"}, {"model": "there", "file": None}),
    "token ids": ({"speaks": "completions", "prompt": "ids"}, {"model": "there", "file": None, "prompt": "ids"}),
    "a provider": ({"speaks": "litellm"}, {"model": "there", "file": None}),
    "a recording": ({"speaks": "replay", "file": Path("/a/calls.sqlite")}, None),
}


@pytest.mark.parametrize("case", TARGETS)
def test_the_settings_of_a_target_name_its_model_or_its_file(case: str, tmp_path: Path) -> None:
    fields, expected = TARGETS[case]
    recorder = Recorder(tmp_path / "calls.sqlite", pytest.fail)
    target = TargetSpec(label="m/0", model="there", **fields)
    recorder.begin("full", CallFacts("policy", targets=[target]), SPEC).end(RECORD)
    recorder.close()
    with closing(sqlite3.connect(tmp_path / "calls.sqlite")) as database:
        (found,) = database.execute("SELECT target_settings FROM calls").fetchone()
    other = {"speaks": target.speaks, "engine": "openai", "adds_bos": None, "prompt": "text", "options": None}
    assert (found and json.loads(found)) == (expected and other | expected)


def test_a_file_knows_the_first_hundred_values_of_a_column(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "calls.sqlite", pytest.fail)
    for key in ["", *[f"key-{number:03}" for number in range(102)], "key-000"]:
        recorder.begin("full", CallFacts("policy"), SPEC).end(replace(RECORD, key=key))
    recorder.close()
    with closing(open_recording(tmp_path / "calls.sqlite")) as opened:
        assert opened.known_values("key") == [f"key-{number:03}" for number in range(100)]
        assert opened.known_values("run") == []


def test_several_writers_of_one_file_lose_nothing(tmp_path: Path) -> None:
    path, dropped = tmp_path / "calls.sqlite", list[str]()
    writers = [Recorder(path, dropped.append) for _ in range(3)]
    names = [[f"{number}-{call}" for call in range(40)] for number in range(3)]
    for recorder, own in zip(writers, names, strict=True):
        write(recorder, own)
    for recorder in writers:
        recorder.close()
    with closing(open_recording(path)):
        assert list(tmp_path.iterdir()) == [path], "a closed file is one file, also while it is read"
    assert sorted(ids(path)) == sorted([name for own in names for name in own])
    assert dropped == []


def test_recordings_that_wait_for_others_are_written_soon(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "calls.sqlite", pytest.fail)
    write(recorder, ["a", "b"])
    recorder.written.result(30)
    assert ids(tmp_path / "calls.sqlite") == ["a", "b"]
    recorder.close()


def test_a_recording_that_cannot_be_written_takes_no_other_along(tmp_path: Path) -> None:
    path, dropped = tmp_path / "calls.sqlite", list[str]()
    recorder = Recorder(path, dropped.append)
    write(recorder, ["a", "no Unicode: \ud800", "b"])
    recorder.close()
    assert ids(path) == ["a", "b"]
    assert dropped == ["failed"]


def test_several_writers_may_create_one_file_at_the_same_time(tmp_path: Path) -> None:
    together = Barrier(4)

    def create(path: Path) -> None:
        together.wait(30)
        open_database(path, SCHEMA, SCHEMA_VERSION, 30.0).close()

    with ThreadPoolExecutor(4) as threads:
        for number in range(40):
            list(threads.map(create, [tmp_path / f"{number}.sqlite"] * 4))


def test_a_file_with_the_tables_of_another_version_is_not_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, dropped = tmp_path / "calls.sqlite", list[str]()
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE calls (id INTEGER PRIMARY KEY)")
    other.close()
    recorder = Recorder(path, dropped.append)
    write(recorder, ["a", "b"])
    recorder.close()
    assert dropped == ["failed", "failed"]
    (message,) = caplog.messages
    assert message == (
        "recordings are dropped, because calls.sqlite cannot be written: "
        "the file has the tables of another version; move the file away"
    )


def test_the_answer_of_the_client_is_recorded_beside_the_events_of_the_target(tmp_path: Path) -> None:
    path = tmp_path / "calls.sqlite"
    recorder = Recorder(path, lambda reason: None)
    call = recorder.begin("full", CallFacts("policy", "p1", "t1", "run-1", "row-1"), SPEC)
    delivered: list[Event] = [Delta(0, "Hel"), Delta(0, "lo"), Finish(0, "stop"), Delta(1, "cut")]
    raw: list[tuple[float, Event]] = [(0.5, Delta(0, "Hello<|im_end|>", extras={"prompt_token_ids": [1, 2]}))]
    call.exchanges.append(RecordedExchange(exchange(), 1000.0, raw, delivered))
    call.notices = ["split_calls: 2"]
    call.end(RECORD)
    recorder.close()
    with closing(sqlite3.connect(path)) as database:
        columns = "policy_sha256, template_sha256, run, row, notices"
        assert database.execute(f"SELECT {columns} FROM calls").fetchall() == [
            ("p1", "t1", "run-1", "row-1", '["split_calls: 2"]')
        ]
        ((answer, ids),) = database.execute("SELECT answer, prompt_ids FROM exchanges").fetchall()
    assert json.loads(answer) == [
        {"index": 0, "text": "Hello", "finish_reason": "stop"},
        {"index": 1, "text": "cut", "finish_reason": None},
    ]
    assert json.loads(ids) == [[1, 2]]


def test_the_hash_of_a_request_leaves_out_its_parameters_and_its_model() -> None:
    one = Call("chat", "a", "r1", raw_prompts=("hi",), params={"temperature": 0, "tools": [{"a": 1}]})
    assert asked_json(one) == asked_json(replace(one, model="b", params={"seed": 1, "tools": [{"a": 1}]}))
    assert asked_json(one) != asked_json(replace(one, params={}))
    assert asked_json(one) != asked_json(replace(one, raw_prompts=("ho",)))


def test_the_order_of_the_keys_of_a_message_does_not_change_the_hash() -> None:
    keys = {"role": "user", "content": "hi"}
    orders = [keys, dict(reversed(keys.items()))]
    first, second = (Call("chat", "a", "r", dialogue=Dialogue((Message("user", "hi", raw=one),))) for one in orders)
    assert asked_json(first) == asked_json(second) == '{"messages":[{"content":"hi","role":"user"}]}'


def test_old_recordings_are_removed_with_their_exchanges(tmp_path: Path) -> None:
    path, seconds = tmp_path / "calls.sqlite", [1000.0]
    recorder = Recorder(path, lambda reason: None, lambda: seconds[0])
    write(recorder, ["old"], spec=replace(SPEC, retention=60))
    recorder.close()
    recorder = Recorder(path, lambda reason: None, lambda: 1061.0)
    write(recorder, ["new"], spec=replace(SPEC, retention=60))
    recorder.close()
    assert ids(path) == ["new"]


def test_the_oldest_recordings_are_removed_at_the_size(tmp_path: Path) -> None:
    path = tmp_path / "calls.sqlite"
    recorder = Recorder(path, lambda reason: None)
    write(recorder, [f"{number:03}" for number in range(60)], "x" * 8000, replace(SPEC, max_size=256 * 1024))
    recorder.close()
    left = ids(path)
    assert 10 <= len(left) < 40
    assert left == [f"{number:03}" for number in range(60)][-len(left) :]


def test_a_recording_that_finds_the_queue_full_or_closed_is_dropped(tmp_path: Path) -> None:
    dropped: list[str] = []
    recorder = Recorder(tmp_path / "calls.sqlite", dropped.append)
    write(recorder, ["large"], "x" * MAX_WAITING_SIZE)
    recorder.close()
    write(recorder, ["late"])
    assert dropped == ["queue_full", "failed"]


def test_a_recording_is_redacted_before_it_is_hashed_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "calls.sqlite"
    for redactor in (Redactor(["email"]), Redactor(["email", "/(?:a|aa)+$/"], seconds=0.02)):
        recorder = Recorder(path, lambda reason: None)
        asked = Call(endpoint="chat", model="m", request_id="r", raw_prompts=("mail a@b.de",))
        call = recorder.begin("full", CallFacts("policy", row="row of a@b.de", call=asked), SPEC, redactor)
        sent = exchange(prompts=("mail a@b.de " + "a" * 80 + "b",), params={"user": "a@b.de"}, stops=("a@b.de",))
        moments: list[tuple[float, Event]] = [(0.1, Delta(0, "to a@")), (0.2, Delta(0, "b.de"))]
        call.exchanges.append(RecordedExchange(sent, 1000.0, moments))
        call.end(RECORD)
        recorder.close()
    with closing(sqlite3.connect(path)) as database:
        calls = database.execute("SELECT mode, asked, row, request_sha256 FROM calls ORDER BY id").fetchall()
        columns = "prompts, params, stops, events, answer_sha256, redacted"
        full, metadata = database.execute(f"SELECT {columns} FROM exchanges ORDER BY id").fetchall()
    row = ("row of [redacted]", None)
    texts = ("full", '{"prompts":["mail [redacted]"]}'), ("metadata", None)
    assert calls == [(*one, *row) for one in texts], "the second pattern takes too long"
    assert json.loads(full[3]) == [[0.1, "Delta", {"index": 0, "text": "to [redacted]"}], [0.2, "Delta", {"index": 0}]]
    assert full[4:] == (hashlib.sha256(b"to [redacted]").hexdigest(), 4)
    assert "a@b" not in str((full, metadata))
    assert (metadata[0], metadata[5]) == (None, None)
    assert b"a@b" not in path.read_bytes()


def test_a_reload_keeps_the_recorder_of_a_file(tmp_path: Path) -> None:
    shared, recordings = open_shared_resources(Metrics()), RecordingsSpec(path=tmp_path / "calls.sqlite")
    first, again = [assemble(Snapshot(ServerSpec(), {}, recordings=recordings), shared).recorder for _ in range(2)]
    assert first is not None
    assert again is first
    assert assemble(Snapshot(ServerSpec(), {}), shared).recorder is None


EARLIER = re.sub(r"    (queue_wait|upstream_first|upstream|client_wait|overhead) REAL,\n", "", SCHEMA)
"""The tables of a gateway that did not record the times of a call."""


def test_a_file_of_an_earlier_gateway_keeps_its_calls_and_gets_the_columns_of_times(tmp_path: Path) -> None:
    path, together = tmp_path / "calls.sqlite", Barrier(4)
    with closing(open_database(path, EARLIER, SCHEMA_VERSION, 30.0)) as database, database:
        database.execute("INSERT INTO calls (request_id, time, duration) VALUES ('earlier', 1e10, 2.0)")
    with closing(open_recording(path)) as file:
        assert [dict(one)["request_id"] for one in file.find_calls({}, last=9)] == ["earlier"]

    def add(name: str) -> None:
        together.wait(30)
        recorder = Recorder(path, pytest.fail)
        recorder.begin("full", CallFacts("policy"), SPEC).end(replace(RECORD, request_id=name, upstream=0.25))
        recorder.close()

    with ThreadPoolExecutor(4) as threads:  # as the workers of a gateway after its upgrade
        list(threads.map(add, "abcd"))
    with closing(open_recording(path)) as file:
        times = file.execute("SELECT request_id, queue_wait, upstream, overhead FROM calls ORDER BY request_id")
        found = [tuple(row) for row in times]
    assert found == [*[(name, None, 0.25, 0.0) for name in "abcd"], ("earlier", None, None, None)]
    open_database(path, EARLIER, SCHEMA_VERSION, 30.0).close()  # the earlier gateway again, after a downgrade


def test_a_column_that_somebody_has_added_stays_empty(tmp_path: Path) -> None:
    path = tmp_path / "calls.sqlite"
    open_database(path, SCHEMA, SCHEMA_VERSION, 30.0).close()
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("ALTER TABLE calls ADD COLUMN note TEXT")
    recorder = Recorder(path, lambda reason: None)
    write(recorder, ["new"])
    recorder.close()
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("SELECT request_id, note FROM calls").fetchall() == [("new", None)]
