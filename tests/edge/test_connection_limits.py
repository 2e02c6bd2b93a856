"""Limits of open connections, in all and of one client (row D08 of ``docs/spec/reliability.md``)."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.edge.raw import Reply, closes, read_reply
from tests.serving import Gateway, eventually, gateway

CONFIG = """\
server: {max_connections: 6, max_connections_per_client: 4}
models: {m: {template: chat, targets: [{speaks: scripted, script: hello.yaml}]}}
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    folder = tmp_path_factory.mktemp("connections")
    (folder / "hello.yaml").write_text("[Hello, {finish: stop}]")
    with gateway(folder, CONFIG) as one:
        yield one


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
