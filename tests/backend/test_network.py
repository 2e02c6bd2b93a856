"""Targets behind an HTTP proxy, and with a certificate of a private authority."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import uvloop
from pydantic import SecretStr

from gateway.backend.http_client.client import HttpClient
from gateway.backend.openai.base import open_endpoint
from gateway.backend.openai.completions import CompletionsBackend
from gateway.backend.openai.health import HealthProbe
from gateway.backend.openai.tokenizer_client import TokenizerClient
from gateway.backend.openai.upstream_request import read_body
from gateway.config.sections.tls import tls_context
from gateway.config.snapshot import TargetSpec
from gateway.core.errors import UpstreamError
from tests.backend.ask import exchange, listen, target
from tests.support.certificates import write_certificate
from tests.support.proxies import ProxyDouble, in_front_of, listening
from tests.support.upstream.reply import TEXT
from tests.support.upstream.server import FaultyUpstream, refused_url

PASSWORD = "pass-word"
BASIC = "Basic " + base64.b64encode(f"user:{PASSWORD}".encode()).decode()
SECONDS = 60.0
SCHEMES = ("http", "https")
LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
"""The gateway's own server has uvloop; an ASGI server may have the other one."""

Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(params=list(LOOPS.values()), ids=list(LOOPS))
def run(request: pytest.FixtureRequest) -> Run:
    """Runs a test in each kind of event loop."""

    def run(test: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(test)

    return run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two self-signed certificates for localhost: ``server`` and ``other``."""
    made = tmp_path_factory.mktemp("certificates")
    for name in ("server", "other"):
        write_certificate(made, "ec", name)
    return made


@dataclass
class World:
    """An upstream that also answers with TLS, a proxy, and a client."""

    up: FaultyUpstream
    proxy: ProxyDouble
    proxy_url: str
    tls_port: int
    certificate: str
    client: HttpClient

    def target(self, scheme: str, mode: str = "ok", **changes: Any) -> TargetSpec:
        """The upstream behind the proxy."""
        root = f"http://127.0.0.1:{self.up.port}"
        url = self.up.url(mode).replace(root, root if scheme == "http" else f"https://localhost:{self.tls_port}")
        auth = SecretStr(f"user:{PASSWORD}")
        own = {"proxy": self.proxy_url, "proxy_auth": auth, "authorities": self.certificate}
        return target(url, **{**own, **changes})

    async def text(self, spec: TargetSpec, stream: bool = True) -> str:
        """The answer of a target."""
        heard = await listen(CompletionsBackend(spec, self.client, SECONDS), exchange(stream))
        assert heard.error is None, (heard.error.message, heard.error.reason)
        return heard.text()

    async def error(self, spec: TargetSpec, seconds: float = SECONDS) -> UpstreamError:
        """The error of a target."""
        error = (await listen(CompletionsBackend(spec, self.client, seconds), exchange())).error
        assert isinstance(error, UpstreamError)
        for private in (PASSWORD, BASIC, self.proxy_url.removeprefix("http://")):
            assert private not in f"{error.message} {error.reason}"
        return error


@asynccontextmanager
async def world(up: FaultyUpstream, folder: Path, proxy: ProxyDouble | None = None) -> AsyncIterator[World]:
    proxy, client = proxy or ProxyDouble(), HttpClient()
    tls = tls_context(folder / "server.crt", folder / "server.key")
    async with listening(proxy.serve) as port, listening(in_front_of(up.port), tls) as tls_port:
        certificate = (folder / "server.crt").read_text()
        yield World(up, proxy, f"http://127.0.0.1:{port}", tls_port, certificate, client)
        await client.aclose()


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "json"])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_answers_come_through_the_proxy_and_its_connections_are_used_again(
    run: Run, up: FaultyUpstream, folder: Path, scheme: str, stream: bool
) -> None:
    async def test() -> None:
        async with world(up, folder) as made:
            spec = made.target(scheme)
            for _ in range(5):
                assert await made.text(spec, stream) == TEXT
            # A body whose end is later than ``DRAIN_TIMEOUT``, on a busy machine, costs its connection.
            assert made.proxy.connections < 5
            starts = {head.split("\r\n")[0] for head in made.proxy.heads}
            if scheme == "http":
                assert starts == {f"POST {up.url('ok')}/completions HTTP/1.1"}
            else:
                assert starts == {f"CONNECT localhost:{made.tls_port} HTTP/1.1"}
            assert all(f"proxy-authorization: {BASIC}\r\n" in head for head in made.proxy.heads)
            assert "proxy-authorization" not in up.requests[-1].headers
            assert up.requests[-1].headers["authorization"] == "Bearer sk-op"
            assert ("Bearer" in "".join(made.proxy.heads)) is (scheme == "http"), "a tunnel hides the target's key"

    run(test())


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_health_checks_and_token_counts_come_through_the_proxy(
    up: FaultyUpstream, folder: Path, scheme: str
) -> None:
    async with world(up, folder) as made:
        spec, before = made.target(scheme), up.connections
        assert await HealthProbe(spec, made.client, "/health", SECONDS, "policy").check() == ""
        await TokenizerClient(spec, made.client, SECONDS).ask("/tokenize", {"prompt": "a"})
        assert made.proxy.connections == up.connections - before > 0


async def test_ways_that_differ_share_no_connection(up: FaultyUpstream, folder: Path) -> None:
    async with world(up, folder) as made:
        other = (folder / "other.crt").read_text()
        ways = [
            made.target("https"),
            made.target("https", proxy_auth=None),
            made.target("https", authorities=made.certificate + other),
            made.target("https", proxy=made.proxy_url.replace("127.0.0.1", "localhost")),
        ]
        for number, way in enumerate(ways, 1):
            assert await made.text(way) == await made.text(way) == TEXT
            assert made.proxy.connections == number
        before = up.connections
        assert await made.text(made.target("https", proxy="")) == TEXT
        assert (made.proxy.connections, up.connections) == (len(ways), before + 1)


@pytest.mark.parametrize("authorities", ["", "other.crt"], ids=["no ca", "another ca"])
async def test_the_systems_authorities_stay_trusted(
    up: FaultyUpstream, folder: Path, authorities: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``SSL_CERT_FILE`` names the system's authorities; ``ca`` adds others."""
    monkeypatch.setenv("SSL_CERT_FILE", str(folder / "server.crt"))
    async with world(up, folder) as made:
        trusted = (folder / authorities).read_text() if authorities else ""
        assert await made.text(made.target("https", authorities=trusted)) == TEXT


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_connection_that_was_closed_meanwhile_is_replaced(
    run: Run, up: FaultyUpstream, folder: Path, scheme: str
) -> None:
    async def test() -> None:
        async with world(up, folder) as made:
            spec = made.target(scheme)
            endpoint = open_endpoint(made.client, spec, f"{spec.url}/completions", SECONDS)
            for number in (1, 2, 3):
                answer = await endpoint.post_idempotent(b'{"prompt": "a"}')
                assert TEXT.encode()[:4] in await read_body(answer)
                answer.release()
                assert made.proxy.connections == number
                made.proxy.drop()

    run(test())


CONNECTING = {
    "the proxy does not answer": b"",
    "the server does not answer in the tunnel": b"HTTP/1.1 200 OK\r\n\r\n",
}


@pytest.mark.parametrize("answer", CONNECTING.values(), ids=CONNECTING)
def test_a_call_that_is_cancelled_while_connecting_closes_the_connection(
    run: Run, up: FaultyUpstream, folder: Path, answer: bytes
) -> None:
    async def test() -> None:
        async with world(up, folder, ProxyDouble(answer)) as made:
            call = asyncio.create_task(made.text(made.target("https")))
            await made.proxy.answered.wait()
            call.cancel()
            await asyncio.wait([call])
            assert call.cancelled()
            async with asyncio.timeout(SECONDS):
                await made.proxy.left.wait()

    run(test())


@pytest.mark.parametrize("answer", CONNECTING.values(), ids=CONNECTING)
async def test_connecting_through_a_proxy_has_a_timeout(up: FaultyUpstream, folder: Path, answer: bytes) -> None:
    async with world(up, folder, ProxyDouble(answer)) as made:
        error = await made.error(made.target("https"), seconds=0.1)
        assert (error.code, error.message[:10]) == ("upstream_connect_timeout", "the proxy,")
        async with asyncio.timeout(SECONDS):
            await made.proxy.left.wait()


def status(line: str) -> bytes:
    return f"HTTP/1.1 {line}\r\ncontent-length: 0\r\n\r\n".encode()


REFUSALS: dict[str, tuple[str, bytes, str, str]] = {
    # name: the scheme of the target, the answer of the proxy, the error code and its message
    "no credentials": (
        "https",
        status("407 Proxy Authentication Required"),
        "upstream_unreachable",
        "the proxy refuses the connection to the model's server (status 407); set or correct proxy_auth",
    ),
    "not allowed": (
        "https",
        status("403 Filtered"),
        "upstream_unreachable",
        "the proxy refuses the connection to the model's server (status 403); allow the address of the model's server "
        "at the proxy",
    ),
    "the server is not reached": (
        "https",
        b"HTTP/1.0 503 Service Unavailable\r\nserver: squid\r\n\r\n<html>10.11.12.13",
        "upstream_unreachable",
        "the proxy refuses the connection to the model's server (status 503); check url, and the log of the proxy",
    ),
    "no HTTP": (
        "https",
        b"SSH-2.0-OpenSSH_9.2p1\r\n",
        "upstream_invalid_response",
        "the proxy does not answer in valid HTTP",
    ),
    "an end without an answer": ("https", b"", "upstream_disconnected", "the proxy closed the connection"),
    "TLS at the proxy": (
        "https",
        b"\x15\x03\x01\x00\x02\x02\x46",
        "upstream_unreachable",
        "the proxy answers in TLS; name its port without TLS in proxy",
    ),
    "an end in the tunnel": (
        "https",
        b"HTTP/1.1 200 OK\r\n\r\n",
        "upstream_unreachable",
        "the proxy, or the model's server behind it, does not accept connections: ",
    ),
    "no credentials, forwarded": (
        "http",
        status("407 Proxy Authentication Required"),
        "upstream_unreachable",
        "the proxy refuses the request; the operator has to set or correct proxy_auth",
    ),
    "no HTTP, forwarded": (
        "http",
        b"SSH-2.0-OpenSSH_9.2p1\r\n",
        "upstream_invalid_response",
        "the proxy does not answer in valid HTTP",
    ),
    "an end without an answer, forwarded": (
        "http",
        b"",
        "upstream_disconnected",
        "the proxy closed the connection",
    ),
}


@pytest.mark.parametrize(("scheme", "answer", "code", "message"), REFUSALS.values(), ids=REFUSALS)
def test_a_refusing_proxy_is_named(
    run: Run, up: FaultyUpstream, folder: Path, scheme: str, answer: bytes, code: str, message: str
) -> None:
    async def test() -> None:
        async with world(up, folder, ProxyDouble(answer, closes=True)) as made:
            error = await made.error(made.target(scheme))
            assert error.code == code
            assert error.message.startswith(message)
            assert "https://" not in error.reason

    run(test())


@pytest.mark.parametrize("shown", [f"user:{PASSWORD}", PASSWORD, BASIC])
async def test_credentials_in_the_words_of_the_proxy_are_removed(up: FaultyUpstream, folder: Path, shown: str) -> None:
    body = json.dumps({"error": {"message": f"cannot connect for {shown} now"}})
    answer = f"HTTP/1.1 400 Bad Request\r\ncontent-length: {len(body)}\r\n\r\n{body}".encode()
    async with world(up, folder, ProxyDouble(answer, closes=True)) as made:
        error = (await listen(CompletionsBackend(made.target("http"), made.client, SECONDS), exchange())).error
        assert error is not None
        assert "cannot connect for" in error.message
        assert shown.removeprefix("Basic ") not in f"{error.message} {error.reason}"


UNREACHABLE = {
    "nothing listens": (
        refused_url().removesuffix("/v1"),
        "upstream_unreachable",
        "the proxy does not accept connections; check proxy, and that it runs",
    ),
    "no such host": (
        "http://proxy.invalid:3128",
        "upstream_dns_error",
        "the host name of the proxy does not resolve; check proxy",
    ),
}


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize(("proxy", "code", "message"), UNREACHABLE.values(), ids=UNREACHABLE)
async def test_a_proxy_that_cannot_be_reached_is_named(
    up: FaultyUpstream, folder: Path, scheme: str, proxy: str, code: str, message: str
) -> None:
    async with world(up, folder) as made:
        error = await made.error(made.target(scheme, proxy=proxy))
        assert (error.code, error.message, error.retryable) == (code, message, True)


@pytest.mark.parametrize("proxied", [True, False])
@pytest.mark.parametrize("authorities", ["", "other.crt"], ids=["no ca", "a wrong ca"])
def test_a_certificate_of_another_authority_is_named_and_gets_no_request(
    run: Run, up: FaultyUpstream, folder: Path, authorities: str, proxied: bool
) -> None:
    async def test() -> None:
        async with world(up, folder) as made:
            trusted = (folder / authorities).read_text() if authorities else ""
            before = up.request_count
            spec = made.target("https", authorities=trusted, **({} if proxied else {"proxy": ""}))
            error = await made.error(spec)
            assert error.code == "upstream_unreachable"
            assert error.message == "the TLS certificate of the model's server is not trusted; set or correct ca"
            assert "self-signed certificate" in error.reason
            assert up.request_count == before

    run(test())


def test_the_certificate_must_be_for_the_name_in_the_url(run: Run, up: FaultyUpstream, folder: Path) -> None:
    """The proxy resolves the name, and TLS in the tunnel checks it."""

    async def test() -> None:
        async with world(up, folder) as made:
            spec = made.target("https")
            error = await made.error(target(spec.url.replace("localhost", "model.invalid"), **ways_of(spec)))
            assert "not valid for 'model.invalid'" in error.reason
            assert made.proxy.heads[-1].startswith(f"CONNECT model.invalid:{made.tls_port} HTTP/1.1\r\n")

    run(test())


def ways_of(spec: TargetSpec) -> dict[str, Any]:
    return {"proxy": spec.proxy, "proxy_auth": spec.proxy_auth, "authorities": spec.authorities}


async def test_an_answer_to_connect_in_pieces_and_with_many_fields_opens_the_tunnel(
    up: FaultyUpstream, folder: Path
) -> None:
    async with world(up, folder, ProxyDouble(fields="x-a: b\r\n" * 100, slow=True)) as made:
        assert await made.text(made.target("https")) == TEXT


async def test_an_address_in_brackets_keeps_them(up: FaultyUpstream, folder: Path) -> None:
    async with world(up, folder, ProxyDouble(status("403 No"), closes=True)) as made:
        for scheme, start in (("http", "POST http://[::1]:9/v1/completions"), ("https", "CONNECT [::1]:9")):
            spec = made.target("http")
            await made.error(target(f"{scheme}://[::1]:9/v1", **ways_of(spec)))
            assert made.proxy.heads[-1].startswith(f"{start} HTTP/1.1\r\nhost: [::1]:9\r\n")
