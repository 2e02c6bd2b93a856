"""How is HTTP/1.1 spoken to a model's server? llhttp parses, a small pool keeps connections, nothing stands between.

One request on a connection at a time. A request is one write: head and body together, and of the head only what
differs between two requests is formatted for each. The answer is read in
the pieces in which it arrives; a reader that falls behind stops the socket, not the loop.
TLS verifies against the system's certificates. There are no redirects, no proxies, no compression, no pipelining and
no HTTP/2; the only clock is the connect timeout (the others are content-based and live in ``policy/deliver``).
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import Mapping
from functools import partial
from urllib.parse import urlsplit

from gateway.backend.http_client.connection import Connection
from gateway.core.dialogue import EMPTY_MAPPING
from gateway.core.errors import (
    UpstreamConnectTimeout,
    UpstreamDisconnected,
    UpstreamDnsError,
    UpstreamError,
    UpstreamUnreachable,
)

KEEPALIVE = 15.0
"""Seconds a quiet connection stays in the pool."""
LINGER = 0.05
"""Seconds that an answer which has said everything may take to end its body, so that its connection can be pooled."""

STALE = 0.1
"""Seconds after a request within which a reused connection that closes, without a byte, counts as closed before it.

A server that closes a quiet connection cannot know that a request is on its way. The sign of it arrives within one
round trip; a server that closes later has had the request and may have worked on it. Go's ``net/http`` and nginx do
not send a POST again once any of it is written. Servers of models close quiet connections after 5 s (uvicorn), so one
repeat is worth it; ``policy/deliver/failover.py`` makes it, and counts it as an attempt.
"""


class Pool:
    """Where connections go, and those that are quiet; requests to one place share it, whatever their path."""

    __slots__ = ("client", "host", "idle", "port", "tls")

    def __init__(self, client: HttpClient, host: str, port: int, tls: bool) -> None:
        self.client = client
        self.host = host
        self.port = port
        self.tls = tls
        self.idle: deque[tuple[float, Connection]] = deque()
        """(since when, connection), the youngest last."""

    def take(self) -> Connection | None:
        """A quiet connection that is still good, the youngest first; old ones are closed on the way."""
        idle = self.idle
        oldest = self.client.loop.time() - KEEPALIVE
        while idle and (idle[0][0] < oldest or idle[0][1].lost):
            idle.popleft()[1].close()
        while idle:
            _, connection = idle.pop()
            if connection.reusable:
                return connection
            connection.close()
        return None

    def clear(self) -> None:
        """Close the quiet connections."""
        for _, connection in self.idle:
            connection.close()
        self.idle.clear()

    def release(self, connection: Connection) -> None:
        """An exchange is over: what becomes of its connection?"""
        client = self.client
        if connection.reusable and not client.closed:
            self.idle.append((client.loop.time(), connection))
        elif connection.complete and not connection.ended:
            client.linger(self, connection)
        else:
            connection.close()


class H1Target:
    """One address; the part of the request head that all its requests share is formatted once."""

    __slots__ = ("connect_timeout", "head", "pool", "private")

    def __init__(self, pool: Pool, head: bytes, connect_timeout: float, private: tuple[str, ...]) -> None:
        self.pool = pool
        self.head = head
        """Request line and all headers but those of one request."""
        self.connect_timeout = connect_timeout
        self.private = private
        """What no error may show to a client: the server's host name, the operator's key."""

    async def post(self, body: bytes, headers: Mapping[str, str] = EMPTY_MAPPING) -> Connection:
        """POST ``body`` once, and return the answer once its headers are read; the caller has to ``leave`` it.

        ``headers`` are those of this request alone. Raises ``UpstreamError``; a connection that turned out to be
        closed before the request is an ``UpstreamDisconnected`` that is ``stale``.
        """
        own = ""
        for name, value in headers.items():
            own += f"{name}: {value}\r\n"
        head = self.head + f"{own}content-length: {len(body)}\r\n\r\n".encode("latin-1")
        pool = self.pool
        pooled = pool.take() if pool.idle else None
        connection = pooled or await pool.client.connect(pool, self.connect_timeout)
        clock = pool.client.loop.time
        sent = clock()
        try:
            await connection.send(head, body)
            if not connection.status:
                await connection.head()
        except UpstreamDisconnected as error:
            connection.close()
            if connection is pooled and pooled.silent and clock() - sent <= STALE:
                error.stale = True
                pool.clear()  # the server may have closed the others as well: what follows needs a new one
            raise
        except BaseException:
            connection.close()
            raise
        return connection


class HttpClient:
    """The process's HTTP client: make it anywhere, use it in one event loop, close it there."""

    def __init__(self) -> None:
        self._pools: dict[tuple[str, int, bool], Pool] = {}
        self._lingering: dict[asyncio.Task[None], Connection] = {}
        self._tls: ssl.SSLContext | None = None
        self.closed = False
        self.loop: asyncio.AbstractEventLoop
        """The loop it is used in; set by the first connection."""

    def target(
        self, url: str, headers: Mapping[str, str], connect_timeout: float = 2.0, secrets: tuple[str, ...] = ()
    ) -> H1Target:
        """An address to post to; raises ``UpstreamUnreachable`` for a URL that is not valid.

        ``headers`` are sent with every request, beside those HTTP itself needs; no name or value has a line end.
        ``connect_timeout`` is in seconds and covers the name lookup. ``secrets``: values among the headers that no
        error may show.
        """
        try:
            parts = urlsplit(url)
            tls, host, port = parts.scheme == "https", parts.hostname, parts.port
        except ValueError:
            host = None
        if not host or parts.scheme not in ("http", "https"):
            raise UpstreamUnreachable("the configured address of the model's server is not a valid URL")
        key = host, port or (443 if tls else 80), tls
        if key not in self._pools:
            self._pools[key] = Pool(self, *key)
        shown = host if "." in host or ":" in host else f"{host}:{key[1]}"  # a bare name may be an ordinary word
        path = parts.path + (f"?{parts.query}" if parts.query else "") or "/"
        line = f"POST {path} HTTP/1.1\r\nhost: {parts.netloc.rpartition('@')[2]}\r\n".encode("ascii", "strict")
        fields = {**headers, "accept-encoding": "identity"}
        shared = "".join([f"{name}: {value}\r\n" for name, value in fields.items()]).encode("latin-1")
        return H1Target(self._pools[key], line + shared, connect_timeout, (shown, *secrets))

    async def aclose(self) -> None:
        """Close every connection; running requests fail as disconnected."""
        self.closed = True
        for task, connection in tuple(self._lingering.items()):
            task.cancel()
            connection.close()
        for pool in self._pools.values():
            pool.clear()
        await asyncio.sleep(0)  # the loop closes aborted transports in its next turn

    # ------------------------------------------------------------------ connections

    def linger(self, to: Pool, connection: Connection) -> None:
        """Give the end of a body a moment to arrive; anything else closes the connection (row C07)."""
        task = asyncio.create_task(self._await_end(to, connection))
        self._lingering[task] = connection
        task.add_done_callback(self._lingering.pop)

    async def connect(self, to: Pool, within: float) -> Connection:
        """A new connection, in ``within`` seconds; every failure under our own name."""
        loop = self.loop = asyncio.get_running_loop()
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
        connection.leave = partial(to.release, connection)
        return connection

    async def _await_end(self, to: Pool, connection: Connection) -> None:
        said = b"?"
        try:
            async with asyncio.timeout(LINGER):
                said = await connection.more()
        except (TimeoutError, UpstreamError):
            pass
        finally:
            if said or not connection.ended:
                connection.close()
            else:
                to.release(connection)

    def _context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = ssl.create_default_context()
        return self._tls
