"""Requests to a running gateway that answers badly; ``tests/cli/test_run.py`` has the good answers."""

from __future__ import annotations

import asyncio
import socket

import pytest

from gateway.cli.running.gateways import GatewayUnreachable, HttpAnswer, NoAnswer, RemoteSource


async def post(port: int, seconds: float = 60.0) -> HttpAnswer:
    async with RemoteSource(f"http://127.0.0.1:{port}/v1", None, seconds).open(1) as gateway:
        return await gateway.post("/v1/completions", b"{}")


def test_a_silent_gateway_is_left_after_the_timeout() -> None:
    silent = socket.create_server(("127.0.0.1", 0))
    with silent, pytest.raises(NoAnswer, match=r"the gateway did not answer within 0\.05 s") as left:
        asyncio.run(post(silent.getsockname()[1], 0.05))
    assert left.value.code == "timeout"


def test_a_closed_connection_is_no_answer() -> None:
    async def close(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async def ask() -> HttpAnswer:
        async with await asyncio.start_server(close, "127.0.0.1", 0) as server:
            return await post(server.sockets[0].getsockname()[1])

    with pytest.raises(NoAnswer, match="the connection to the gateway failed") as lost:
        asyncio.run(ask())
    assert lost.value.code == "no_answer"


def test_a_port_without_a_server_is_unreachable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    with pytest.raises(GatewayUnreachable, match=f"no gateway answers at http://127.0.0.1:{port}/v1"):
        asyncio.run(post(port))
