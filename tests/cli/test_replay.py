"""``gateway run --replay``: a run with the answers of an earlier one."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import command
from tests.support.serving import ROOT, write_files

CONFIG = """\
models:
  demo: {template: sft-demo, targets: [{speaks: embedded, path: model}]}
  talk: {template: chat, targets: [{speaks: scripted, script: hello.yaml}]}
"""
RUN = ("run", "data.jsonl", "--model", "demo", "--out")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of 20 rows, of which each two ask the same at a high temperature."""
    folder = tmp_path_factory.mktemp("replayed")
    write_files(folder, {"gateway.yaml": CONFIG, "hello.yaml": "[Hi, {finish: stop}]\n", "model": ROOT / "demo/model"})
    rows = [
        {
            "custom_id": f"row-{n}",
            "method": "POST",
            "url": "/v1/chat/completions",
            "body": {"messages": [{"role": "user", "content": f"{n // 2}+1=?"}], "temperature": 2},
        }
        for n in range(20)
    ]
    (folder / "data.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert command(folder, *RUN, "a.jsonl").returncode == 0
    return folder


def answers(folder: Path, name: str) -> dict[str, Any]:
    lines = [json.loads(line) for line in (folder / name).read_bytes().splitlines()]
    return {one["custom_id"]: (one["response"]["body"]["choices"], one["response"]["body"]["usage"]) for one in lines}


@pytest.mark.parametrize("pace", [(), ("--pace", "recorded")], ids=["at once", "recorded"])
def test_a_replayed_run_has_the_same_answers(folder: Path, pace: tuple[str, ...]) -> None:
    name = f"replayed{len(pace)}.jsonl"
    ended = command(folder, *RUN, name, "--replay", "a.recording.sqlite", *pace)
    assert (ended.returncode, ended.stderr.startswith(b"20 of 20 rows answered, 0 failed")) == (0, True)
    assert answers(folder, name) == answers(folder, "a.jsonl")
    assert b", 0 with another answer or score" in command(folder, "why", "a.jsonl", name).stdout
    ended = command(folder, *RUN, name)
    assert b'replay: "a.recording.sqlite@sha256:' in ended.stderr, "one output has no rows of both kinds"


def test_a_run_with_evidence_has_the_same_answers(folder: Path) -> None:
    assert command(folder, *RUN, "e.jsonl", "--evidence").returncode == 0
    ended = command(folder, *RUN, "f.jsonl", "--evidence", "--replay", "e.recording.sqlite")
    assert ended.stderr.startswith(b"20 of 20 rows answered, 0 failed"), ended.stderr
    assert answers(folder, "f.jsonl") == answers(folder, "e.jsonl")
    assert '"token_ids"' in (folder / "f.jsonl").read_text()


def test_a_run_is_continued_only_with_the_same_recording(folder: Path) -> None:
    (folder / "copy.sqlite").write_bytes((folder / "a.recording.sqlite").read_bytes())
    replayed = (*RUN, "c.jsonl", "--replay", "copy.sqlite")
    assert [command(folder, *replayed).returncode for _ in range(2)] == [0, 0], "reading does not change the file"
    with closing(sqlite3.connect(folder / "copy.sqlite")) as database, database:
        database.execute("UPDATE exchanges SET repeat = 1")
    ended = command(folder, *replayed)
    assert ended.returncode == 2
    assert b'replay: "copy.sqlite@sha256:' in ended.stderr


def test_only_the_models_of_the_rows_are_replayed_and_no_weights_are_loaded(folder: Path, tmp_path: Path) -> None:
    model = ROOT / "demo" / "model"
    small: dict[str, str | Path] = {f"model/{one.name}": one for one in model.iterdir() if one.suffix == ".json"}
    other = "  other: {template: sft-demo, targets: [{speaks: embedded, path: broken}]}\n"
    files = {
        "broken/config.json": "{}",
        "data.jsonl": folder / "data.jsonl",
        "hello.yaml": folder / "hello.yaml",
        **small,
    }
    write_files(tmp_path, {"gateway.yaml": CONFIG + other, **files})
    ended = command(tmp_path, *RUN, "a.jsonl", "--replay", str(folder / "a.recording.sqlite"))
    assert ended.stderr.startswith(b"20 of 20 rows answered, 0 failed"), ended.stderr
    assert answers(tmp_path, "a.jsonl") == answers(folder, "a.jsonl")


WRONG = {
    "a missing file": (("--replay", "b.sqlite"), "b.sqlite: no such file; give the recording of an earlier run"),
    "no recording": (("--replay", "data.jsonl"), "--replay data.jsonl is not a recording; give the"),
    "a running gateway": (("--replay", "a.recording.sqlite", "--base-url", "http://h/v1"), "cannot be used together"),
    "the recording of this run": (
        ("--replay", "wrong.recording.sqlite"),
        "--replay wrong.recording.sqlite: this run would write its own calls to the same file; choose another --out",
    ),
    "the recording that the policies write": (
        ("--replay", "wrong.recording.sqlite", "--no-recording", "--config", "recorded.yaml"),
        "this run would write its own calls to the same file; choose another recordings.path",
    ),
    "a pace without a file": (("--pace", "recorded"), "--pace applies only to --replay"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_replay_that_is_not_possible_is_refused(folder: Path, case: str) -> None:
    arguments, message = WRONG[case]
    shutil.copy(folder / "a.recording.sqlite", folder / "wrong.recording.sqlite")
    (folder / "recorded.yaml").write_text(f"recordings: {{path: wrong.recording.sqlite}}\n{CONFIG}")
    ended = command(folder, *RUN, "wrong.jsonl", *arguments)
    assert ended.returncode in (2, 3)
    assert message in ended.stderr.decode()
    assert not (folder / "wrong.jsonl").exists()
