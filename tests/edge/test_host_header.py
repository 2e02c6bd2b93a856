"""The check of the Host header, against DNS rebinding by web pages."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.config.sections.server import is_loopback
from tests.edge.raw import Reply, exchange
from tests.support.serving import Gateway
from tests.support.world import HELLO, gateway_fixture

MODELS = "models: {m: {template: chat, targets: [{speaks: scripted, script: hello.yaml}]}}\n"


def serve(server: str) -> Any:
    return gateway_fixture(f"server: {{{server}}}\n" + MODELS, HELLO)


plain = serve("")


named = serve('allowed_hosts: ["Gateway.Example"]')


anyone = serve('allowed_hosts: ["*"]')


other_loopback = serve("host: 127.0.0.2")


def ask(served: Gateway, *hosts: str, version: str = "1.1", path: str = "/v1/models") -> Reply:
    lines = [f"GET {path} HTTP/{version}", *[f"Host: {host}" for host in hosts]]
    return exchange(served.port, "\r\n".join(lines).encode() + b"\r\n\r\n")


HOSTS = {  # Host header: accepted by a gateway on 127.0.0.1
    "127.0.0.1": True,
    "127.0.0.1:8000": True,
    "localhost": True,
    "LocalHost:9": True,
    "[::1]": True,
    "[::1]:8000": True,
    "evil.example": False,
    "localhost.evil.example": False,
    "127.0.0.1.evil.example": False,
    "evil.example:127": False,
    "localhost@evil.example": False,
    "localhost:80@evil.example": False,
    "[::1]:80@evil.example": False,
    "[::1]evil.example": False,
    "evil.example@localhost": False,
    "localhost:http": False,
    "localhost:80:80": False,
    "localhost/evil.example": False,
    "127.0.0.2": False,
    "0.0.0.0": False,
    "[::2]": False,
    "[::1": False,
    "": False,
    "gateway.example": False,
}


@pytest.mark.parametrize(("host", "answered"), HOSTS.items(), ids=[host or "empty" for host in HOSTS])
def test_a_gateway_on_loopback_accepts_loopback_hosts(plain: Gateway, host: str, answered: bool) -> None:
    reply = ask(plain, host)
    assert reply.status == (200 if answered else 400)
    if not answered:
        error = reply.json()["error"]
        assert (error["code"], error["type"], error["param"]) == ("bad_host", "invalid_request_error", None)
        assert reply.headers["connection"] == "close"
        assert reply.closed


def test_a_refused_host_is_named(plain: Gateway) -> None:
    def told(*hosts: str, version: str = "1.1") -> str:
        return str(ask(plain, *hosts, version=version).json()["error"]["message"])

    advice = "which is not allowed; the operator can add this host to server.allowed_hosts"
    assert told("Evil.example:80") == f'the Host header names "evil.example", {advice}'
    assert told("[::2]:1") == f'the Host header names "[::2]", {advice}'
    assert told("x" * 300) == f'the Host header names "{"x" * 64}…", {advice}'
    assert told('a"b') == 'the Host header "a\\"b" is not a valid host'
    assert told(version="1.0") == "the Host header is missing"


@pytest.mark.parametrize(
    "path", ["/metrics", "/status", "/v1/models", "/m/v1/models", "/nowhere", "/health/", "/healthy"]
)
def test_the_host_is_checked_on_every_path_except_health(plain: Gateway, path: str) -> None:
    assert ask(plain, "evil.example", path=path).json()["error"]["code"] == "bad_host"


@pytest.mark.parametrize("path", ["/health", "/health/live", "/health/ready"])
def test_health_checks_accept_any_host(plain: Gateway, path: str) -> None:
    asked = (ask(plain, "10.0.0.7:8000", path=path), ask(plain, version="1.0", path=path))
    assert [reply.status for reply in asked] == [200, 200]


TARGETS = {  # an absolute request target beside "Host: localhost:8000", and the status
    "http://localhost:8000/v1/models": 200,
    "http://LOCALHOST:8000/v1/models": 200,
    "http://evil.example/v1/models": 400,
    "http://localhost/v1/models": 400,
    "http://localhost:8000@evil.example/v1/models": 400,
    "http://evil.example@localhost:8000/v1/models": 400,
    "/v1/models?next=http://evil.example/": 200,
}


@pytest.mark.parametrize("target", TARGETS)
def test_an_absolute_request_target_must_have_the_same_host(plain: Gateway, target: str) -> None:
    reply = ask(plain, "localhost:8000", path=target)
    assert reply.status == TARGETS[target]
    if reply.status == 400:
        assert reply.json()["error"]["code"] in ("bad_host", "invalid_request")


def test_two_hosts_are_refused(plain: Gateway) -> None:
    assert ask(plain, "localhost", "localhost").status == 400


def test_no_host_is_refused(plain: Gateway) -> None:
    assert ask(plain, version="1.0").status == 400


def test_a_configured_host_is_accepted_besides_loopback_hosts(named: Gateway) -> None:
    hosts = ("gateway.example", "GATEWAY.example:443", "localhost", "other.example")
    assert [ask(named, host).status for host in hosts] == [200, 200, 200, 400]


def test_a_star_accepts_every_host(anyone: Gateway) -> None:
    assert [ask(anyone, host).status for host in ("a.example", "[::5]:1", "my_service:8000")] == [200, 200, 200]


@pytest.mark.parametrize("host", ["x/admin?", "x?y", "x#y", "x y", "x@y", "x\\y", "[x]", "a, b", ""])
def test_a_star_accepts_only_valid_hosts(anyone: Gateway, host: str) -> None:
    assert ask(anyone, host).json()["error"]["code"] == "bad_host"


@pytest.mark.parametrize(
    ("host", "own"),
    [
        ("localhost", True),
        ("LOCALHOST", True),
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("[::1]", True),
        ("0:0:0:0:0:0:0:1", True),
        ("0.0.0.0", False),
        ("::", False),
        ("127.example", False),
        ("10.0.0.1", False),
    ],
)
def test_loopback_hosts_are_recognized(host: str, own: bool) -> None:
    assert is_loopback(host) is own


def test_the_listening_address_is_an_accepted_host(other_loopback: Gateway) -> None:
    hosts = ("127.0.0.2:8000", "127.0.0.1", "127.0.0.3")
    assert [ask(other_loopback, host).status for host in hosts] == [200, 200, 400]
