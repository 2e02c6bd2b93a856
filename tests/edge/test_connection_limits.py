"""Limits of open connections, in all and of one client (row D08 of ``docs/spec/reliability.md``)."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from gateway.edge.http1.connection import client_of
from tests.edge.raw import Reply, closes, read_reply
from tests.support.certificates import trusting, write_certificate
from tests.support.serving import Gateway, eventually, gateway
from tests.support.world import HELLO, gateway_fixture

CONFIG = """\
server: {max_connections: 6, max_connections_per_client: 4}
models: {m: {template: chat, targets: [{speaks: scripted, script: hello.yaml}]}}
"""


served = gateway_fixture(CONFIG, HELLO)


def connect(served: Gateway, links: ExitStack, address: str = "127.0.0.1") -> socket.socket:
    return links.enter_context(
        socket.create_connection(("127.0.0.1", served.port), timeout=60, source_address=(address, 0))
    )


def ask(link: socket.socket) -> Reply:
    link.sendall(b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n")
    return read_reply(link)


def shed(served: Gateway, reason: str) -> float:
    return served.metric("gateway_shed_total", reason=reason)


def test_a_client_with_too_many_connections_is_refused_and_others_are_served(served: Gateway) -> None:
    before = shed(served, "client_connections")
    with ExitStack() as links:
        own = [connect(served, links) for _ in range(4)]
        assert [ask(link).status for link in own] == [200] * 4
        refused = read_reply(connect(served, links))
        assert refused.status == 503
        assert refused.json()["error"]["code"] == "overloaded"
        assert "server.max_connections_per_client=4" in refused.json()["error"]["message"]
        assert int(refused.headers["retry-after"]) >= 1
        assert refused.closed
        assert ask(connect(served, links, "127.0.0.2")).status == 200
        assert [ask(link).status for link in own] == [200] * 4
        own[0].close()
        assert eventually(lambda: served.metric("gateway_connections") == 4)
        assert ask(connect(served, links)).status == 200
    assert shed(served, "client_connections") == before + 1
    assert eventually(lambda: served.metric("gateway_connections") == 0)


def test_connections_beyond_the_total_are_refused(served: Gateway) -> None:
    before = shed(served, "connections")
    with ExitStack() as links:
        for client in range(6):
            assert ask(connect(served, links, f"127.0.0.{client + 10}")).status == 200
        refused = read_reply(connect(served, links))
        assert "server.max_connections=6" in refused.json()["error"]["message"]
    assert shed(served, "connections") == before + 1
    assert eventually(lambda: served.metric("gateway_connections") == 0)
    with ExitStack() as links:
        link = connect(served, links)
        assert ask(link).status == 200
        assert not closes(link, 0.05)


@pytest.fixture(scope="module")
def https(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Gateway, ssl.SSLContext]]:
    folder = tmp_path_factory.mktemp("tls-connections")
    write_certificate(folder, "ec")
    tls = "tls: {certificate: server.crt, key: server.key}"
    with gateway(folder, CONFIG.replace("server: {", f"server: {{{tls}, "), files=HELLO) as one:
        yield one, trusting(folder / "server.crt")


def test_tls_handshakes_that_do_not_end_count_as_connections(https: tuple[Gateway, ssl.SSLContext]) -> None:
    served, context = https
    before = shed(served, "client_connections"), shed(served, "connections")

    def encrypted(link: socket.socket) -> socket.socket:
        return links.enter_context(context.wrap_socket(link, server_hostname="localhost"))

    with ExitStack() as links:
        for number in range(4):
            link = connect(served, links)
            link.sendall(b"\x16\x03\x01"[:number])  # nothing, or the beginning of a handshake
        assert eventually(lambda: served.metric("gateway_connections") == 4)
        assert closes(connect(served, links), 30), "one too many of this client"
        assert ask(encrypted(connect(served, links, "127.0.0.2"))).status == 200
        assert ask(encrypted(connect(served, links, "127.0.0.3"))).status == 200
        assert closes(connect(served, links, "127.0.0.4"), 30), "one too many of all"
    assert (shed(served, "client_connections"), shed(served, "connections")) == (before[0] + 1, before[1] + 1)
    assert eventually(lambda: served.metric("gateway_connections") == 0)
    with ExitStack() as links:
        own = [encrypted(connect(served, links)) for _ in range(4)]
        assert [ask(link).status for link in own] == [200] * 4, "a connection counts once, before and after"
        assert served.metric("gateway_connections") == 4
    assert eventually(lambda: served.metric("gateway_connections") == 0)


CLIENTS = {
    "192.0.2.7": "192.0.2.7",
    "2001:db8:1:2:3:4:5:6": "2001:db8:1:2::/64",
    "2001:db8:1:2::9": "2001:db8:1:2::/64",
    "2001:db8:1:3::9": "2001:db8:1:3::/64",
    "fe80::1%eth0": "fe80::/64",
    "::ffff:192.0.2.7": "192.0.2.7",
}


@pytest.mark.parametrize("address", CLIENTS)
def test_the_addresses_of_one_ipv6_network_are_one_client(address: str) -> None:
    assert client_of(address) == CLIENTS[address]
