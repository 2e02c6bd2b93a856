"""HTTP/1.1 client: endpoints to POST to, connections and their pools.

A connection serves one request at a time. Head and body of a request are written together. The part of the head that
all requests to an endpoint share is formatted once. A response body is read in the pieces in which it arrives, and
back-pressure pauses the socket.
TLS verifies against the system's certificates. The client has no redirects, compression, pipelining or HTTP/2; proxies
and further certificates are in ``network.py``.
The connect timeout is the only timeout here; the others depend on content and live in ``policy/deliver``.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import ClassVar
from urllib.parse import urlsplit

from gateway.backend.http_client.connection import Connection
from gateway.core.errors import (
    UpstreamConnectTimeout,
    UpstreamDisconnected,
    UpstreamDnsError,
    UpstreamError,
    UpstreamUnreachable,
)

KEEPALIVE = 15.0
"""Seconds for which an idle connection stays in the pool."""
DRAIN_TIMEOUT = 0.05
"""Seconds to wait for the end of a body after the last content. A connection can be pooled only after the end."""

STALE = 0.1
"""Seconds after a request was sent. If a reused connection closes within this time without a byte of a response, the
gateway assumes that the server closed the connection before the request arrived.

A server that closes an idle connection has not yet received the request; the close arrives within one round
trip. A server that closes later received the request and may have worked on it. Go's ``net/http`` and nginx do not
resend a POST once any of it is written. Model servers close idle connections after 5 s (uvicorn), so one repeat is
useful: ``policy/deliver`` repeats the request and counts an attempt.
"""


NO_TLS = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "HTTPS_PROXY_REQUEST", "UNKNOWN_PROTOCOL"})
"""OpenSSL's error reasons if a server answers the TLS handshake in plain HTTP."""


@dataclass(eq=False, slots=True)
class ConnectionPool:
    """The idle connections to one host and port. Endpoints with different paths share the pool."""

    peer: ClassVar[str] = "the model's server"
    """The name in messages of the server that accepts the connections."""
    client: HttpClient
    host: str
    port: int
    tls: ssl.SSLContext | None
    origin: str = ""
    """What stands before the path in a request line: empty, or ``http://host:port`` for a proxy."""
    header_lines: str = ""
    """Header lines of every request, with their line ends, besides the headers of the endpoint."""
    idle: deque[tuple[float, Connection]] = field(default_factory=deque, init=False)
    """(monotonic time since which the connection is idle, connection), in this order of time."""

    async def open(self, loop: asyncio.AbstractEventLoop) -> Connection:
        """Return a new connection. Raises ``OSError``, or ``UpstreamError`` with a message of its own."""
        _, connection = await loop.create_connection(lambda: Connection(loop), self.host, self.port, ssl=self.tls)
        return connection

    def take(self) -> Connection | None:
        """Remove and return the usable connection that became idle last. Expired connections are closed."""
        idle = self.idle
        oldest = time.monotonic() - KEEPALIVE
        while idle and idle[0][0] < oldest:
            idle.popleft()[1].close()
        while idle:
            _, connection = idle.pop()
            if connection.is_idle:
                return connection
            connection.close()
        return None

    def clear(self) -> None:
        """Close the idle connections."""
        for _, connection in self.idle:
            connection.close()
        self.idle.clear()

    def release(self, connection: Connection) -> None:
        """End an exchange. Pool the connection if possible, perhaps after the end of the body; otherwise close it."""
        if connection.is_reusable and not self.client.closed:
            self.idle.append((time.monotonic(), connection))
        elif connection.content_complete and not connection.response_complete:
            self.client.drain(self, connection)
        else:
            connection.close()


PoolFactory = Callable[["HttpClient", str, int, ssl.SSLContext | None], ConnectionPool]
"""(client, host, port, TLS or None) → pool. Pools are shared by host, port, TLS and factory."""


def json_headers(key: str | None, accept: str = "application/json") -> dict[str, str]:
    """Return the headers of a request with a JSON body. ``key``: the bearer token, if the server needs one."""
    headers = {"content-type": "application/json", "accept": accept, "user-agent": "meta-gateway"}
    if key is not None:
        headers["authorization"] = f"Bearer {key}"
    return headers


def server_root(url: str) -> str:
    """Return the address of a server without the path ``/v1``, for endpoints outside ``/v1``."""
    return url.rstrip("/").removesuffix("/v1")


@dataclass(eq=False, slots=True)
class HttpEndpoint:
    """One URL with its method and headers."""

    pool: ConnectionPool
    head: bytes
    """The request line and the headers that all requests share."""
    connect_timeout: float
    private: tuple[str, ...]
    """Texts that no error message for clients may contain: the server's host name and the operator's key."""

    async def post(self, body: bytes, headers: str = "") -> Connection:
        """POST ``body`` once. Return the connection when the headers of the response have been read.

        For a successful response, also wait for the first piece of the body, its end, or a failure.
        The caller has to call ``Connection.release``. ``headers``: the header lines of this request only, with their
        line ends. Raises ``UpstreamError``; if a pooled connection was closed before the request, the error is an
        ``UpstreamDisconnected`` that is ``stale``.
        """
        head = self.head + f"{headers}content-length: {len(body)}\r\n\r\n".encode("latin-1")
        pool = self.pool
        pooled = pool.take()
        connection = pooled or await pool.client.connect(pool, self.connect_timeout)
        sent = time.monotonic()
        try:
            await connection.send(head, body)
            if not connection.status:
                await connection.read_head()
        except UpstreamDisconnected as error:
            connection.close()
            if connection is pooled and not pooled.response_begun and time.monotonic() - sent <= STALE:
                error.stale = True
                pool.clear()  # the server may have closed them all, so a repeat opens a new connection
            elif connection is not pooled and not connection.response_begun and not pool.tls and not pool.origin:
                error.reason = f"{error.message} without an answer; if the server expects TLS, use https:// in url"
            raise
        except BaseException:
            connection.close()
            raise
        return connection

    async def post_idempotent(self, body: bytes, headers: str = "") -> Connection:
        """POST a request that may be processed twice. Repeat the request once if the pooled connection was stale."""
        try:
            return await self.post(body, headers)
        except UpstreamDisconnected as error:
            if not error.stale:
                raise
        return await self.post(body, headers)


class HttpClient:
    """The HTTP client of one process, used and closed in one event loop."""

    def __init__(self) -> None:
        self._pools: dict[tuple[str, int, bool, PoolFactory], ConnectionPool] = {}
        self._draining: dict[asyncio.Task[None], Connection] = {}
        self.closed = False

    def endpoint(
        self,
        url: str,
        headers: Mapping[str, str],
        connect_timeout: float = 2.0,
        secrets: tuple[str, ...] = (),
        method: str = "POST",
        new_pool: PoolFactory = ConnectionPool,
    ) -> HttpEndpoint:
        """Return an endpoint for requests with one method. Raises ``UpstreamUnreachable`` for an invalid URL.

        ``headers`` are sent with every request; they must not contain line ends. ``connect_timeout`` is in seconds and
        includes the name lookup. ``secrets``: header values that no error message may contain. ``new_pool``: makes the
        pool, such as one of a proxy.
        """
        try:
            parts = urlsplit(url)
            tls, host, port = parts.scheme == "https", parts.hostname, parts.port
        except ValueError:
            host = None
        if not host or parts.scheme not in ("http", "https"):
            raise UpstreamUnreachable("the configured address of the model's server is not a valid URL")
        key = host, port or (443 if tls else 80), tls, new_pool
        pool = self._pools.get(key) or new_pool(self, host, key[1], self._tls if tls else None)
        self._pools[key] = pool
        shown = host if "." in host or ":" in host else f"{host}:{key[1]}"  # a bare name may be a common word
        path = parts.path + (f"?{parts.query}" if parts.query else "") or "/"
        line = f"{method} {pool.origin}{path} HTTP/1.1\r\nhost: {parts.netloc.rpartition('@')[2]}\r\n".encode("ascii")
        fields = {**headers, "accept-encoding": "identity"}
        lines = [pool.header_lines, *(f"{name}: {value}\r\n" for name, value in fields.items())]
        return HttpEndpoint(pool, line + "".join(lines).encode("latin-1"), connect_timeout, (shown, *secrets))

    async def aclose(self) -> None:
        """Close every connection. Running requests fail with ``UpstreamDisconnected``."""
        self.closed = True
        for task, connection in tuple(self._draining.items()):
            task.cancel()
            connection.close()
        for pool in self._pools.values():
            pool.clear()
        await asyncio.sleep(0)  # the loop closes aborted transports in its next iteration

    async def connect(self, pool: ConnectionPool, seconds: float) -> Connection:
        """Open a connection. Raises ``UpstreamError`` if that fails or takes longer than ``seconds``."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(seconds):
                connection = await pool.open(loop)
        except TimeoutError:
            what = "TLS connection (if the server has no TLS, use http:// in url)" if pool.tls else "connection"
            raise UpstreamConnectTimeout(
                f"{pool.peer} accepted no {what} within {seconds:g} s (delivery.timeout.connect)"
            ) from None
        except socket.gaierror:
            raise UpstreamDnsError("the host name of the model's server does not resolve; check url") from None
        except ssl.SSLError as error:
            raise _tls_failure(error) from None
        except OSError as error:
            cause = os.strerror(error.errno).lower() if error.errno else "the connection was reset"
            raise UpstreamUnreachable(
                f"{pool.peer} does not accept connections: {cause}; check url, and that the server runs"
            ) from None
        connection.release = partial(pool.release, connection)
        return connection

    def drain(self, pool: ConnectionPool, connection: Connection) -> None:
        """Pool the connection if the body ends within ``DRAIN_TIMEOUT`` without further data; otherwise close it."""
        task = asyncio.create_task(self._drain(pool, connection))
        self._draining[task] = connection
        task.add_done_callback(self._draining.pop)

    async def _drain(self, pool: ConnectionPool, connection: Connection) -> None:
        rest: bytes | None = None
        try:
            async with asyncio.timeout(DRAIN_TIMEOUT):
                rest = await connection.read()
        except (TimeoutError, UpstreamError):
            pass
        finally:
            if rest == b"" and connection.response_complete:
                pool.release(connection)
            else:
                connection.close()

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        return ssl.create_default_context()


def _tls_failure(error: ssl.SSLError) -> UpstreamUnreachable:
    if isinstance(error, ssl.SSLCertVerificationError):
        failure = UpstreamUnreachable("the TLS certificate of the model's server is not trusted; set or correct ca")
        failure.reason = f"{failure.message}: {error.verify_message}"  # may contain the host name
        return failure
    if error.reason in NO_TLS:
        return UpstreamUnreachable(
            "the model's server does not speak TLS at this port; use http:// instead of https:// in url"
        )
    return UpstreamUnreachable(f"the TLS handshake with the model's server failed: {error.reason}")
