"""``gateway recordings merge``: files of recordings become one file."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from gateway.core.errors import InvalidValue
from gateway.storage.merging import StoredCall, add_calls, merge_recordings, open_to_add, stored_calls
from gateway.storage.recordings import open_recording
from gateway.storage.sqlite_file import close_database
from tests.cli.command import command
from tests.support.serving import write_files

CONFIG = """\
models:
  talk: {template: sft-demo, targets: [{speaks: scripted, script: hello.yaml}]}
  media: {template: chat, targets: [{speaks: scripted, script: hello.yaml}]}
"""
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
"""A part of a message, as a client sends it."""


def record(folder: Path, run: str, *names: str) -> Path:
    """Send rows with these names, and return the file with their recordings. A run goes on if it exists."""
    content = {"talk": "hi \x00\ud7ff 你好", "media": [{"type": "text", "text": "look"}, IMAGE]}
    rows = [{"custom_id": name, "model": name.split("-")[0]} for name in names]
    lines = [json.dumps({**row, "messages": [{"role": "user", "content": content[row["model"]]}]}) for row in rows]
    files = {"gateway.yaml": CONFIG, "hello.yaml": "[Hel, lo, {finish: stop}]\n", "data.jsonl": "\n".join(lines)}
    write_files(folder, files)
    ended = command(folder, "run", "data.jsonl", "--out", f"{run}.jsonl", "--allow-changes")
    assert ended.returncode == 0, ended.stderr.decode()
    return folder / f"{run}.recording.sqlite"


def merge(folder: Path, *paths: Path | str) -> str:
    ended = command(folder, "recordings", "merge", *map(str, paths))
    assert ended.returncode == 0, ended.stderr.decode()
    return ended.stdout.decode()


def stored(*paths: Path) -> list[tuple[object, ...]]:
    """The calls of files with their exchanges, without numbers, sorted."""
    found = []
    for path in paths:
        with closing(open_recording(path)) as file:
            for call in file.execute("SELECT * FROM calls"):
                found.append((tuple(call)[1:], *[tuple(one)[2:] for one in file.exchanges_of(call["id"])]))
    return sorted(found, key=repr)


def test_each_call_is_in_the_merged_file_once_and_unchanged(tmp_path: Path) -> None:
    first, second = record(tmp_path, "a", "talk-1", "media-1"), record(tmp_path, "b", "talk-2", "media-2")
    before = first.read_bytes(), second.read_bytes()
    assert merge(tmp_path, "all.sqlite", first, second, second) == "all.sqlite has 8 calls\n"
    assert stored(tmp_path / "all.sqlite") == stored(first, second)
    assert merge(tmp_path, "all.sqlite", second, "all.sqlite") == "all.sqlite has 8 calls\n"
    assert stored(tmp_path / "all.sqlite") == stored(first, second)
    assert before == (first.read_bytes(), second.read_bytes())
    assert sorted(path.name for path in tmp_path.glob("all*")) == ["all.sqlite"]
    assert (tmp_path / "all.sqlite").stat().st_mode & 0o777 == 0o600


def test_calls_of_one_run_are_joined_in_the_order_of_their_ends(tmp_path: Path) -> None:
    """The first file has the first and the third call of the run; the last call of a row counts."""
    one, other = tmp_path / "one", tmp_path / "other"
    record(one, "a", "talk-1")
    second = record(other, "a", "talk-2", "talk-1")
    first = record(one, "a", "talk-3")
    merge(tmp_path, "all.sqlite", second, first)
    with closing(open_recording(tmp_path / "all.sqlite")) as file:
        ends = [time for (time,) in file.execute("SELECT time + duration FROM calls ORDER BY id")]
        rows = [row for (row,) in file.execute("SELECT row FROM calls WHERE endpoint = 'chat' ORDER BY id")]
        [run] = file.runs(None, 0, 9)
    assert ends == sorted(ends)
    assert sorted(rows) == ["talk-1", "talk-1", "talk-2", "talk-3"]
    assert (rows[0], rows[-1]) == ("talk-1", "talk-3")
    assert (run["run"], run["calls"]) == ("a", 7)
    report = json.loads(command(tmp_path, "report", "all.sqlite", "--json").stdout)
    assert report["rows"] == 3


def test_calls_with_one_request_id_are_different_calls(tmp_path: Path) -> None:
    first, second = record(tmp_path, "a", "talk-1"), record(tmp_path, "b", "talk-2")
    for path in (first, second):
        with closing(sqlite3.connect(path)) as database, database:
            database.execute("UPDATE calls SET request_id = 'mine'")
    assert merge(tmp_path, "all.sqlite", first, second) == "all.sqlite has 4 calls\n"


def test_a_file_without_columns_of_a_later_gateway_is_merged(tmp_path: Path) -> None:
    first, second = record(tmp_path, "a", "talk-1"), record(tmp_path, "b", "talk-2")
    with closing(sqlite3.connect(first)) as database, database:
        database.execute("ALTER TABLE calls DROP COLUMN asked")
    assert merge(tmp_path, "all.sqlite", first, second) == "all.sqlite has 4 calls\n"
    with closing(open_recording(tmp_path / "all.sqlite")) as file:
        asked = [(call["run"], call["asked"] is None) for call in file.execute("SELECT run, asked FROM calls")]
    assert sorted(set(asked)) == [("a", True), ("b", False)]


def test_a_file_that_a_gateway_writes_can_be_read_and_not_be_replaced(tmp_path: Path) -> None:
    first, second = record(tmp_path, "a", "talk-1"), record(tmp_path, "b", "talk-2")
    with closing(sqlite3.connect(second)) as open_file:
        open_file.execute("PRAGMA journal_mode = WAL")
        with open_file:
            open_file.execute("UPDATE calls SET version = 'new'")
        assert merge(tmp_path, "all.sqlite", first, second) == "all.sqlite has 4 calls\n"
        refused = command(tmp_path, "recordings", "merge", str(second), str(first))
        assert refused.returncode == 2
        assert refused.stderr == (
            f"error: {second} is open in another process, or was not closed; merge into a new file\n".encode()
        )
    with closing(open_recording(tmp_path / "all.sqlite")) as file:
        assert file.execute("SELECT count(*) FROM calls WHERE version = 'new'").fetchone()[0] == 2


WRONG = {
    "no such file": (("all.sqlite", "none.sqlite"), "none.sqlite: unable to open database file"),
    "no file": (("all.sqlite",), "missing argument 'IN…' (the files of recordings to add)"),
    "another file": (("all.sqlite", "data.jsonl"), "data.jsonl: file is not a database"),
    "another file as OUT": (("data.jsonl", "a.recording.sqlite"), "data.jsonl: file is not a database"),
    "another version": (("all.sqlite", "old.sqlite"), "old.sqlite: this file has recordings of version 3"),
    "a damaged file": (("all.sqlite", "a.recording.sqlite", "damaged.sqlite"), "damaged.sqlite: database disk image"),
    "no folder": (("none/all.sqlite", "a.recording.sqlite"), "none/all.sqlite cannot be written: No such file"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_file_is_named_and_nothing_is_written(case: str, tmp_path: Path) -> None:
    arguments, message = WRONG[case]
    recorded = record(tmp_path, "a", *[f"talk-{number}" for number in range(50)])
    (tmp_path / "old.sqlite").write_bytes(recorded.read_bytes())
    with closing(sqlite3.connect(tmp_path / "old.sqlite")) as database:
        database.execute("PRAGMA user_version = 3")
    whole = recorded.read_bytes()
    (tmp_path / "damaged.sqlite").write_bytes(whole[:16384] + bytes(len(whole) - 16384))
    before = {path.name: path.read_bytes() for path in tmp_path.glob("*.*")}
    ended = command(tmp_path, "recordings", "merge", *arguments)
    assert (ended.returncode, ended.stdout) == (2, b"")
    assert message in ended.stderr.decode()
    assert {path.name: path.read_bytes() for path in tmp_path.glob("*.*")} == before


def test_calls_that_are_added_to_the_merged_file_meanwhile_are_not_lost(tmp_path: Path) -> None:
    first, second = record(tmp_path, "a", "talk-1"), record(tmp_path, "b", "talk-2")
    out, watched = tmp_path / "all.sqlite", record(tmp_path, "c", "talk-3")
    first.rename(out)

    @contextmanager
    def watch(calls: Iterator[StoredCall]) -> Iterator[Iterator[StoredCall]]:
        with closing(open_recording(watched)) as file:
            database = open_to_add(out)
            add_calls(database, stored_calls(file))
            close_database(database)
        yield calls

    with pytest.raises(InvalidValue, match="was written by another process meanwhile"):
        merge_recordings(out, [second], watch)
    assert set(map(repr, stored(watched))) < set(map(repr, stored(out)))
    assert list(tmp_path.glob("*.partial")) == []


def test_a_merge_on_a_terminal_shows_its_progress(tmp_path: Path) -> None:
    recorded = record(tmp_path, "a", "talk-1")
    ended = command(tmp_path, "recordings", "merge", "all.sqlite", str(recorded), terminal=True)
    assert b"calls" in ended.stderr
