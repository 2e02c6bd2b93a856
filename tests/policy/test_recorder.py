"""The writer of recordings: several writers of one file, retention, size."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from threading import Barrier

import pytest

from gateway.assembly import assemble, open_shared_resources
from gateway.config.snapshot import RecordingsSpec, ServerSpec, Snapshot
from gateway.core.events import Delta, Event
from gateway.core.exchange import RecordedExchange
from gateway.storage.recorder import MAX_WAITING_SIZE, SCHEMA, SCHEMA_VERSION, Recorder
from gateway.storage.sqlite_file import open_database
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.record import Record
from gateway.wire.redaction import Redactor
from tests.policy.responses import exchange

RECORD = Record(
    request_id="req-1", endpoint="chat", model="m", outcome="ok", status=200, stream=False, duration=1.0, target="m/0"
)
SPEC = RecordingsSpec(path=Path("unused"))


def write(recorder: Recorder, names: Sequence[str], text: str = "hello", spec: RecordingsSpec = SPEC) -> None:
    for name in names:
        call = recorder.begin("full", "policy", spec)
        call.exchanges.append(RecordedExchange(exchange(), 1000.0, [(0.5, Delta(0, text))]))
        call.end(replace(RECORD, request_id=name))


def ids(path: Path) -> list[str]:
    database = sqlite3.connect(path)
    (orphans,) = database.execute("SELECT count(*) FROM exchanges WHERE call NOT IN (SELECT id FROM calls)").fetchone()
    found = [name for (name,) in database.execute("SELECT request_id FROM calls ORDER BY id")]
    database.close()
    assert orphans == 0
    return found


def test_several_writers_of_one_file_lose_nothing(tmp_path: Path) -> None:
    path, dropped = tmp_path / "calls.sqlite", list[str]()
    writers = [Recorder(path, dropped.append) for _ in range(3)]
    names = [[f"{number}-{call}" for call in range(40)] for number in range(3)]
    for recorder, own in zip(writers, names, strict=True):
        write(recorder, own)
    for recorder in writers:
        recorder.close()
    assert sorted(ids(path)) == sorted([name for own in names for name in own])
    assert dropped == []


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
    for redactor in (Redactor(["email"]), Redactor(["/(?:a|aa)+$/"], seconds=0.02)):
        recorder = Recorder(path, lambda reason: None)
        call = recorder.begin("full", "policy", SPEC, redactor)
        sent = exchange(prompts=("mail a@b.de " + "a" * 80 + "b",), params={"user": "a@b.de"}, stops=("a@b.de",))
        moments: list[tuple[float, Event]] = [(0.1, Delta(0, "to a@")), (0.2, Delta(0, "b.de"))]
        call.exchanges.append(RecordedExchange(sent, 1000.0, moments))
        call.end(RECORD)
        recorder.close()
    with closing(sqlite3.connect(path)) as database:
        calls = [mode for (mode,) in database.execute("SELECT mode FROM calls ORDER BY id")]
        columns = "prompts, params, stops, events, answer_sha256, redacted"
        full, metadata = database.execute(f"SELECT {columns} FROM exchanges ORDER BY id").fetchall()
    assert calls == ["full", "metadata"], "the second pattern takes too long"
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
