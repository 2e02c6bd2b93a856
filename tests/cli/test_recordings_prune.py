"""``gateway recordings prune`` and ``gateway recordings export``."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import bound_by_modes, command
from tests.journeys.process import environment, serving
from tests.support.serving import WAIT_SECONDS, eventually, gateway

FILES = {
    "policies/full.yaml": "record: full\n",
    "hello.yaml": "[Hello ada@example.org, {finish: stop}]\n",
}
CONFIG = """\
recordings: {path: calls.sqlite}
redact: [email]
models:
  talk: {template: chat, policy: full, targets: [{speaks: scripted, script: hello.yaml}]}
  other: {template: chat, policy: full, targets: [{speaks: scripted, script: hello.yaml}]}
"""
CALLS = ("talk", "monday", 3), ("other", "monday", 2), ("talk", "tuesday", 5)
"""(model, run, number) of the recorded calls."""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with the recordings of ten calls."""
    folder = tmp_path_factory.mktemp("recorded")
    with gateway(folder, CONFIG, files=FILES) as served:
        for model, run, number in CALLS:
            for _ in range(number):
                body = {"model": model, "messages": [{"role": "user", "content": "I am bob@example.org"}]}
                answer = served.http.post("/v1/chat/completions", json=body, headers={"x-gateway-run": run})
                assert answer.status_code == 200
    return folder


@pytest.fixture
def folder(recorded: Path, tmp_path: Path) -> Path:
    """A folder with a copy of the file, in which the calls of monday began two hours ago."""
    for name in ("gateway.yaml", "calls.sqlite", *FILES):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes((recorded / name).read_bytes())
    with closing(sqlite3.connect(tmp_path / "calls.sqlite")) as database, database:
        database.execute("UPDATE calls SET time = time - 7200 WHERE run = 'monday'")
    return tmp_path


def exported(folder: Path, *options: str) -> list[dict[str, Any]]:
    ended = command(folder, "recordings", "export", *options)
    assert (ended.returncode, ended.stderr) == (0, b"")
    return [json.loads(line) for line in ended.stdout.splitlines()]


def test_an_exported_call_has_the_columns_of_both_tables(folder: Path) -> None:
    call = exported(folder)[0]
    (exchange,) = call["exchanges"]
    with closing(sqlite3.connect(folder / "calls.sqlite")) as database:
        for table, found in (("calls", call), ("exchanges", exchange)):
            columns = {name for (name,) in database.execute(f"SELECT name FROM pragma_table_info('{table}')")}
            assert found.keys() - {"exchanges"} == columns
    assert call["notices"] == []
    assert [name for _, name, _ in exchange["events"]] == ["Begun", "Delta", "Finish"]


def test_redacted_texts_are_exported_as_they_are_recorded(folder: Path) -> None:
    text = command(folder, "recordings", "export").stdout
    assert b"@example.org" not in text
    assert text.count(b"I am [redacted]") >= 10


SELECTED = {
    "all": ((), 10),
    "a run": (("--run", "monday"), 5),
    "a model": (("--model", "talk"), 8),
    "a model of a run": (("--model", "talk", "--run", "monday"), 3),
    "the last hour": (("--since", "1h"), 5),
    "a file": (("--file", "calls.sqlite", "--config", "none.yaml"), 10),
    "a key": (("--key", "laptop"), 0),
}


@pytest.mark.parametrize("case", SELECTED)
def test_calls_are_selected_and_the_earliest_is_first(case: str, folder: Path) -> None:
    options, number = SELECTED[case]
    ids = [call["id"] for call in exported(folder, *options)]
    assert (len(ids), ids) == (number, sorted(ids))


def test_a_reader_may_end_before_the_export(folder: Path) -> None:
    line = f"'{sys.executable}' -m gateway recordings export | head -n 1"
    ended = subprocess.run(["sh", "-c", line], cwd=folder, env=environment(), capture_output=True, check=False)
    assert (ended.returncode, len(ended.stdout.splitlines()), ended.stderr) == (0, 1, b"")


PRUNED = {
    "a run": (("--run", "monday"), 5),
    "old calls": (("--older-than", "1h"), 5),
    "old calls of a model": (("--older-than", "1h", "--model", "other"), 2),
    "none": (("--older-than", "24h"), 0),
    "everything": (("--older-than", "0s"), 10),
    "all but a size": (("--max-size", "1B"), 10),
    "less than a size": (("--max-size", "1GiB"), 0),
}


@pytest.mark.parametrize("case", PRUNED)
def test_the_calls_are_counted_and_then_removed_with_their_exchanges(case: str, folder: Path) -> None:
    options, number = PRUNED[case]
    before = (folder / "calls.sqlite").read_bytes()
    counted = command(folder, "recordings", "prune", *options, "--dry-run").stdout.decode()
    assert counted == f"{folder}/calls.sqlite: {number} of 10 calls would be removed\n"
    assert (folder / "calls.sqlite").read_bytes() == before
    ended = command(folder, "recordings", "prune", *options)
    assert (ended.stdout.decode(), ended.stderr) == (f"{folder}/calls.sqlite: {number} of 10 calls removed\n", b"")
    left = exported(folder)
    assert len(left) == 10 - number
    with closing(sqlite3.connect(folder / "calls.sqlite")) as database:
        assert database.execute("SELECT count(*) FROM exchanges").fetchone() == (10 - number,)
        assert database.execute("PRAGMA freelist_count").fetchone() == (0,)


def test_the_oldest_calls_are_removed_until_the_data_fit(folder: Path) -> None:
    with closing(sqlite3.connect(folder / "calls.sqlite")) as database, database:
        columns = "call, time, endpoint, prompts, events"
        for _ in range(6):
            database.execute("INSERT INTO calls (time, run) SELECT time, run FROM calls")
        database.execute(
            f"INSERT INTO exchanges ({columns}) SELECT id, time, 'chat', hex(zeroblob(2000)), '[]' FROM calls"
        )
    size, calls = (folder / "calls.sqlite").stat().st_size, len(exported(folder))
    assert command(folder, "recordings", "prune", "--max-size", f"{size // 2}B").returncode == 0
    left = [call["id"] for call in exported(folder)]
    assert 0 < len(left) < calls
    assert left == list(range(calls - len(left) + 1, calls + 1))
    assert (folder / "calls.sqlite").stat().st_size <= size // 2


WRONG = {
    "nothing selected": ((), "error: name the calls to remove: --older-than, --run, --model, --key or --max-size\n"),
    "no duration": (("--older-than", "30d"), "must be a duration such as 250ms, 2s, 10m or 1h, not the text"),
    "no size": (("--max-size", "half"), "must be a size such as 64KiB or 4MiB"),
    "no file": (("--run", "a", "--file", "none.sqlite"), "error: none.sqlite: no such file\n"),
    "another file": (("--run", "a", "--file", "gateway.yaml"), "gateway.yaml: file is not a database"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_command_line_removes_nothing(case: str, folder: Path) -> None:
    arguments, message = WRONG[case]
    ended = command(folder, "recordings", "prune", *arguments)
    assert (ended.returncode, message in ended.stderr.decode()) == (2, True)
    assert len(exported(folder)) == 10


def test_a_file_that_the_user_may_only_read_is_named(folder: Path) -> None:
    (folder / "calls.sqlite").chmod(0o444)
    ended = bound_by_modes(folder, "recordings", "prune", "--file", "calls.sqlite", "--run", "monday")
    assert (ended.returncode, ended.stderr) == (2, b"error: calls.sqlite cannot be written: Permission denied\n")


def test_the_calls_of_a_batch_are_found_by_their_ids(folder: Path) -> None:
    """Calls that match and calls that do not match alternate, over several batches."""
    with closing(sqlite3.connect(folder / "calls.sqlite")) as database, database:
        for _ in range(5):
            database.execute("INSERT INTO calls (time, run, model) SELECT time, run, model FROM calls")
    ended = command(folder, "recordings", "prune", "--model", "other")
    assert ended.stdout == f"{folder}/calls.sqlite: 64 of 320 calls removed\n".encode()
    assert {call["model"] for call in exported(folder)} == {"talk"}


def test_calls_that_are_added_meanwhile_are_kept(folder: Path) -> None:
    """Each batch of removed calls adds as many, as a busy gateway does."""
    with closing(sqlite3.connect(folder / "calls.sqlite")) as database, database:
        for _ in range(5):
            database.execute("INSERT INTO calls (time, run) SELECT time, 'monday' FROM calls")
        add = "INSERT INTO calls (time, run) VALUES (old.time, 'monday')"
        database.execute(f"CREATE TRIGGER busy AFTER DELETE ON calls BEGIN {add}; END")
    ended = command(folder, "recordings", "prune", "--run", "monday")
    assert ended.stdout == f"{folder}/calls.sqlite: 315 of 320 calls removed\n".encode()
    assert len(exported(folder)) == 320


def test_a_gateway_that_serves_drops_no_recording_meanwhile(folder: Path) -> None:
    with closing(sqlite3.connect(folder / "calls.sqlite")) as database, database:
        database.execute("PRAGMA journal_mode = WAL")
        for _ in range(7):
            database.execute("INSERT INTO calls (time, run) SELECT time - 7200, 'old' FROM calls")
    calls = len(exported(folder))
    done, asked = threading.Event(), 0
    files = {name: (folder / name).read_text() for name in ("gateway.yaml", *FILES)}
    with serving(folder, files) as served:

        def prune() -> None:
            ended.append(command(folder, "recordings", "prune", "--run", "old"))
            done.set()

        ended: list[subprocess.CompletedProcess[bytes]] = []
        assert served.call_model("talk") == "Hello ada@example.org"
        assert eventually(lambda: len(exported(folder)) == calls + 1)
        thread = threading.Thread(target=prune)
        thread.start()
        while not done.is_set():
            assert served.call_model("talk") == "Hello ada@example.org"
            asked += 1
        thread.join(WAIT_SECONDS)
        assert b"is open in another process, so its free space takes the next calls" in ended[0].stderr
        assert eventually(lambda: len(exported(folder)) == 10 + 1 + asked), (asked, served.log)
        metrics = served.http.get("/metrics").text
        dropped = [line for line in metrics.splitlines() if line.startswith("gateway_recordings_dropped_total{")]
        assert [line for line in dropped if not line.endswith(" 0.0")] == []
        assert len(dropped) == 3
    assert asked > 0
