"""``gateway status`` of a gateway with two workers and an admin listener."""

from __future__ import annotations

import json
import re
import signal
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from gateway.server.reload import INTERNAL_ERROR
from tests.journeys.process import Process, run, serving
from tests.support.certificates import write_certificate
from tests.support.ports import free_port
from tests.support.serving import eventually

CONFIG = """\
server: {{workers: 2, admin: "127.0.0.1:{admin}"}}
models:
  m:
    template: chat
    policy: quick
    targets: [{{speaks: scripted, script: hello.yaml}}, {{speaks: chat, url: "http://127.0.0.1:9/v1"}}]
"""


def shown(process: Process) -> str:
    ended = run(process.folder, "status")
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.decode()


def test_the_status_is_that_of_all_workers(tmp_path: Path) -> None:
    admin = free_port()
    files = {
        "gateway.yaml": CONFIG.format(admin=admin),
        "hello.yaml": "[Hello, {finish: stop}]\n",
        "policies/quick.yaml": "delivery: {breaker: {failures: 1, open: 600s}}\n",
    }
    with serving(tmp_path, files) as process:
        assert process.http.get("/status").status_code == 404, "the main listener shows nothing"
        assert re.search(
            rf"^http://127.0.0.1:{admin}: serving since \S+, version \S+, configuration \w{{12}}, workers: 2, "
            r"running calls: 0\n"
            r"model  template  policy  target  state\n"
            r"m      chat      quick   m/0     not used yet\n"
            r"m      chat      quick   m/1     not used yet\n"
            r"store: none\nlast reload: none since the start\n$",
            shown(process),
        )
        states = r"m/0 +in use\n.* m/1 +avoided, [12] of the last [12] failed\n"  # one attempt of each worker
        assert eventually(lambda: process.call_model("m") == "Hello" and re.search(states, shown(process)))

        process.write("gateway.yaml", files["gateway.yaml"] + "colour: red\n")
        process.reload("error")
        assert "unknown key" in shown(process)
        told = run(tmp_path, "status", "--json", "--url", f"http://127.0.0.1:{admin}/v1")
        assert json.loads(told.stdout)["last_reload"]["error"].startswith("gateway.yaml:7 colour: unknown key")

        process.write("gateway.yaml", files["gateway.yaml"])
        process.reload("ok")
        assert re.search(r"last reload: successful at \S+Z\n$", shown(process))
        process.signal(signal.SIGTERM)
        assert process.process.wait(60) == 0, process.log
        ended = run(tmp_path, "status")
        assert (ended.returncode, ended.stdout) == (1, b"")
        assert f"no gateway answers at http://127.0.0.1:{admin}; start".encode() in ended.stderr


def test_the_status_does_not_contain_the_error_of_a_bug_in_a_worker(tmp_path: Path) -> None:
    files = {"gateway.yaml": CONFIG.format(admin=free_port()), "hello.yaml": "[Hello, {finish: stop}]\n"}
    files["gateway.yaml"] = files["gateway.yaml"].replace("    policy: quick\n", "")
    with serving(tmp_path, files) as process:
        process.write("hello.yaml", "[" * 5000)  # the YAML library raises RecursionError
        process.reload("error")
        told = run(tmp_path, "status", "--json")
        assert json.loads(told.stdout)["last_reload"]["error"] == INTERNAL_ERROR
        assert "RecursionError" in process.log, "the log has the details"


def test_a_gateway_without_an_admin_listener_is_asked_on_loopback_only(tmp_path: Path) -> None:
    (tmp_path / "hello.yaml").write_text("[Hello, {finish: stop}]\n")
    (tmp_path / "gateway.yaml").write_text(
        "server: {host: 0.0.0.0, insecure_no_keys: true, allowed_hosts: [example.org]}\n"
        "models: {m: {template: chat, targets: [{speaks: scripted, script: hello.yaml}]}}\n"
    )
    ended = run(tmp_path, "status")
    assert ended.returncode == 2
    assert b"a gateway at 0.0.0.0 serves its status only on an admin listener; set server.admin" in ended.stderr


def test_a_certificate_that_is_not_trusted_is_named(tmp_path: Path) -> None:
    write_certificate(tmp_path, "ec")
    files = {
        "hello.yaml": "[Hello, {finish: stop}]\n",
        "gateway.yaml": "server: {tls: {certificate: server.crt, key: server.key}}\n"
        "models: {m: {template: chat, targets: [{speaks: scripted, script: hello.yaml}]}}\n",
    }
    with serving(tmp_path, files) as process:
        url = f"https://127.0.0.1:{process.port}"
        ended = run(tmp_path, "status", "--url", url)
        assert ended.returncode == 1
        assert f"the TLS certificate at {url} is not accepted: self".encode() in ended.stderr
        trusted = run(tmp_path, "status", "--url", url, SSL_CERT_FILE=str(tmp_path / "server.crt"))
        assert (trusted.returncode, trusted.stderr) == (0, b"")
        assert trusted.stdout.startswith(f"{url}: serving since".encode())


def test_a_configuration_that_is_given_must_exist(tmp_path: Path) -> None:
    ended = run(tmp_path, "status", "--config", "nosuch.yaml")
    assert ended.returncode == 3
    assert b"nosuch.yaml: no such file" in ended.stderr


@pytest.mark.parametrize("body", [b'{"status": "ok"}', b"[]", b"null"])
def test_a_server_that_is_not_a_gateway_is_named(tmp_path: Path, body: bytes) -> None:
    class Other(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    with HTTPServer(("127.0.0.1", 0), Other) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}"
        ended = run(tmp_path, "status", "--url", url)
        thread.join()
    assert (ended.returncode, ended.stdout) == (1, b"")
    assert f"{url} answers, but is not a gateway with /status".encode() in ended.stderr
    assert b"Traceback" not in ended.stderr
