"""``gateway run``, killed with SIGKILL on its way: every row is in the output once."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

from tests.journeys.process import environment
from tests.serving import eventually

ROWS = 400
CONFIG = "models: {slow: {template: sft-demo, targets: [{speaks: scripted, script: slow.yaml}]}}\n"
SLOW = "[{pause: 0.005}, Hello, {finish: stop}]\n"


def start(folder: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "gateway", "run", "data.jsonl", "--out", "out.jsonl", "--concurrency", "4"]
    return subprocess.Popen(command, cwd=folder, env=environment(), stderr=subprocess.DEVNULL)


def test_each_row_is_in_the_output_once_after_three_kills(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "hi"}]
    lines = [json.dumps({"custom_id": str(n), "model": "slow", "messages": messages}) for n in range(ROWS)]
    (tmp_path / "data.jsonl").write_text("\n".join(lines))
    (tmp_path / "slow.yaml").write_text(SLOW)
    out = tmp_path / "out.jsonl"
    (tmp_path / "gateway.yaml").write_text(CONFIG)
    for kill in range(3):
        wanted = ROWS * (kill + 1) // 5
        process = start(tmp_path)
        try:
            assert eventually(lambda wanted=wanted: out.exists() and out.read_bytes().count(b"\n") >= wanted)
        finally:
            process.kill()
        assert process.wait() == -signal.SIGKILL
        with out.open("ab") as file:
            file.write(lines[0][: kill * 20].encode())  # a partial line, as a kill may leave it
    assert start(tmp_path).wait() == 0
    ids = Counter(json.loads(line)["custom_id"] for line in out.read_bytes().splitlines())
    assert ids == Counter(str(n) for n in range(ROWS))
    runs = json.loads((tmp_path / "out.manifest.json").read_bytes())["runs"]
    assert [run["ended"] is None for run in runs] == [True, True, True, False]
    assert 0 < runs[1]["rows_before"] < runs[2]["rows_before"] < runs[3]["rows_before"] < ROWS
