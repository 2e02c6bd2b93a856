"""A gateway is upgraded, backed up and restored as docs/maintenance.md says."""

from __future__ import annotations

import shutil
import signal
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.command import command
from tests.journeys.process import serving
from tests.support.serving import ROOT, WAIT_SECONDS, eventually, gateway

FILES = {
    "gateway.yaml": """\
recordings: {path: calls.sqlite}
models: {m: {template: chat, policy: full, targets: [{speaks: scripted, script: hello.yaml}]}}
""",
    "policies/full.yaml": "record: full\n",
    "hello.yaml": "[Hello, {finish: stop}]\n",
}
PAGE = (ROOT / "docs/maintenance.md").read_text(encoding="utf-8")


def recorded(folder: Path, file: str = "calls.sqlite") -> int:
    """The number of calls in a file of recordings, read by the command line of the gateway.

    0 if it cannot be read: a gateway writes its first recording after the answer.
    """
    return len(command(folder, "recordings", "export", "--file", file).stdout.splitlines())


def shown_command(words: str) -> str:
    """The only command of the page's console blocks that contains these words."""
    (found,) = [line.removeprefix("$ ") for line in PAGE.splitlines() if line.startswith("$ ") and words in line]
    return found.replace("recordings.sqlite", "calls.sqlite")


def shell(folder: Path, line: str) -> str:
    return subprocess.run(["sh", "-c", line], cwd=folder, check=True, capture_output=True, text=True).stdout


BACKUPS = {
    "sqlite3": lambda: shown_command(".backup"),
    "Python": lambda: PAGE.partition("Python does the same: `")[2].partition("`")[0].replace("recordings.", "calls."),
}


@pytest.mark.parametrize("tool", BACKUPS)
def test_a_file_is_copied_while_a_gateway_writes_it_and_is_restored(tool: str, tmp_path: Path) -> None:
    if tool not in ("Python",) and shutil.which(tool) is None:
        pytest.skip(f"needs {tool} (apt-get install sqlite3)")
    with serving(tmp_path, FILES) as served:
        for _ in range(20):
            assert served.call_model("m") == "Hello"
        assert eventually(lambda: recorded(tmp_path) == 20)
        assert (tmp_path / "calls.sqlite-wal").exists()
        shell(tmp_path, BACKUPS[tool]())
        assert served.call_model("m") == "Hello"
        served.signal(signal.SIGTERM)
        assert served.process.wait(WAIT_SECONDS) == 0
    assert (recorded(tmp_path), recorded(tmp_path, "copy.sqlite")) == (21, 20)
    assert (tmp_path / "copy.sqlite").stat().st_mode & 0o777 == 0o600
    shell(tmp_path, shown_command("mkdir before"))
    shell(tmp_path, shown_command("cp -p copy.sqlite"))
    with gateway(tmp_path, FILES["gateway.yaml"]) as restored:
        assert restored.chat("m").status_code == 200
    assert recorded(tmp_path) == 21


VERSIONS = {"an older one": -1, "a newer one": 1}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_gateway_leaves_recordings_of_another_version_until_they_are_moved(version: str, tmp_path: Path) -> None:
    with gateway(tmp_path, FILES["gateway.yaml"], files=FILES) as first:
        assert first.chat("m").status_code == 200
    with closing(sqlite3.connect(tmp_path / "calls.sqlite")) as file, file:
        (found,) = file.execute("PRAGMA user_version").fetchone()
        file.execute(f"PRAGMA user_version = {found + VERSIONS[version]}")
    before = (tmp_path / "calls.sqlite").read_bytes()
    with serving(tmp_path, FILES) as served:
        assert served.call_model("m") == "Hello"
        (message,) = [part for part in PAGE.split("`") if part.startswith("recordings are dropped, because")]
        assert eventually(lambda: message.replace("recordings.sqlite", "calls.sqlite") in served.log), served.log
        assert 'gateway_recordings_dropped_total{reason="failed"} 1.0' in served.http.get("/metrics").text
        for verb in ("recordings", "report calls.sqlite", "why calls.sqlite calls.sqlite", "recordings prune --run a"):
            refused = command(tmp_path, *verb.split())
            assert (refused.returncode, b"and this gateway reads version" in refused.stderr) == (2, True), verb
        assert (tmp_path / "calls.sqlite").read_bytes() == before
        shell(tmp_path, "mkdir before && mv calls.sqlite* before/")
        assert served.call_model("m") == "Hello"
        # The new file is there before its tables are.
        assert eventually(lambda: command(tmp_path, "recordings", "export").stdout.count(b"\n") == 1), served.log


def test_retention_acts_at_the_next_write_only(tmp_path: Path) -> None:
    with gateway(tmp_path, FILES["gateway.yaml"], files=FILES) as served:
        assert served.chat("m").status_code == 200
    with closing(sqlite3.connect(tmp_path / "calls.sqlite")) as file, file:
        file.execute("UPDATE calls SET time = time - 30 * 86400")
    with gateway(tmp_path, FILES["gateway.yaml"]) as served:
        assert served.http.get("/v1/models").status_code == 200
        assert recorded(tmp_path) == 1
        for _ in range(2):
            assert served.chat("m").status_code == 200
    assert recorded(tmp_path) == 2
