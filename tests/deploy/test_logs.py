"""The log of a gateway is rotated as docs/maintenance.md says, by the real programs.

``tests/deploy/install-tools`` installs them on Debian and Ubuntu.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
import yaml

from tests.deploy.test_compose import SCHEMA
from tests.journeys.process import environment, serving
from tests.support.ports import free_port
from tests.support.serving import ROOT, WAIT_SECONDS, HttpGateway, eventually, write_files

PAGE = (ROOT / "docs/maintenance.md").read_text(encoding="utf-8")
UNIT = (ROOT / "docs/operations.md").read_text(encoding="utf-8").partition("```ini\n")[2].partition("```")[0]
FILES = {
    "gateway.yaml": "models: {m: {template: chat, targets: [{speaks: scripted, script: hello.yaml}]}}\n",
    "hello.yaml": "[Hello, {finish: stop}]\n",
}


def needed(program: str) -> str:
    path = shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin")
    if path is None:
        pytest.skip(f"needs {program}; tests/deploy/install-tools installs it")
    return path


def block(first_line: str) -> str:
    """The text of the block of the page that begins with a line."""
    (found,) = re.findall(rf"^```\w+\n{re.escape(first_line)}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    return str(found)


@pytest.mark.parametrize("name", ["journal", "log"])
def test_a_drop_in_is_valid(name: str, tmp_path: Path) -> None:
    verify = needed("systemd-analyze")
    text = block(f"# /etc/systemd/system/gateway.service.d/{name}.conf")

    def faults(drop_in: str) -> str:
        unit = UNIT.replace("/opt/gateway/bin/gateway", sys.executable)
        write_files(tmp_path, {"gateway.service": unit, "gateway.service.d/10.conf": drop_in})
        command = [verify, "verify", "--man=no", str(tmp_path / "gateway.service")]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        return "".join([line for line in ended.stderr.splitlines(keepends=True) if "gateway.service" in line])

    assert faults(text) == ""
    assert "Unknown key" in faults(text.replace("LogRate", "Lograte").replace("LogsDir", "LogDir"))


def test_logrotate_rotates_the_file_of_a_gateway_that_goes_on_writing(tmp_path: Path) -> None:
    logrotate, log = needed("logrotate"), tmp_path / "gateway.log"
    rules = block("# /etc/logrotate.d/gateway").replace("/var/log/gateway/gateway.log", str(log))
    (tmp_path / "rules").write_text(rules)
    (tmp_path / "rules").chmod(0o644)
    port, line = free_port(), f"exec '{sys.executable}' -m gateway serve 2>> gateway.log"
    write_files(tmp_path, FILES)
    process = subprocess.Popen(["sh", "-c", line], cwd=tmp_path, env=environment(GATEWAY_SERVER__PORT=str(port)))
    try:
        served = HttpGateway(port)
        assert eventually(lambda: log.exists() and "serving m" in log.read_text())
        assert served.chat("m").status_code == 200
        assert eventually(lambda: log.read_text().count(" outcome=ok ") == 1)
        for options in (("-d",), ("--force",)):
            command = [logrotate, *options, "--state", str(tmp_path / "state"), str(tmp_path / "rules")]
            ended = subprocess.run(command, capture_output=True, text=True, check=False)
            assert (ended.returncode, "error:" in ended.stderr) == (0, False), ended.stderr
        assert (tmp_path / "gateway.log.1").read_text().count(" outcome=ok ") == 1
        assert log.read_text() == ""
        assert served.chat("m").status_code == 200
        assert eventually(lambda: " outcome=ok " in log.read_text())
        assert "\0" not in log.read_text()
        served.http.close()
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_SECONDS) == 0


def test_a_mistake_in_the_rules_of_logrotate_is_seen(tmp_path: Path) -> None:
    (tmp_path / "rules").write_text(block("# /etc/logrotate.d/gateway").replace("copytruncate", "copytruncates"))
    command = [needed("logrotate"), "-d", "--state", str(tmp_path / "state"), str(tmp_path / "rules")]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "unknown option 'copytruncates'" in ended.stderr


def test_the_options_of_docker_are_valid() -> None:
    compose = yaml.safe_load(block("# docker-compose.yml"))
    jsonschema.validators.validator_for(SCHEMA)(SCHEMA).validate(compose)
    options = compose["services"]["gateway"]["logging"]["options"]
    assert options == {"max-size": "100m", "max-file": "5"}  # the options of json-file are strings


def test_a_pipe_rotates_and_the_gateway_serves_after_its_reader_has_ended(tmp_path: Path) -> None:
    rotate = PAGE.partition("`gateway serve 2>&1 | rotatelogs ")[2].partition("`")[0]
    command = [needed("rotatelogs"), *rotate.split()]
    reading, writing = os.pipe()
    reader = subprocess.Popen(command, cwd=tmp_path, stdin=reading)
    os.close(reading)
    port = free_port()
    write_files(tmp_path, FILES)
    env = environment(GATEWAY_SERVER__PORT=str(port))
    serve = [sys.executable, "-m", "gateway", "serve"]
    process = subprocess.Popen(serve, cwd=tmp_path, env=env, stdout=writing, stderr=writing)
    os.close(writing)
    try:
        served = HttpGateway(port)
        log = tmp_path / "gateway.log"
        assert eventually(lambda: log.exists() and "serving m" in log.read_text())
        assert served.chat("m").status_code == 200
        assert eventually(lambda: " outcome=ok " in log.read_text())
        reader.kill()
        reader.wait(WAIT_SECONDS)
        for _ in range(3):
            assert served.chat("m").status_code == 200
        dropped = "gateway_log_lines_dropped_total"
        assert eventually(lambda: re.search(rf"^{dropped} [1-9]", served.http.get("/metrics").text, re.MULTILINE))
        assert process.poll() is None
        served.http.close()
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_SECONDS) == 0
        reader.kill()


def test_a_line_has_the_size_that_the_page_names(tmp_path: Path) -> None:
    for form in ("text", "json"):
        folder = tmp_path / form
        folder.mkdir()
        with serving(folder, FILES, GATEWAY_SERVER__LOG_FORMAT=form) as served:
            assert served.call_model("m") == "Hello"
            marks = {"text": " outcome=ok ", "json": '"outcome":"ok"'}[form]
            assert eventually(lambda served=served, marks=marks: marks in served.log)
            (line,) = [one for one in served.log.splitlines() if marks in one]
        assert form == "text" or json.loads(line)["status"] == 200
        low, high = map(int, re.findall(r"A line has (\d+) to (\d+) bytes", PAGE)[0])
        assert 0.7 * low < len(line) < 1.3 * high
