"""``gateway run --shard``, two of four shards killed with SIGKILL, and ``--merge``: equal to a run without shards."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

from tests.cli.command import command
from tests.journeys.process import environment
from tests.journeys.run_reports import ROWS, ask_all_rows, assert_each_row_once, reports, write_rows
from tests.support.serving import WAIT_SECONDS, eventually

SHARDS = 4
RUN = ("run", "data.jsonl", "--model", "talk", "--keep", "answer", "--out", "merged.jsonl")
OPTIONS = ("--concurrency", "4", "--retries", "1")
TASK = f'exec "{sys.executable}" -m gateway {" ".join([*RUN, *OPTIONS])} --shard $SLURM_ARRAY_TASK_ID/{SHARDS}'
"""The command of a task of a SLURM array, for a shell."""


def start(folder: Path, task: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        ["sh", "-c", TASK], cwd=folder, env=environment(SLURM_ARRAY_TASK_ID=str(task)), stderr=subprocess.DEVNULL
    )


def lines(folder: Path, shard: int) -> int:
    out = folder / f"merged.{shard}-of-{SHARDS}.jsonl"
    return out.read_bytes().count(b"\n") if out.exists() else 0


def test_two_of_four_shards_are_killed_and_each_row_is_merged_once(tmp_path: Path) -> None:
    write_rows(tmp_path, pause=0.005)
    tasks = [start(tmp_path, task) for task in range(SHARDS)]
    try:
        for killed in (1, 2):
            assert eventually(lambda killed=killed: lines(tmp_path, killed) >= ROWS // SHARDS // 4)
            tasks[killed].kill()
        assert [task.wait(WAIT_SECONDS) for task in tasks] == [0, -signal.SIGKILL, -signal.SIGKILL, 0]
    finally:
        for task in tasks:
            task.kill()
            task.wait()
    with (tmp_path / f"merged.1-of-{SHARDS}.jsonl").open("ab") as file:
        file.write(b'{"id": "batch_req_1", "custom_id": "line-2"')  # a partial line, as a kill may leave it
    refused = command(tmp_path, *RUN, "--merge", str(SHARDS))
    assert refused.returncode == 1
    shown = refused.stderr.decode().splitlines()
    assert [line.partition(" lacks ")[0] for line in shown] == [
        f"error: merged.1-of-{SHARDS}.jsonl",
        f"merged.2-of-{SHARDS}.jsonl",
    ]
    assert shown[0].endswith(f"; the same command with --shard 1/{SHARDS} in place of --merge {SHARDS} sends them")
    assert not (tmp_path / "merged.jsonl").exists()
    for killed in (1, 2):
        assert start(tmp_path, killed).wait(WAIT_SECONDS) == 0
    merged = command(tmp_path, *RUN, "--merge", str(SHARDS))
    assert merged.returncode == 0, merged.stderr.decode()
    assert_each_row_once(tmp_path / "merged.jsonl")
    manifest = json.loads((tmp_path / "merged.manifest.json").read_bytes())
    assert [run["shard"] for run in manifest["runs"]] == ["0/4", "1/4", "1/4", "2/4", "2/4", "3/4", "all"]
    write_rows(tmp_path, pause=0)
    ask_all_rows(tmp_path, "talk", "single.jsonl")
    ask_all_rows(tmp_path, "other", "other.jsonl")
    assert reports(tmp_path, "merged.jsonl", "other.jsonl") == reports(tmp_path, "single.jsonl", "other.jsonl")
    whole = json.loads((tmp_path / "single.manifest.json").read_bytes())
    assert manifest["identity"] == whole["identity"]
    for results in (manifest["results"], whole["results"]):
        del results["latency_seconds"]
    assert manifest["results"] == whole["results"]
