"""``gateway run --shard`` and ``--merge``: which rows a shard has, and which shards are joined."""

from __future__ import annotations

import fcntl
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.cli.command import bound_by_modes, command
from tests.support.serving import write_files

CONFIG = """\
models:
  talk: {template: sft-demo, targets: [{speaks: scripted, script: hello.yaml}]}
  broken: {template: sft-demo, targets: [{speaks: scripted, script: error.yaml}]}
"""
SCRIPTS = {"hello.yaml": "[Hello, {finish: stop}]\n", "error.yaml": "[{error: upstream_error}]\n"}
ROWS = 10


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = [{"custom_id": f"row {n}", "messages": [{"role": "user", "content": f"hi {n}"}]} for n in range(ROWS)]
    data = "\n\n".join(map(json.dumps, rows))  # blank lines are no rows
    write_files(tmp_path, {"gateway.yaml": CONFIG, "data.jsonl": data, **SCRIPTS})
    return tmp_path


def run(folder: Path, *options: str, out: str = "out.jsonl", model: str = "talk") -> CompletedProcess[bytes]:
    return command(folder, "run", "data.jsonl", "--model", model, "--out", out, "--retries", "0", *options)


def send(folder: Path, *shards: str, model: str = "talk") -> None:
    for shard in shards:
        assert run(folder, "--shard", shard, model=model).returncode == (model == "broken")


def ids(path: Path) -> list[str]:
    return [json.loads(line)["custom_id"] for line in path.read_bytes().splitlines()]


def stored(path: Path) -> list[tuple[str, str]]:
    with closing(sqlite3.connect(path)) as database:
        return sorted(database.execute("SELECT row, run FROM calls WHERE endpoint = 'chat'").fetchall())


def test_a_shard_has_each_nth_row_and_a_merge_the_order_of_the_data(folder: Path) -> None:
    send(folder, "2/3", "0/3", "1/3")
    shards = [sorted(ids(folder / f"out.{number}-of-3.jsonl")) for number in range(3)]
    assert shards == [[f"row {n}" for n in range(number, ROWS, 3)] for number in range(3)]
    merged = run(folder, "--merge", "3")
    assert merged.returncode == 0
    printed = "10 of 10 rows answered, 0 failed: out.jsonl, out.manifest.json, out.recording.sqlite\n"
    assert merged.stderr.decode().startswith(printed)
    assert ids(folder / "out.jsonl") == [f"row {n}" for n in range(ROWS)]
    assert stored(folder / "out.recording.sqlite") == sorted((f"row {n}", "out") for n in range(ROWS))


def test_a_merge_can_be_repeated_and_a_row_with_two_lines_is_merged_once(folder: Path) -> None:
    send(folder, "0/2", "1/2")
    shard = folder / "out.1-of-2.jsonl"
    first = shard.read_bytes().splitlines(keepends=True)[0]
    shard.write_bytes(shard.read_bytes() + first + first[:20])
    before = shard.read_bytes()
    for _ in range(2):
        assert run(folder, "--merge", "2").returncode == 0
        assert ids(folder / "out.jsonl") == [f"row {n}" for n in range(ROWS)]
        assert len(stored(folder / "out.recording.sqlite")) == ROWS
    assert shard.read_bytes() == before
    assert list(folder.glob("*.partial")) == []
    manifest = json.loads((folder / "out.manifest.json").read_bytes())
    assert [one["shard"] for one in manifest["runs"]] == ["0/2", "1/2", "all"]
    assert manifest["results"]["rows"] == ROWS


def test_more_shards_than_rows_leave_some_empty(folder: Path) -> None:
    send(folder, *[f"{number}/12" for number in range(12)])
    assert (folder / "out.11-of-12.jsonl").read_bytes() == b""
    assert run(folder, "--merge", "12").returncode == 0
    assert ids(folder / "out.jsonl") == [f"row {n}" for n in range(ROWS)]


def test_failed_rows_are_merged_and_sent_again_by_their_shard(folder: Path) -> None:
    send(folder, "0/2", "1/2", model="broken")
    merged = run(folder, "--merge", "2", model="broken")
    assert merged.returncode == 1
    assert merged.stderr.startswith(b"0 of 10 rows answered, 10 failed: out.jsonl")
    write_files(folder, {"error.yaml": SCRIPTS["hello.yaml"]})
    assert run(folder, "--shard", "1/2", "--retry-failed", model="broken").returncode == 0
    merged = run(folder, "--merge", "2", model="broken")
    assert merged.stderr.startswith(b"5 of 10 rows answered, 5 failed: out.jsonl")


def test_a_merge_needs_no_configuration_and_no_recording(folder: Path) -> None:
    for number in range(2):
        assert run(folder, "--shard", f"{number}/2", "--no-recording").returncode == 0
    (folder / "gateway.yaml").unlink()
    merged = run(folder, "--merge", "2")
    assert merged.returncode == 0
    assert not (folder / "out.recording.sqlite").exists()


def test_a_shard_that_runs_is_refused(folder: Path) -> None:
    send(folder, "0/2", "1/2")
    with (folder / "out.1-of-2.jsonl").open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        refused = run(folder, "--merge", "2")
    assert refused.returncode == 1
    assert refused.stderr == b"error: out.1-of-2.jsonl: another `gateway run` is writing to this file\n"


def test_shards_that_lack_rows_are_named_with_their_commands(folder: Path) -> None:
    send(folder, "1/3")
    shard = folder / "out.1-of-3.jsonl"
    shard.write_bytes(shard.read_bytes().splitlines(keepends=True)[0])
    refused = run(folder, "--merge", "3")
    assert refused.returncode == 1
    lacks = "in place of --merge 3 sends them"
    assert refused.stderr.decode().splitlines() == [
        f"error: out.0-of-3.jsonl lacks 4 rows, such as row 0, row 3, row 6; the same command with --shard 0/3 {lacks}",
        f"out.1-of-3.jsonl lacks 2 rows, such as row 4, row 7; the same command with --shard 1/3 {lacks}",
        f"out.2-of-3.jsonl lacks 3 rows, such as row 2, row 5, row 8; the same command with --shard 2/3 {lacks}",
    ]
    assert not (folder / "out.manifest.json").exists()


def test_a_shard_of_another_run_is_named(folder: Path) -> None:
    send(folder, "0/2")
    assert run(folder, "--shard", "1/2", "--param", "max_tokens=8").returncode == 0
    refused = run(folder, "--merge", "2")
    assert refused.returncode == 2
    message = refused.stderr.decode()
    assert message.startswith("error: the shards of out.jsonl were sent with other settings:\n")
    assert "  out.1-of-2.jsonl.params.max_tokens: 8 → null\n" in message
    assert message.endswith("\ngive the same settings, or keep these rows with --allow-changes\n")
    assert run(folder, "--merge", "2", "--allow-changes").returncode == 0


def test_the_output_of_a_run_without_shards_is_not_replaced(folder: Path) -> None:
    assert run(folder).returncode == 0
    before = (folder / "out.jsonl").read_bytes()
    send(folder, "0/2", "1/2")
    refused = run(folder, "--merge", "2")
    assert refused.returncode == 2
    assert refused.stderr.startswith(b"error: out.jsonl is the output of a run without --shard; choose another --out")
    (folder / "out.jsonl").rename(folder / "kept.jsonl")
    (folder / "out.manifest.json").unlink()
    assert run(folder, "--merge", "2").returncode == 2, "its recording is still there"
    assert (folder / "kept.jsonl").read_bytes() == before


def test_a_recording_that_is_not_beside_its_shard_is_named(folder: Path) -> None:
    send(folder, "0/2", "1/2")
    (folder / "out.1-of-2.recording.sqlite").unlink()
    refused = run(folder, "--merge", "2")
    assert refused.returncode == 1
    assert refused.stderr.decode() == (
        "error: out.1-of-2.jsonl has no recording, and other shards have one; delete out.1-of-2.jsonl and send the "
        "shard with --recording, or move the recordings of all shards away\n"
    )
    assert not (folder / "out.manifest.json").exists()
    (folder / "out.1-of-2.jsonl").unlink()
    send(folder, "1/2")
    assert run(folder, "--merge", "2").returncode == 0


NO_SHARDS = {
    "another number": ("out.jsonl", "but out.0-of-2.jsonl; give --merge the number in its name"),
    "another output": ("other.jsonl", "give the shards' --out"),
    "another folder": ("none/out.jsonl", "give the shards' --out"),
}


@pytest.mark.parametrize("case", NO_SHARDS)
def test_shards_that_do_not_exist_are_not_sent_again(case: str, folder: Path) -> None:
    out, remedy = NO_SHARDS[case]
    send(folder, "0/2")
    refused = run(folder, "--merge", "4", out=out)
    assert refused.returncode == 2
    assert refused.stderr.decode() == f"error: {out} has no shards of --shard K/4, {remedy}\n"


def test_shards_that_the_user_may_only_read_are_merged(folder: Path) -> None:
    send(folder, "0/2", "1/2")
    for path in folder.glob("out.*"):
        path.chmod(0o444)
    ended = bound_by_modes(folder, "run", "data.jsonl", "--model", "talk", "--out", "out.jsonl", "--merge", "2")
    assert ended.returncode == 0, ended.stderr.decode()
    assert ids(folder / "out.jsonl") == [f"row {n}" for n in range(ROWS)]


@pytest.mark.parametrize("shard", ["3/3", "/3", "1", "-1/3", "1/3/5", "0/0", "٣/4", "1/ 3"])
def test_a_wrong_shard_is_refused(shard: str, folder: Path) -> None:
    refused = run(folder, f"--shard={shard}")
    assert refused.returncode == 2
    message = f"--shard {shard}: give K/N; shards are counted from 0, so 0/16 is the first and 15/16 the last"
    assert refused.stderr.decode() == f"error: {message}\n"


@pytest.mark.parametrize("option", [("--shard", "0/2"), ("--retry-failed",)], ids=["shard", "retry failed"])
def test_a_merge_takes_no_options_that_send_rows(option: tuple[str, ...], folder: Path) -> None:
    refused = run(folder, "--merge", "2", *option)
    assert refused.returncode == 2
    assert refused.stderr.startswith(b"error: --merge sends no rows; remove --shard and --retry-failed")
