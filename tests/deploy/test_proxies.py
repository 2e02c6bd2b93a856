"""The blocks for nginx, Caddy and systemd in docs/operations.md, run as they stand except for ports and paths.

``tests/deploy/install-tools`` installs the programs on Debian and Ubuntu.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from gateway.config.snapshot import DeliveryPolicy, ServerSpec
from gateway.edge.http1.state import ConnectionTimeouts
from tests.support.certificates import write_certificate
from tests.support.ports import free_port
from tests.support.serving import ROOT, WAIT_SECONDS, Gateway, eventually, gateway

PAGE = (ROOT / "docs/operations.md").read_text(encoding="utf-8")
HOST = "gateway.example.org"
CONFIG = f"""\
server: {{allowed_hosts: [{HOST}], admin: "127.0.0.1:9464"}}
models:
  short: {{template: chat, targets: [{{speaks: scripted, script: short.yaml}}]}}
  quick: {{template: chat, targets: [{{speaks: scripted, script: quick.yaml}}]}}
  slow: {{template: chat, targets: [{{speaks: scripted, script: slow.yaml}}]}}
  silent: {{template: chat, targets: [{{speaks: scripted, script: silent.yaml}}]}}
"""
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
{block}}}
"""


def block(language: str) -> str:
    """The text of the page's only block in a language."""
    (found,) = re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    return str(found)


def number(pattern: str, text: str) -> int:
    (found,) = re.findall(pattern, text)
    return int(found)


def needed(program: str) -> str:
    path = shutil.which(program)
    if path is None:
        pytest.skip(f"needs {program}; tests/deploy/install-tools installs it")
    return path


def nginx(folder: Path, port: int, upstream: int) -> list[str]:
    """Write the configuration, and return the command."""
    text = block("nginx").replace("listen 443", f"listen 127.0.0.1:{port}")
    text = text.replace("127.0.0.1:8000", f"127.0.0.1:{upstream}").replace(
        "/etc/gateway/tls/fullchain.pem", "server.crt"
    )
    text = text.replace("/etc/gateway/tls/privkey.pem", "server.key")
    (folder / "nginx.conf").write_text(NGINX.format(block=text))
    return [needed("nginx"), "-p", str(folder), "-c", "nginx.conf", "-e", "stderr"]


def caddy(folder: Path, port: int, upstream: int) -> list[str]:
    """Write the configuration, and return the command. The certificate is a file, because nothing signs a new one."""
    text = block("caddyfile").replace("127.0.0.1:8000", f"127.0.0.1:{upstream}")
    version = subprocess.run([needed("caddy"), "version"], capture_output=True, text=True, check=True).stdout
    if tuple(map(int, re.findall(r"\d+", version)[:3])) < (2, 6, 3):  # Debian 12 has 2.6.2
        text = text.replace("request_buffers 4MiB", "buffer_requests")
    site = f"https://{HOST}:{port} {{\n\tbind 127.0.0.1\n\ttls {folder}/server.crt {folder}/server.key\n"
    (folder / "Caddyfile").write_text("{\n\tadmin off\n\tauto_https off\n}\n" + text.replace(f"{HOST} {{\n", site))
    return [needed("caddy"), "run", "--config", str(folder / "Caddyfile"), "--adapter", "caddyfile"]


PROXIES = {"nginx": nginx, "caddy": caddy}


@contextmanager
def running(command: list[str], folder: Path, port: int) -> Iterator[None]:
    """Run a proxy until the block ends."""
    log = folder / "proxy.log"
    with log.open("wb") as output:
        environment = {**os.environ, "HOME": str(folder), "XDG_DATA_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
        process = subprocess.Popen(command, cwd=folder, stdout=output, stderr=output, env=environment)
    try:
        assert eventually(lambda: process.poll() is not None or _accepts(port)), log.read_text()
        assert process.poll() is None, log.read_text()
        yield
    finally:
        process.terminate()
        process.wait(WAIT_SECONDS)


def _accepts(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="module", params=PROXIES)
def proxied(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Gateway, int]]:
    """A gateway, and the port of a proxy in front."""
    needed(request.param)
    folder, port = tmp_path_factory.mktemp(request.param), free_port()
    (folder / "quick.yaml").write_text("[Hello, {finish: stop}]\n")
    (folder / "short.yaml").write_text("[first, {pause: 0.01}, last, {finish: stop}]\n")
    (folder / "silent.yaml").write_text(f"[{{pause: {WAIT_SECONDS}}}, late, {{finish: stop}}]\n")
    (folder / "slow.yaml").write_text(f"[first, {{pause: {WAIT_SECONDS}}}, last, {{finish: stop}}]\n")
    write_certificate(folder, "ec")
    with gateway(folder, CONFIG) as served, running(PROXIES[request.param](folder, port, served.port), folder, port):
        yield served, port


def ask(port: int, model: str, text: str = "hi", **fields: object) -> httpx.Request:
    return httpx.Request(
        "POST",
        f"https://127.0.0.1:{port}/v1/chat/completions",
        headers={"host": HOST},
        json={"model": model, "messages": [{"role": "user", "content": text}], **fields},
        extensions={"sni_hostname": HOST, "timeout": dict.fromkeys(("connect", "read", "write", "pool"), WAIT_SECONDS)},
    )


def test_calls_pass_the_proxy(proxied: tuple[Gateway, int]) -> None:
    _, port = proxied
    with httpx.Client(verify=False, trust_env=False) as client:
        for _ in range(3):
            answer = client.send(ask(port, "quick"))
            assert answer.status_code == 200, answer.text
            assert answer.json()["choices"][0]["message"]["content"] == "Hello"
            assert "x-gateway-target" in answer.headers
        long = client.send(ask(port, "quick", "x" * 3_900_000))
        assert long.json()["error"]["code"] == "context_length_exceeded", "the gateway itself has answered"
        assert client.send(ask(port, "quick", "x" * 4_300_000)).status_code == 413


LEAVING = {
    "after the first content": ("slow", True, b"first"),
    "before the first content": ("silent", True, b""),
    "without a stream": ("silent", False, b""),
}


@pytest.mark.parametrize(("model", "stream", "read"), LEAVING.values(), ids=LEAVING)
def test_a_call_is_not_buffered_and_ends_when_the_client_leaves(
    proxied: tuple[Gateway, int], model: str, stream: bool, read: bytes
) -> None:
    def left() -> float:
        return served.metric("gateway_requests_total", endpoint="chat", model=model, outcome="client_gone")

    served, port = proxied
    before, request = left(), ask(port, model, stream=stream)
    head = "".join(f"{name}: {value}\r\n" for name, value in request.headers.items())
    context = ssl._create_unverified_context()
    plain = socket.create_connection(("127.0.0.1", port), WAIT_SECONDS)
    with context.wrap_socket(plain, server_hostname=HOST) as client:
        client.sendall(f"POST {request.url.path} HTTP/1.1\r\n{head}\r\n".encode() + request.read())
        assert eventually(lambda: served.running() == 1)
        received = b""
        while read not in received:
            received += (piece := client.recv(65536))
            assert piece, received
        assert served.running() == 1
    assert eventually(lambda: left() == before + 1), "the gateway has seen the client leave"


def test_no_stream_is_cut(proxied: tuple[Gateway, int]) -> None:
    """Caddy without buffered requests cut one stream in twenty of those whose answer began at once."""
    _, port = proxied
    for _ in range(100):
        with httpx.Client(verify=False, trust_env=False) as client:
            assert client.send(ask(port, "short", stream=True)).text.endswith("data: [DONE]\n\n")


@pytest.mark.parametrize("path", ["/metrics", "/status"])
def test_the_proxy_shows_nothing_of_the_admin_listener(proxied: tuple[Gateway, int], path: str) -> None:
    _, port = proxied
    with httpx.Client(verify=False, trust_env=False) as client:
        asked = httpx.Request(
            "GET", f"https://127.0.0.1:{port}{path}", headers={"host": HOST}, extensions={"sni_hostname": HOST}
        )
        assert client.send(asked).status_code == 404


def test_the_unit_is_valid(tmp_path: Path) -> None:
    verify = needed("systemd-analyze")
    unit = block("ini").replace("/opt/gateway/bin/gateway", sys.executable)

    def faults(text: str) -> str:
        (tmp_path / "gateway.service").write_text(text)
        ended = subprocess.run(
            [verify, "verify", "--man=no", str(tmp_path / "gateway.service")],
            capture_output=True,
            text=True,
            check=False,
        )
        return "".join([line for line in ended.stderr.splitlines(keepends=True) if "gateway.service" in line])

    assert faults(unit) == ""
    assert "restart specifier" in faults(unit.replace("Restart=on-failure", "Restart=sometimes"))


LIMITS: dict[str, Callable[[], bool]] = {
    "nginx, size of a body": lambda: (
        number(r"client_max_body_size (\d+)m", block("nginx")) << 20 == ServerSpec().max_body
    ),
    "nginx, time of a call": lambda: (
        number(r"proxy_read_timeout (\d+)s", block("nginx")) > DeliveryPolicy().timeout.total
    ),
    "Caddy, time of a call": lambda: (
        number(r"header_timeout (\d+)s", block("caddyfile")) > DeliveryPolicy().timeout.total
    ),
    "Caddy, idle connections": lambda: number(r"keepalive (\d+)s", block("caddyfile")) < ConnectionTimeouts().idle,
    "systemd, drain": lambda: number(r"TimeoutStopSec=(\d+)", block("ini")) > ServerSpec().drain + 10,
    "systemd, open files": lambda: number(r"LimitNOFILE=(\d+)", block("ini")) > 2 * ServerSpec().max_connections,
}


@pytest.mark.parametrize("limit", LIMITS.values(), ids=LIMITS)
def test_a_limit_fits_the_default_of_the_gateway(limit: Callable[[], bool]) -> None:
    assert limit()
