"""HTTP proxies for tests: one that this process plays, and tinyproxy."""

from __future__ import annotations

import asyncio
import re
import shutil
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import pytest

from tests.support.ports import free_port
from tests.support.serving import WAIT_SECONDS, eventually

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def listening(serve: Serve, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """The port of a server on loopback, whose connections are closed at the end."""
    tasks: set[asyncio.Task[None]] = set()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError, ssl.SSLError):
                await serve(reader, writer)
        finally:
            writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)  # the loop closes the connections


async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy bytes until the reader ends, then end the writer."""
    try:
        with suppress(ConnectionError, ssl.SSLError):
            while piece := await reader.read(65536):
                writer.write(piece)
                await writer.drain()
    finally:
        writer.close()


async def join(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, port: int, first: bytes = b""
) -> None:
    """Connect a client with a server until one of them leaves."""
    back, forth = await asyncio.open_connection(host, port)
    forth.write(first)
    await asyncio.gather(pipe(reader, forth), pipe(back, writer))


def in_front_of(port: int) -> Serve:
    """A server that passes everything to another port: with TLS in front of a server without it."""
    return lambda reader, writer: join(reader, writer, "127.0.0.1", port)


class ProxyDouble:
    """A proxy that forwards requests and opens tunnels, or answers as a test says."""

    def __init__(
        self,
        answer: bytes | None = None,
        *,
        closes: bool = False,
        fields: str = "",
        slow: bool = False,
    ) -> None:
        """``answer``: sent in place of serving a connection; empty: the proxy is silent. ``closes``: and then ends.

        ``fields``: header lines in the answer to CONNECT. ``slow``: this answer is sent byte by byte.
        """
        self.answer, self.closes, self.fields, self.slow = answer, closes, fields, slow
        self.heads: list[str] = []
        """The head of each request that has reached the proxy itself."""
        self.connections = 0
        self._writers: list[asyncio.StreamWriter] = []
        self.answered, self.left = asyncio.Event(), asyncio.Event()
        """Set when ``answer`` was sent, and when a connection has ended."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._serve(reader, writer)
        finally:
            self.left.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.append(writer)
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.heads.append(head)
        if self.answer is not None:
            writer.write(self.answer)
            self.answered.set()
            if not self.closes:
                await reader.read()
            return
        method, target, _ = head.split(" ", 2)
        if method == "CONNECT":
            answer = f"HTTP/1.1 200 Connection established\r\n{self.fields}\r\n".encode()
            for piece in [answer[n : n + 1] for n in range(len(answer))] if self.slow else [answer]:
                writer.write(piece)
                await asyncio.sleep(0)
            await join(reader, writer, "127.0.0.1", int(target.rpartition(":")[2]))  # every name is this machine
            return
        await self._forward(reader, writer, head)

    def drop(self) -> None:
        """Close all connections of clients."""
        for writer in self._writers:
            writer.close()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: str) -> None:
        """Send each request of a connection to its server, without the address and the credentials."""
        found = re.match(r"\w+ http://([^/:]+):(\d+)/", head)
        assert found is not None, head
        back, forth = await asyncio.open_connection(found[1], int(found[2]))
        answers = asyncio.create_task(pipe(back, writer))
        try:
            while True:
                own = re.sub(r"(?im)^proxy-authorization:.*\r\n", "", re.sub(r" http://[^/]+/", " /", head, count=1))
                size = int((re.search(r"content-length: (\d+)", head) or ["", "0"])[1])
                forth.write(own.encode() + await reader.readexactly(size))
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                self.heads.append(head)
        finally:
            forth.close()
            await answers


def _accepts(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def tinyproxy(folder: Path, *settings: str) -> Iterator[tuple[str, Path]]:
    """The address and the log of a running tinyproxy. Skips the test if it is not installed."""
    program = shutil.which("tinyproxy")
    if program is None:
        pytest.skip("needs tinyproxy; tests/deploy/install-tools installs it")
    port, log = free_port(), folder / "tinyproxy.log"
    lines = (f"Port {port}", "Listen 127.0.0.1", f'LogFile "{log}"', "LogLevel Connect", "Timeout 600", *settings)
    (folder / "tinyproxy.conf").write_text("\n".join(lines) + "\n")
    process = subprocess.Popen([program, "-d", "-c", str(folder / "tinyproxy.conf")], cwd=folder)
    try:
        assert eventually(lambda: process.poll() is not None or _accepts(port))
        assert process.poll() is None, log.read_text()
        yield f"http://127.0.0.1:{port}", log
    finally:
        process.terminate()
        process.wait(WAIT_SECONDS)
