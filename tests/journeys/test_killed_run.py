"""``gateway run``, killed with SIGKILL on its way: every row is in the output once, and its recording is complete."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from gateway.storage.recordings import open_recording
from tests.cli.command import command
from tests.journeys.process import environment
from tests.support.serving import WAIT_SECONDS, eventually, gateway, write_files

ROWS = 400
CONFIG = "models: {slow: {template: sft-demo, targets: [{speaks: scripted, script: slow.yaml}]}}\n"
SLOW = "[{pause: 0.005}, Hello, {finish: stop}]\n"


RUN = ("run", "data.jsonl", "--out", "out.jsonl", "--concurrency", "4", "--retries", "1")


def start(folder: Path, *arguments: str) -> subprocess.Popen[bytes]:
    # A shell starts programs in the background with SIGINT ignored, and tests may run there; Python keeps that.
    before = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
    main = "from gateway.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", before + main, *RUN, *arguments]
    return subprocess.Popen(command, cwd=folder, env=environment(), stderr=subprocess.PIPE)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    messages = [{"role": "user", "content": "hi"}]
    lines = [json.dumps({"custom_id": str(n), "model": "slow", "messages": messages}) for n in range(ROWS)]
    write_files(tmp_path, {"data.jsonl": "\n".join(lines), "slow.yaml": SLOW, "gateway.yaml": CONFIG})
    return tmp_path


def wait_for_rows(folder: Path, number: int) -> None:
    out = folder / "out.jsonl"
    assert eventually(lambda: out.exists() and out.read_bytes().count(b"\n") >= number)


def assert_each_row_once(folder: Path) -> None:
    ids = Counter(json.loads(line)["custom_id"] for line in (folder / "out.jsonl").read_bytes().splitlines())
    assert ids == Counter(str(n) for n in range(ROWS))


def assert_each_line_has_one_recording(folder: Path) -> None:
    lines = [json.loads(line) for line in (folder / "out.jsonl").read_bytes().splitlines()]
    with closing(open_recording(folder / "out.recording.sqlite")) as file:
        complete = "SELECT request_id, row FROM calls JOIN exchanges ON call = calls.id WHERE events LIKE '%Finish%'"
        found = Counter((one["request_id"], one["row"]) for one in file.execute(complete))
    assert {found[line["response"]["request_id"], line["custom_id"]] for line in lines} == {1}


def test_each_row_is_in_the_output_once_after_three_kills(folder: Path) -> None:
    for kill in range(3):
        with start(folder) as process:
            try:
                wait_for_rows(folder, ROWS * (kill + 1) // 5)
            finally:
                process.kill()
        assert process.returncode == -signal.SIGKILL
        with (folder / "out.jsonl").open("ab") as file:
            file.write(b'{"id": "batch_req_1", "custom_id": "0"'[: kill * 20])  # a partial line, as a kill may leave it
    assert command(folder, *RUN).returncode == 0
    assert_each_row_once(folder)
    assert_each_line_has_one_recording(folder)
    runs = json.loads((folder / "out.manifest.json").read_bytes())["runs"]
    assert [run["ended"] is None for run in runs] == [True, True, True, False]
    assert 0 < runs[1]["rows_before"] < runs[2]["rows_before"] < runs[3]["rows_before"] < ROWS


@pytest.mark.parametrize("rows", [0, 10], ids=["before the first row", "after some rows"])
def test_an_interrupted_run_says_how_it_goes_on(rows: int, folder: Path) -> None:
    if not rows:
        write_files(folder, {"slow.yaml": f"[{{pause: {10 * WAIT_SECONDS}}}, Hello, {{finish: stop}}]\n"})
    with start(folder) as process:
        try:
            wait_for_rows(folder, rows)  # the output exists once the run has begun
            process.send_signal(signal.SIGINT)
            _, printed = process.communicate(timeout=WAIT_SECONDS)
        finally:
            process.kill()
    assert process.returncode == 130
    assert printed.endswith(b"note: interrupted; the same command continues the run\n"), printed
    write_files(folder, {"slow.yaml": "[Hello, {finish: stop}]\n"})
    assert command(folder, *RUN).returncode == 0
    assert_each_row_once(folder)


def test_a_run_ends_without_its_gateway_and_goes_on_with_another(folder: Path) -> None:
    with gateway(folder, CONFIG) as first:
        process = start(folder, "--base-url", first.url)
        wait_for_rows(folder, 40)
    _, printed = process.communicate(timeout=WAIT_SECONDS)
    assert process.returncode == 1
    assert b" not asked yet: " in printed
    assert f"no gateway answers at {first.url}; start it and give the command again\n".encode() in printed
    with gateway(folder, CONFIG) as second:
        assert command(folder, *RUN, "--base-url", second.url, "--retry-failed").returncode == 0
    assert_each_row_once(folder)
