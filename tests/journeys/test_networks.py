"""A gateway whose targets are behind a real proxy (tinyproxy), one of them with a private authority."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.journeys.process import Process, environment, serving
from tests.support.certificates import write_certificate
from tests.support.proxies import tinyproxy
from tests.support.serving import WAIT_SECONDS, Gateway, eventually, gateway
from tests.support.upstream.reply import TEXT
from tests.support.upstream.server import FaultyUpstream

INNER = """\
server: {tls: {certificate: server.crt, key: server.key}}
models: {tiny: {template: chat, targets: [{speaks: scripted, script: hello.yaml}]}}
"""
OUTER = """\
network: {{proxy: "{proxy}", proxy_auth: "env:PROXY_AUTH", no_proxy: [direct.example.org]}}
models:
  tls:
    template: chat
    targets: [{{speaks: chat, url: "https://localhost:{tls}/v1", model: tiny, ca: server.crt}}]
  plain:
    template: chat
    targets: [{{speaks: chat, url: "{plain}", model: tiny}}]
  wrong-ca:
    template: chat
    targets: [{{speaks: chat, url: "https://localhost:{tls}/v1", model: tiny, ca: other.crt}}]
  no-credentials:
    template: chat
    targets: [{{speaks: chat, url: "https://localhost:{tls}/v1", model: tiny, ca: server.crt, proxy: "{proxy}"}}]
  no-credentials-plain:
    template: chat
    targets: [{{speaks: chat, url: "{plain}", model: tiny, proxy: "{proxy}"}}]
"""
AUTH = "gateway:pass-word"


@pytest.fixture(scope="module")
def inner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """The server of the model behind TLS."""
    folder = tmp_path_factory.mktemp("inner")
    for name in ("server", "other"):
        write_certificate(folder, "ec", name)
    with gateway(folder, INNER, files={"hello.yaml": "[Hello, ' there', {finish: stop}]"}) as served:
        yield served


@pytest.fixture(scope="module")
def proxied(inner: Gateway, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Process, Path]]:
    """The gateway in front, and the log of the proxy."""
    folder = tmp_path_factory.mktemp("outer")
    with FaultyUpstream() as up, tinyproxy(folder, f"BasicAuth {AUTH.replace(':', ' ')}") as (proxy, log):
        files = {
            "gateway.yaml": OUTER.format(proxy=proxy, tls=inner.port, plain=up.url("ok")),
            **{name: (inner.folder / name).read_text() for name in ("server.crt", "other.crt")},
        }
        with serving(folder, files, PROXY_AUTH=AUTH) as served:
            yield served, log


ANSWERS = {"tls": "Hello there", "plain": TEXT}


@pytest.mark.parametrize("model", ANSWERS)
def test_whole_and_streamed_answers_come_through_the_proxy(proxied: tuple[Process, Path], model: str) -> None:
    served, log = proxied
    assert served.call_model(model) == ANSWERS[model]
    body = {"model": model, "messages": [{"role": "user", "content": "hi"}], "stream": True}
    lines = served.http.post("/v1/chat/completions", json=body).text.split("\n\n")
    assert lines[-2:] == ["data: [DONE]", ""]
    choices = [choice for one in lines[:-2] for choice in json.loads(one.removeprefix("data: "))["choices"]]
    assert "".join(choice["delta"].get("content") or "" for choice in choices) == ANSWERS[model]
    line = "CONNECT localhost:" if model == "tls" else "POST http://127.0.0.1:"
    assert f": {line}" in log.read_text()


def test_the_live_check_comes_through_the_proxy(proxied: tuple[Process, Path]) -> None:
    served, log = proxied
    before = log.read_text().count("CONNECT localhost")
    command = [sys.executable, "-m", "gateway", "check", "--live", "--json"]
    ended = subprocess.run(
        command,
        cwd=served.folder,
        env=environment(PROXY_AUTH=AUTH),
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=False,
    )
    assert '"label": "tls/0",\n      "found": "serves tiny"' in ended.stdout
    assert ended.stdout.count("is not trusted; set or correct ca") == 1
    assert ended.stdout.count("set or correct proxy_auth") == 2
    assert log.read_text().count("CONNECT localhost") >= before + 3


FAULTS = {
    "wrong-ca": "the TLS certificate of the model's server is not trusted; set or correct ca: self-signed certificate",
    "no-credentials": "the proxy refuses the connection to the model's server (status 407); set or correct proxy_auth",
    "no-credentials-plain": "",
}


@pytest.mark.parametrize("model", FAULTS)
def test_a_wrong_authority_and_a_refusing_proxy_are_in_the_log(proxied: tuple[Process, Path], model: str) -> None:
    served, _ = proxied
    assert served.call_model(model) == "upstream_unreachable"
    line = f"attempt_failed model={model} "
    assert eventually(lambda: line in served.log)
    (found,) = [one for one in served.log.splitlines() if line in one]
    assert FAULTS[model] in found
    assert "pass-word" not in served.log
