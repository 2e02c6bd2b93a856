"""``gateway recordings``, and ``gateway report`` of recorded calls."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.command import command
from tests.support.serving import write_files

FILES = {
    "gateway.yaml": """\
recordings: {path: calls.sqlite}
models:
  talk: {template: chatml, policy: full, targets: [{speaks: scripted, script: hello.yaml}]}
  short: {template: chat, policy: full, targets: [{speaks: scripted, script: cut.yaml}]}
  broken: {template: chat, policy: full, targets: [{speaks: scripted, script: error.yaml}]}
  hashed: {template: chat, policy: metadata, targets: [{speaks: scripted, script: hello.yaml}]}
  lost: {template: chat, policy: metadata, targets: [{speaks: scripted, script: error.yaml}]}
""",
    "policies/full.yaml": "record: full\ndelivery: {retry: {attempts: 1}}\n",
    "policies/metadata.yaml": "record: metadata\ndelivery: {retry: {attempts: 1}}\n",
    "hello.yaml": "['Hello<|im_end|>', {finish: stop}]\n",
    "cut.yaml": "[Hel, {finish: length}]\n",
    "error.yaml": "[{error: upstream_error}]\n",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the recordings of three calls."""
    folder = tmp_path_factory.mktemp("recorded")
    write_files(folder, FILES)
    run(folder, "talk", "short", "broken")
    return folder


def run(folder: Path, *models: str) -> None:
    lines = [json.dumps({"model": name, "messages": [{"role": "user", "content": "hi \x1b[31m"}]}) for name in models]
    (folder / "data.jsonl").write_text("\n".join(lines))
    command(
        folder,
        "run",
        "data.jsonl",
        "--out",
        f"{models[0]}.jsonl",
        "--retries",
        "0",
        "--concurrency",
        "1",
        "--no-recording",
    )


def test_the_list_has_the_latest_call_first_and_filters(folder: Path) -> None:
    lines = command(folder, "recordings").stdout.decode().splitlines()
    assert lines[0].split()[:4] == ["time", "request_id", "endpoint", "model"]
    assert command(folder, "recordings", "--run", "none").stdout.decode().split() == lines[0].split()
    assert [" render " in line for line in lines[1:]].count(True) == 3, "gateway run renders a row of each model"
    names = [json.loads(line)["model"] for line in command(folder, "recordings", "--json").stdout.splitlines()]
    assert names[:3] == ["broken", "short", "talk"]
    failed = command(folder, "recordings", "--failed", "--json").stdout.splitlines()
    assert [json.loads(line)["outcome"] for line in failed] == ["upstream_error"]
    assert len(command(folder, "recordings", "--model", "talk", "--last", "1").stdout.splitlines()) == 2


def test_one_call_is_shown_with_its_prompt_and_the_answer_of_the_client(folder: Path) -> None:
    listed = command(folder, "recordings", "--model", "talk", "--last", "1", "--json").stdout
    request_id = json.loads(listed)["request_id"]
    shown = command(folder, "recordings", request_id).stdout.decode()
    assert "prompt\n  <|im_start|>user\n  hi \\x1b[31m<|im_end|>\n  <|im_start|>assistant\n" in shown
    assert "answer 0, finish_reason stop\n  Hello\n" in shown
    call = json.loads(command(folder, "recordings", request_id, "--json").stdout)
    assert call["exchanges"][0]["answer"] == [{"index": 0, "text": "Hello", "finish_reason": "stop"}]


def test_a_failed_call_is_shown_with_its_error_and_what_to_do(folder: Path) -> None:
    listed = command(folder, "recordings", "--failed", "--json").stdout
    shown = command(folder, "recordings", json.loads(listed)["request_id"]).stdout.decode()
    assert "\nerror             the script contains the error upstream_error (target broken/0)\n" in shown
    assert (
        "\nwhat to do        Look for the x-request-id in the gateway's log, which has the server's message.\n" in shown
    )


TIMES = ("duration", "queue_wait", "upstream_first", "upstream", "client_wait", "overhead")


def test_the_times_of_a_call_add_up(folder: Path) -> None:
    listed = command(folder, "recordings", "--model", "talk", "--last", "1", "--json").stdout
    call = json.loads(listed)
    assert call["duration"] == pytest.approx(call["upstream"] + call["overhead"])
    assert 0 < call["upstream_first"] <= call["upstream"]
    shown = command(folder, "recordings", call["request_id"]).stdout.decode()
    lines = dict(re.findall(r"^(\w+) +(\d+\.\d{4})$", shown, re.MULTILINE))
    assert lines == {name: f"{call[name]:.4f}" for name in TIMES if call[name] is not None}
    assert "queue_wait" not in lines, "the model has no queue"


def test_a_failed_call_without_texts_says_where_its_error_may_be(tmp_path: Path) -> None:
    write_files(tmp_path, FILES)
    run(tmp_path, "lost")
    (call,) = map(json.loads, command(tmp_path, "recordings", "--failed", "--json").stdout.splitlines())
    shown = command(tmp_path, "recordings", call["request_id"]).stdout.decode()
    assert (
        "\nerror             The message of the error is not recorded (record: metadata); the log may have it" in shown
    )


def test_a_report_of_the_recordings_counts_the_same_classes_as_one_of_the_output(folder: Path) -> None:
    recorded = json.loads(command(folder, "report", "calls.sqlite", "--json").stdout)
    output = json.loads(command(folder, "report", "talk.jsonl", "--json").stdout)
    assert recorded["classes"] == output["classes"]
    assert recorded["rows"] == 3


def test_calls_without_their_answers_are_left_out_of_a_report(tmp_path: Path) -> None:
    write_files(tmp_path, FILES)
    run(tmp_path, "hashed")
    ended = command(tmp_path, "report", "calls.sqlite")
    assert (ended.returncode, b"all recorded without their answers (record: metadata" in ended.stderr) == (2, True)
    run(tmp_path, "talk", "hashed")
    ended = command(tmp_path, "report", "calls.sqlite", "--json")
    assert json.loads(ended.stdout)["rows"] == 1
    assert b"1 call of calls.sqlite is left out: recorded without their answers (record: metadata" in ended.stderr


WRONG = {
    "no such call": (("req_0",), "has no call req_0"),
    "a file in place of a call": (("calls.sqlite", "--config", "none.yaml"), "use --file calls.sqlite"),
    "no such file": (("--file", "none.sqlite"), "none.sqlite: no such file"),
    "another file": (("--file", "gateway.yaml"), "gateway.yaml: file is not a database"),
    "another database": (("--file", "other.sqlite"), "this file has no recordings of the gateway"),
    "no configuration": (("--config", "none.yaml"), "none.yaml does not exist"),
    "another version": (("--file", "old.sqlite"), "recordings of version 1, and this gateway reads version 4"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_call_or_file_is_named(case: str, folder: Path) -> None:
    for name, version, table in (("other.sqlite", 0, "things"), ("old.sqlite", 1, "calls")):
        (folder / name).unlink(missing_ok=True)
        with closing(sqlite3.connect(folder / name)) as database, database:
            database.execute(f"CREATE TABLE {table} (id, time, outcome)")
            database.execute("CREATE TABLE exchanges (id)")
            database.execute(f"PRAGMA user_version = {version}")
    arguments, message = WRONG[case]
    ended = command(folder, "recordings", *arguments)
    assert ended.returncode == 2
    assert message in ended.stderr.decode()


def test_an_unknown_run_is_named(folder: Path) -> None:
    ended = command(folder, "report", "nightly")
    assert (ended.returncode, ended.stderr) == (
        2,
        b"error: nightly: no such file, no nightly.recording.sqlite, and no run of this name in the recordings\n",
    )


def test_a_run_belongs_to_its_client_key(tmp_path: Path) -> None:
    write_files(tmp_path, FILES)
    run(tmp_path, "talk", "talk", "short")
    with closing(sqlite3.connect(tmp_path / "calls.sqlite")) as database, database:
        database.execute("UPDATE calls SET run = 'nightly', key = iif(model = 'short', 'b', 'a')")
    ended = command(tmp_path, "report", "nightly")
    assert (ended.returncode, b"name one of them: a/nightly, b/nightly\n" in ended.stderr) == (2, True)
    rows = [json.loads(command(tmp_path, "report", f"{key}/nightly", "--json").stdout)["rows"] for key in "ab"]
    assert rows == [2, 1]
    found = json.loads(command(tmp_path, "why", "a/nightly", "a/nightly", "--json").stdout)
    assert (found["rows"], found["differing"]) == (2, 0)


def test_a_report_of_recordings_of_another_version_is_refused(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "old.sqlite")) as database, database:
        database.execute("CREATE TABLE calls (id, time, request_id, outcome)")
        database.execute("CREATE TABLE exchanges (id)")
        database.execute("PRAGMA user_version = 1")
    ended = command(tmp_path, "report", "old.sqlite")
    assert (ended.returncode, b"recordings of version 1, and this gateway reads version 4" in ended.stderr) == (2, True)
