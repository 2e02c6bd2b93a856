"""After an unusual exchange the next call on the same pool gets its own answer, and nothing else."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass, field

import pytest

from gateway.backend.http_client.client import HttpClient
from gateway.backend.openai.upstream_request import read_body
from gateway.core.errors import GatewayError

OK = b"HTTP/1.1 200 OK\r\n"
POISON = OK + b"content-length: 6\r\n\r\npoison"
NEXT = OK + b"content-length: 4\r\n\r\nnext"
LATER = b"LATER"
"""In a script: a moment passes."""


@dataclass
class Upstream:
    """Answers the first request by its script, all others well; counts what it gets."""

    script: list[bytes]
    closes: bool = False
    """Closes the first connection after the script."""
    reads_body: bool = True
    """False: the first answer comes when the request's head is there."""
    requests: int = 0
    connections: int = 0
    places: list[int] = field(default_factory=list)
    """The connection of each request."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        place = self.connections
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                self.requests += 1
                self.places.append(place)
                first = self.requests == 1
                size = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
                if not first or self.reads_body:
                    await reader.readexactly(size)
                for piece in self.script if first else [NEXT]:
                    if piece == LATER:
                        await asyncio.sleep(0.03)
                    else:
                        writer.write(piece)
                if first and self.closes:
                    break
                if first and not self.reads_body:
                    await asyncio.sleep(0.3)
                    writer.write(POISON)  # for whatever has come since
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


ROWS: dict[str, tuple[Upstream, bytes | str, bool]] = {
    # what the first exchange is: the upstream, its body or error, and whether its connection may serve the next call
    "a good answer": (Upstream([NEXT]), b"next", True),
    "interim answers": (Upstream([b"HTTP/1.1 103 Early\r\n\r\n" * 3 + NEXT]), b"next", True),
    "trailers": (
        Upstream([OK + b"transfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\nx: y\r\n\r\n"]),
        b"a",
        True,
    ),
    "trailers, later": (
        Upstream([OK + b"transfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\n", LATER, b"x: y\r\n\r\n"]),
        b"a",
        True,
    ),
    "a second answer at once": (Upstream([NEXT + POISON]), b"next", False),
    "a second answer behind it": (Upstream([NEXT, LATER, POISON]), b"next", False),
    "half of a second answer": (Upstream([NEXT + POISON[:20]]), b"next", False),
    "a byte more": (Upstream([NEXT + b"x"]), b"next", False),
    "a length too short": (Upstream([OK + b"content-length: 2\r\n\r\nnext"]), b"ne", False),
    "a length too long": (
        Upstream([OK + b"content-length: 9\r\n\r\nnext"], closes=True),
        "upstream_disconnected",
        False,
    ),
    "a close that was announced": (Upstream([OK + b"connection: close\r\ncontent-length: 1\r\n\r\na"]), b"a", False),
    "a body that ends with its connection": (Upstream([OK + b"\r\nnext"], closes=True), b"next", False),
    "204 with a body": (
        Upstream([b"HTTP/1.1 204 No\r\ncontent-length: 82\r\n\r\n", LATER, POISON]),
        b"",
        False,
    ),
    "204 with chunks": (
        Upstream([b"HTTP/1.1 204 No\r\ntransfer-encoding: chunked\r\n\r\n", LATER, b"2\r\nno\r\n0\r\n\r\n"]),
        b"",
        False,
    ),
    "304 with a body": (Upstream([b"HTTP/1.1 304 No\r\ncontent-length: 6\r\n\r\npoison"]), b"", False),
    "both framings": (
        Upstream([OK + b"content-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n" + POISON]),
        "upstream_invalid_response",
        False,
    ),
    "a switch of protocols": (
        Upstream([b"HTTP/1.1 101 Go\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n" + POISON]),
        "upstream_invalid_response",
        False,
    ),
    "an interim answer without an end": (
        Upstream([b"HTTP/1.1 100 Continue\r\n\r\n"], closes=True),
        "upstream_invalid_response",
        False,
    ),
    "an answer before the request is out": (
        Upstream([NEXT], reads_body=False),
        b"next",
        False,
    ),
}


async def call(client: HttpClient, port: int, size: int) -> bytes | str:
    try:
        answer = await client.endpoint(f"http://127.0.0.1:{port}/v1", {}).post(b"x" * size)
        try:
            return await read_body(answer)
        finally:
            answer.release()
    except GatewayError as error:
        return error.code


NOT_AT_ONCE = {"a second answer behind it"}
"""An answer that comes when the next request is out is that request's: HTTP/1.1 has no numbers."""
CASES = [(name, waits) for name in ROWS for waits in (0.0, 0.08) if waits or name not in NOT_AT_ONCE]


@pytest.mark.parametrize(("name", "waits"), CASES)
async def test_the_next_call_gets_its_own_answer(name: str, waits: float) -> None:
    upstream, expected, kept = ROWS[name]
    upstream = Upstream(upstream.script, upstream.closes, upstream.reads_body)
    async with await asyncio.start_server(upstream.serve, "127.0.0.1", 0) as server:
        port, client = server.sockets[0].getsockname()[1], HttpClient()
        assert await call(client, port, 10 if upstream.reads_body else 16_000_000) == expected
        for _ in range(8):  # in steps, so that what has arrived is read even if the machine is slow
            await asyncio.sleep(waits / 8)
        sent = upstream.requests
        assert [await call(client, port, 10) for _ in range(2)] == [b"next", b"next"]
        assert upstream.requests - sent == 2
        assert (upstream.places[1] == upstream.places[0]) is kept
        await client.aclose()


async def test_bytes_that_have_arrived_before_the_next_call_are_not_its_answer() -> None:
    async def answer(listener: socket.socket) -> socket.socket:
        loop = asyncio.get_running_loop()
        link, _ = await loop.sock_accept(listener)
        await loop.sock_recv(link, 65536)
        await loop.sock_sendall(link, NEXT)
        return link

    client = HttpClient()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        port = listener.getsockname()[1]
        answering = asyncio.create_task(answer(listener))
        assert await call(client, port, 10) == b"next"
        with await answering as link:
            answering = asyncio.create_task(answer(listener))
            link.send(POISON)  # the event loop does not run between this and the next call
            assert await call(client, port, 10) == b"next"
            (await answering).close()
    await client.aclose()
