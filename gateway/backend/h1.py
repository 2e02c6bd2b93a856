"""How is HTTP/1.1 spoken to a model's server? llhttp parses, a small pool keeps connections, nothing stands between.

One request on a connection at a time. A request is one write: head and body together, and of the head only what
differs between two requests is formatted for each. The answer is read in
the pieces in which it arrives; a reader that falls behind stops the socket, not the loop.
TLS verifies against the system's certificates. Proxies, pipelining and HTTP/2 are left to ``aio.py``.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import Mapping
from types import TracebackType
from urllib.parse import urlsplit

from gateway.backend.connection import Connection
from gateway.backend.http import KEEPALIVE, LINGER
from gateway.core.dialogue import NOTHING
from gateway.core.errors import (
    UpstreamConnectTimeout,
    UpstreamDisconnected,
    UpstreamDnsError,
    UpstreamError,
    UpstreamUnreachable,
)


class Pool:
    """Where connections go, and those that are quiet; requests to one place share it, whatever their path."""

    __slots__ = ("host", "idle", "port", "tls")

    def __init__(self, host: str, port: int, tls: bool) -> None:
        self.host = host
        self.port = port
        self.tls = tls
        self.idle: deque[tuple[float, Connection]] = deque()
        """(since when, connection), the youngest last."""

    def take(self, now: float) -> Connection | None:
        """A quiet connection that is still good, the youngest first; old ones are closed on the way."""
        idle = self.idle
        while idle and (idle[0][0] < now - KEEPALIVE or idle[0][1].lost):
            idle.popleft()[1].close()
        while idle:
            _, connection = idle.pop()
            if connection.reusable:
                return connection
            connection.close()
        return None


class H1Target:
    """See ``HttpTarget``: an address whose request head is written down once."""

    __slots__ = ("client", "connect_timeout", "head", "pool")

    def __init__(self, client: H1Client, pool: Pool, head: bytes, connect_timeout: float) -> None:
        self.client = client
        self.pool = pool
        self.head = head
        """Request line and all headers but those of one request."""
        self.connect_timeout = connect_timeout

    def post(self, body: bytes, headers: Mapping[str, str] = NOTHING) -> H1Request:
        """See ``HttpTarget``."""
        own = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
        return H1Request(self, self.head + f"{own}content-length: {len(body)}\r\n\r\n".encode("latin-1"), body)


class H1Request:
    """One request: entered when the headers are there, left by any road."""

    __slots__ = ("_body", "_connection", "_head", "_to")

    def __init__(self, to: H1Target, head: bytes, body: bytes) -> None:
        self._to = to
        self._head = head
        self._body = body
        self._connection: Connection | None = None

    async def __aenter__(self) -> Connection:
        client, pool = self._to.client, self._to.pool
        pooled = pool.take(client.loop().time()) if pool.idle else None
        if pooled is not None:
            try:
                return await self._ask(pooled)
            except UpstreamDisconnected:
                # The server closed a pooled connection while our request was on its way: not a byte of an
                # answer means that it was not served, so it goes out once more, on a connection of its own.
                if not pooled.silent:
                    raise
        return await self._ask(await client.connect(pool, self._to.connect_timeout))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        connection, pool = self._connection, self._to.pool
        assert connection is not None
        if connection.reusable:
            self._to.client.keep(pool, connection)
        elif connection.complete and not connection.ended:
            self._to.client.linger(pool, connection)
        else:
            connection.close()

    async def _ask(self, connection: Connection) -> Connection:
        self._connection = connection
        try:
            connection.send(self._head, self._body)
            await connection.head()
        except BaseException:
            connection.close()
            raise
        return connection


class H1Client:
    """See ``HttpClient``."""

    def __init__(self) -> None:
        self._pools: dict[tuple[str, int, bool], Pool] = {}
        self._lingering: dict[asyncio.Task[None], Connection] = {}
        self._tls: ssl.SSLContext | None = None
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None

    def target(self, url: str, headers: Mapping[str, str], connect_timeout: float = 2.0) -> H1Target:
        """See ``HttpClient``."""
        try:
            parts = urlsplit(url)
            tls, host, port = parts.scheme == "https", parts.hostname, parts.port
        except ValueError:
            host = None
        if not host or parts.scheme not in ("http", "https"):
            raise UpstreamUnreachable("the configured address of the model's server is not a valid URL")
        key = host, port or (443 if tls else 80), tls
        if key not in self._pools:
            self._pools[key] = Pool(*key)
        path = parts.path + (f"?{parts.query}" if parts.query else "") or "/"
        line = f"POST {path} HTTP/1.1\r\nhost: {parts.netloc.rpartition('@')[2]}\r\n".encode("ascii", "strict")
        fields = {**headers, "accept-encoding": "identity"}
        shared = "".join([f"{name}: {value}\r\n" for name, value in fields.items()]).encode("latin-1")
        return H1Target(self, self._pools[key], line + shared, connect_timeout)

    async def aclose(self) -> None:
        """See ``HttpClient``."""
        self._closed = True
        for task, connection in tuple(self._lingering.items()):
            task.cancel()
            connection.close()
        for pool in self._pools.values():
            for _, connection in pool.idle:
                connection.close()
            pool.idle.clear()
        await asyncio.sleep(0)  # the loop closes aborted transports in its next turn

    # ------------------------------------------------------------------ connections

    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop it is used in."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        return self._loop

    def keep(self, to: Pool, connection: Connection) -> None:
        """Put a connection back."""
        if self._closed:
            connection.close()
        else:
            to.idle.append((self.loop().time(), connection))

    def linger(self, to: Pool, connection: Connection) -> None:
        """Give the end of a body a moment to arrive; anything else closes the connection (row C07)."""
        task = asyncio.create_task(self._await_end(to, connection))
        self._lingering[task] = connection
        task.add_done_callback(self._lingering.pop)

    async def connect(self, to: Pool, within: float) -> Connection:
        """A new connection, in ``within`` seconds; every failure under our own name."""
        loop = self.loop()
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

    async def _await_end(self, to: Pool, connection: Connection) -> None:
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
