"""Where a gateway can write if its configuration is read-only, as below ``ProtectSystem=strict`` of systemd."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.journeys.process import environment
from tests.support.ports import free_port
from tests.support.serving import ROOT, WAIT_SECONDS, HttpGateway, eventually, write_files

FILES = {
    "hello.yaml": "[Hello, {finish: stop}]\n",
    "policies/full.yaml": "record: full\n",
}
PATH = "/var/lib/gateway/recordings.sqlite"
MODEL = "m: {template: chat, policy: full, targets: [{speaks: scripted, script: hello.yaml}]}"


def test_the_page_names_the_path() -> None:
    assert f"recordings: {{path: {PATH}}}" in (ROOT / "docs/operations.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("recordings", ["calls.sqlite", PATH])
def test_below_a_read_only_folder_only_an_absolute_path_is_written(recordings: str, tmp_path: Path) -> None:
    read_only = 'mount --bind . . && mount -o remount,ro,bind . && cd "$PWD" && '
    probe = ["unshare", "--mount", "sh", "-c", f"{read_only} ! touch probe"]
    if subprocess.run(probe, cwd=tmp_path, capture_output=True, check=False).returncode:
        pytest.skip("needs the right to mount, which root has outside of containers, and in some")
    etc, var = tmp_path / "etc", tmp_path / "var"
    var.mkdir()
    path = recordings.replace("/var/lib/gateway", str(var))
    config = f"recordings: {{path: {path}}}\nmodels: {{{MODEL}}}\n"
    write_files(etc, FILES | {"gateway.yaml": config})
    port, log = free_port(), var / "log"
    command = ["unshare", "--mount", "sh", "-c", f"{read_only} exec '{sys.executable}' -m gateway serve 2> {log}"]
    process = subprocess.Popen(command, cwd=etc, env=environment(GATEWAY_SERVER__PORT=str(port)))
    try:
        served = HttpGateway(port)
        assert eventually(lambda: log.exists() and "serving m" in log.read_text())
        assert served.chat("m").status_code == 200
        if path == recordings:
            assert eventually(lambda: "calls.sqlite cannot be written: " in log.read_text()), log.read_text()
        else:
            assert eventually(lambda: (var / "recordings.sqlite").exists())
        served.http.close()
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_SECONDS) == 0
    assert ("cannot be written" in log.read_text()) == (path == recordings)
