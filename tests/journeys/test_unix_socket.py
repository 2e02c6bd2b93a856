"""``server.host: unix:/path``: real clients on the socket, its file, and several workers."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.journeys.process import environment
from tests.support.ports import free_port
from tests.support.serving import WAIT_SECONDS, eventually, write_files

BODY = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}]})
FILES = {
    "gateway.yaml": """\
server: {host: "unix:HERE/gateway.sock", workers: WORKERS}
models: {m: {template: chat, targets: [{speaks: scripted, script: hello.yaml}]}}
""",
    "hello.yaml": "[Hello, ' there', {finish: stop}]",
}


def start(folder: Path, workers: int = 1) -> tuple[subprocess.Popen[bytes], Path]:
    """A gateway on ``gateway.sock`` in a folder, and its log."""
    text = FILES["gateway.yaml"].replace("HERE", str(folder)).replace("WORKERS", str(workers))
    write_files(folder, {**FILES, "gateway.yaml": text})
    log = folder / f"{len(list(folder.glob('*.log')))}.log"
    with log.open("wb") as stderr:
        command = [sys.executable, "-m", "gateway", "serve"]
        return subprocess.Popen(command, cwd=folder, env=environment(), stderr=stderr), log


@contextmanager
def serving(folder: Path, workers: int = 1) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    process, log = start(folder, workers)
    try:
        assert eventually(lambda: process.poll() is not None or "serving m at" in log.read_text()), log.read_text()
        assert process.poll() is None, log.read_text()
        yield process, log
    finally:
        process.terminate()
        process.wait(WAIT_SECONDS)


def curl(*arguments: str) -> str:
    program = shutil.which("curl")
    if program is None:
        pytest.skip("needs curl")
    command = [program, "-s", "--max-time", str(WAIT_SECONDS), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def ask(folder: Path, body: str = BODY) -> str:
    json_type = "content-type: application/json"
    url = "http://localhost/v1/chat/completions"
    return curl("--unix-socket", str(folder / "gateway.sock"), url, "-H", json_type, "-d", body)


@pytest.mark.parametrize("workers", [1, 2])
def test_curl_is_answered_and_the_file_is_removed_at_the_end(tmp_path: Path, workers: int) -> None:
    with serving(tmp_path, workers) as (process, log):
        mode = os.stat(tmp_path / "gateway.sock").st_mode
        assert stat.S_ISSOCK(mode)
        assert stat.S_IMODE(mode) == 0o660
        for _ in range(4):
            assert json.loads(ask(tmp_path))["choices"][0]["message"]["content"] == "Hello there"
        assert ask(tmp_path, BODY.replace("}]}", '}], "stream": true}')).endswith("data: [DONE]\n\n")
        path = str(tmp_path / "gateway.sock")
        assert '"state":"serving"' in curl("--unix-socket", path, "http://localhost/status")
        assert "bad_host" in curl("--unix-socket", path, "http://evil.example/v1/models")
        assert f"serving m at unix:{path}  (" in log.read_text()
        assert f"curl --unix-socket {path} http://localhost/v1/chat/completions " in log.read_text()
        process.send_signal(signal.SIGHUP)
        assert eventually(lambda: "already in use" in log.read_text())
        assert json.loads(ask(tmp_path))["model"] == "m"
    assert not (tmp_path / "gateway.sock").exists()


def test_a_stale_socket_is_replaced_and_a_living_one_is_not(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / "gateway.sock"))
    with serving(tmp_path):
        second, log = start(tmp_path)
        assert second.wait(WAIT_SECONDS) == 3
        assert f"cannot listen on unix:{tmp_path}/gateway.sock (another gateway has its .lock file)" in log.read_text()
        assert json.loads(ask(tmp_path))["model"] == "m"


def test_of_two_gateways_that_start_together_one_serves(tmp_path: Path) -> None:
    started = [start(tmp_path, workers) for workers in (1, 2)]
    try:
        assert eventually(lambda: any(process.poll() is not None for process, _ in started))
        ((_, log),) = [one for one in started if one[0].poll() is None]
        assert eventually(lambda: "serving m at" in log.read_text()), log.read_text()
        assert json.loads(ask(tmp_path))["model"] == "m"
        assert [process.returncode for process, _ in started if process.returncode is not None] == [3]
    finally:
        for process, _ in started:
            process.terminate()
            process.wait(WAIT_SECONDS)


def test_a_socket_of_another_program_is_not_replaced(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(tmp_path / "gateway.sock"))
        other.listen()
        process, log = start(tmp_path)
        assert process.wait(WAIT_SECONDS) == 3
        assert "gateway.sock (Address already in use)" in log.read_text()


def test_another_file_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "gateway.sock").write_text("text")
    process, log = start(tmp_path)
    assert process.wait(WAIT_SECONDS) == 3
    assert "Address already in use" in log.read_text()
    assert (tmp_path / "gateway.sock").read_text() == "text"


NGINX = """\
daemon off;
user root;
pid nginx.pid;
error_log stderr;
events {{}}
http {{
    access_log off;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    server {{
        listen 127.0.0.1:{port};
        location / {{ proxy_pass http://unix:{path}:; proxy_set_header Host localhost; proxy_buffering off; }}
    }}
}}
"""


def test_nginx_passes_calls_to_the_socket(tmp_path: Path) -> None:
    program = shutil.which("nginx")
    if program is None:
        pytest.skip("needs nginx; tests/deploy/install-tools installs it")
    port = free_port()
    (tmp_path / "nginx.conf").write_text(NGINX.format(port=port, path=tmp_path / "gateway.sock"))
    url = f"http://127.0.0.1:{port}/v1/chat/completions"
    with serving(tmp_path):
        process = subprocess.Popen([program, "-p", str(tmp_path), "-c", "nginx.conf", "-e", "stderr"])
        try:
            arguments = ("--noproxy", "*", url, "-H", "content-type: application/json", "-d", BODY)
            assert eventually(lambda: "Hello there" in curl(*arguments))
        finally:
            process.terminate()
            process.wait(WAIT_SECONDS)
