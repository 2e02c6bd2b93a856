"""How is HTTP/1.1 spoken to a model's server? llhttp parses, a small pool keeps connections, nothing stands between.

One request on a connection at a time. A request is one write: head and body together. The answer is read in
the pieces in which it arrives; a reader that falls behind stops the socket, not the loop.
TLS verifies against the system's certificates. Proxies, pipelining and HTTP/2 are left to ``aio.py``.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import TracebackType
from urllib.parse import urlsplit

from gateway.backend.connection import Connection
from gateway.backend.http import KEEPALIVE, LINGER
from gateway.core.errors import (
    UpstreamConnectTimeout,
    UpstreamDisconnected,
    UpstreamDnsError,
    UpstreamError,
    UpstreamUnreachable,
)


@dataclass(frozen=True, slots=True)
class Origin:
    """Where connections go, and what the request line says."""

    host: str
    port: int
    tls: bool
    head: bytes
    """Request line and Host header."""

    @property
    def key(self) -> tuple[str, int, bool]:
        """Connections with the same key are interchangeable."""
        return self.host, self.port, self.tls


@lru_cache(maxsize=1024)
def origin(url: str) -> Origin:
    """Take a configured address apart; raises ``UpstreamUnreachable`` if it is none."""
    parts = urlsplit(url)
    try:
        tls, host, port = parts.scheme == "https", parts.hostname, parts.port
    except ValueError:
        host = None
    if not host or parts.scheme not in ("http", "https"):
        raise UpstreamUnreachable("the configured address of the model's server is not a valid URL")
    path = parts.path + (f"?{parts.query}" if parts.query else "") or "/"
    head = f"POST {path} HTTP/1.1\r\nhost: {parts.netloc.rpartition('@')[2]}\r\n"
    return Origin(host, port or (443 if tls else 80), tls, head.encode("ascii", "strict"))


class H1Answer:
    """See ``HttpAnswer``: one answer of a connection."""

    __slots__ = ("_connection", "complete", "content_type", "header", "more", "status")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.status = connection.status
        self.header = connection.header
        self.more = connection.more
        self.content_type = (connection.header("content-type") or "").partition(";")[0].strip().lower()
        self.complete = False


class H1Request:
    """One request: entered when the headers are there, left by any road."""

    __slots__ = ("_answer", "_client", "_connect_timeout", "_connection", "_origin", "_request")

    def __init__(self, client: H1Client, to: Origin, request: bytes, connect_timeout: float) -> None:
        self._client = client
        self._origin = to
        self._request = request
        self._connect_timeout = connect_timeout
        self._connection: Connection | None = None
        self._answer: H1Answer | None = None

    async def __aenter__(self) -> H1Answer:
        pooled = self._client.pooled(self._origin)
        if pooled is not None:
            try:
                return await self._ask(pooled)
            except UpstreamDisconnected:
                # The server closed a pooled connection while our request was on its way: not a byte of an
                # answer means that it was not served, so it goes out once more, on a connection of its own.
                if not pooled.silent:
                    raise
        return await self._ask(await self._client.connect(self._origin, self._connect_timeout))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._connection is not None
        if self._connection.reusable:
            self._client.keep(self._origin, self._connection)
        elif self._answer is not None and self._answer.complete and not self._connection.ended:
            self._client.linger(self._origin, self._connection)
        else:
            self._connection.close()

    async def _ask(self, connection: Connection) -> H1Answer:
        self._connection = connection
        try:
            connection.send(self._request)
            await connection.head()
        except BaseException:
            connection.close()
            raise
        self._answer = H1Answer(connection)
        return self._answer


class H1Client:
    """See ``HttpClient``."""

    def __init__(self) -> None:
        self._idle: dict[tuple[str, int, bool], deque[tuple[float, Connection]]] = {}
        self._lingering: dict[asyncio.Task[None], Connection] = {}
        self._tls: ssl.SSLContext | None = None
        self._closed = False

    def request(self, url: str, body: bytes, headers: Mapping[str, str], connect_timeout: float = 2.0) -> H1Request:
        """See ``HttpClient``. Header values must be free of line ends; ours are."""
        to = origin(url)
        fields = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
        head = f"{fields}accept-encoding: identity\r\ncontent-length: {len(body)}\r\n\r\n".encode("latin-1")
        return H1Request(self, to, to.head + head + body, connect_timeout)

    async def aclose(self) -> None:
        """See ``HttpClient``."""
        self._closed = True
        for task, connection in tuple(self._lingering.items()):
            task.cancel()
            connection.close()
        for idle in self._idle.values():
            for _, connection in idle:
                connection.close()
        self._idle.clear()
        await asyncio.sleep(0)  # the loop closes aborted transports in its next turn

    # ------------------------------------------------------------------ connections

    def pooled(self, to: Origin) -> Connection | None:
        """A quiet connection that is still good, the youngest first; old ones are closed on the way."""
        idle = self._idle.get(to.key)
        if not idle:
            return None
        now = asyncio.get_running_loop().time()
        while idle and (idle[0][0] < now - KEEPALIVE or idle[0][1].lost):
            idle.popleft()[1].close()
        while idle:
            _, connection = idle.pop()
            if connection.reusable:
                return connection
            connection.close()
        return None

    def keep(self, to: Origin, connection: Connection) -> None:
        """Put a connection back."""
        if self._closed:
            connection.close()
            return
        self._idle.setdefault(to.key, deque()).append((asyncio.get_running_loop().time(), connection))

    def linger(self, to: Origin, connection: Connection) -> None:
        """Give the end of a body a moment to arrive; anything else closes the connection (row C07)."""
        task = asyncio.create_task(self._await_end(to, connection))
        self._lingering[task] = connection
        task.add_done_callback(self._lingering.pop)

    async def connect(self, to: Origin, within: float) -> Connection:
        """A new connection, in ``within`` seconds; every failure under our own name."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(within):
                _, connection = await loop.create_connection(
                    lambda: Connection(loop), to.host, to.port, ssl=self._context() if to.tls else None
                )
        except TimeoutError:
            raise UpstreamConnectTimeout("no connection to the model's server in time") from None
        except socket.gaierror:
            raise UpstreamDnsError("the name of the model's server does not resolve") from None
        except ssl.SSLError:
            raise UpstreamUnreachable("the TLS handshake with the model's server failed") from None
        except OSError:
            raise UpstreamUnreachable("the model's server does not accept connections") from None
        return connection

    async def _await_end(self, to: Origin, connection: Connection) -> None:
        said = b"?"
        try:
            async with asyncio.timeout(LINGER):
                said = await connection.more()
        except (TimeoutError, UpstreamError):
            pass
        finally:
            if not said and connection.reusable:
                self.keep(to, connection)
            else:
                connection.close()

    def _context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = ssl.create_default_context()
        return self._tls
