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
from typing import cast
from urllib.parse import urlsplit

import httptools

from gateway.backend.http import KEEPALIVE, LINGER, MAX_LINE
from gateway.core.errors import (
    UpstreamConnectTimeout,
    UpstreamDisconnected,
    UpstreamDnsError,
    UpstreamError,
    UpstreamInvalidResponse,
    UpstreamUnreachable,
)

MAX_HEAD = 64 * 1024
"""Bytes of a status line and all headers, interim answers included."""
MAX_HEADERS = 256
HIGH_WATER = 256 * 1024
"""Bytes of a body that may wait for the reader before the socket is paused."""

NOT_HTTP = "the model's server does not answer in valid HTTP"
CLOSED = "the model's server closed the connection"


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


class Connection(asyncio.Protocol):
    """One connection and the answer that is being read from it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[None] | None = None
        self.served = 0
        """How many answers it has brought to their end."""
        self.lost = False
        self._reset()

    def _reset(self) -> None:
        self._chunks: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._paused = False
        self._headers: list[tuple[bytes, bytes]] = []
        self._head_bytes = 0
        self._interim = False
        self._heard = False
        self._surplus = False
        self._sized = False
        self._failure: UpstreamError | None = None
        self._keep_alive = False
        self.status = 0
        self.ended = False
        """The answer is complete."""

    # ------------------------------------------------------------------ the reader's side

    @property
    def reusable(self) -> bool:
        """May another request go out on it?"""
        return self.ended and self._keep_alive and not (self._surplus or self.lost or self._failure)

    @property
    def silent(self) -> bool:
        """Not a byte of an answer has come."""
        return not self._heard

    def send(self, request: bytes) -> None:
        """Begin an exchange."""
        self._reset()
        assert self._transport is not None
        self._transport.write(request)

    async def head(self) -> None:
        """Wait for status and headers."""
        while not self.status:
            if self._failure is not None:
                raise self._failure
            await self._wait()

    async def more(self) -> bytes:
        """The next piece of the body; empty at its end."""
        while not self._chunks:
            if self._failure is not None:
                raise self._failure
            if self.ended:
                return b""
            await self._wait()
        data = self._chunks.popleft() if len(self._chunks) == 1 else b"".join(self._chunks)
        self._chunks.clear()
        self._waiting_bytes = 0
        if self._paused and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()
        return data

    def header(self, name: str) -> str | None:
        """See ``HttpAnswer``."""
        wanted = name.encode("ascii")
        for key, value in self._headers:
            if key.lower() == wanted:
                return value.decode("latin-1")
        return None

    def close(self) -> None:
        """Close at once, whatever is under way."""
        if self._transport is not None:
            self._transport.abort()

    async def _wait(self) -> None:
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _fail(self, error: UpstreamError) -> None:
        if self._failure is None and not self.ended:
            self._failure = error
        self._wake()

    # ------------------------------------------------------------------ the transport's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """asyncio: connected."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's own class, not a subclass

    def data_received(self, data: bytes) -> None:
        """asyncio: bytes have come."""
        if self.ended:
            self._surplus = True  # said after the end of an answer: nobody's, and this connection is not used again
            return
        self._heard = True
        if not self.status:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserCallbackError, httptools.HttpParserUpgrade):
            self._refuse()
            return
        if not self.status and self._head_bytes > MAX_HEAD:
            self._refuse()
        elif self._waiting_bytes > HIGH_WATER and not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()

    def connection_lost(self, error: Exception | None) -> None:
        """asyncio: the connection is gone."""
        self.lost = True
        if self.status and not self._sized and error is None and not self._failure:
            self.ended = True  # a body without a length ends with its connection (HTTP/1.0)
            self._wake()
        elif self._heard and not self.status and error is None:
            self._fail(UpstreamInvalidResponse("the model's server closed the connection inside its headers"))
        else:
            inside = " inside its answer" if self.status else ""
            self._fail(UpstreamDisconnected(CLOSED + inside))

    def _refuse(self) -> None:
        self._fail(UpstreamInvalidResponse(NOT_HTTP))
        self.close()

    # ------------------------------------------------------------------ llhttp's side

    def on_message_begin(self) -> None:
        """llhttp: a status line begins."""
        if self.ended:
            self._surplus = True

    def on_header(self, name: bytes, value: bytes) -> None:
        """llhttp: one header field."""
        if self.ended:
            return
        if len(self._headers) >= MAX_HEADERS or len(name) + len(value) > MAX_LINE:
            raise ValueError("headers too large")
        self._headers.append((name, value))
        self._sized = self._sized or name.lower() in (b"content-length", b"transfer-encoding")

    def on_headers_complete(self) -> None:
        """llhttp: the headers are complete."""
        if self.ended:
            return
        status = self._parser.get_status_code()
        self._interim = 100 <= status < 200
        if self._interim:
            self._headers.clear()
            self._sized = False
            return
        self.status = status
        self._sized = self._sized or status in (204, 304)
        self._keep_alive = self._parser.should_keep_alive()
        self._wake()

    def on_body(self, body: bytes) -> None:
        """llhttp: a piece of the body, chunk framing removed."""
        if self.ended:
            return
        self._chunks.append(body)
        self._waiting_bytes += len(body)
        self._wake()

    def on_message_complete(self) -> None:
        """llhttp: the answer is complete."""
        if self.ended or self._interim:
            return
        self.ended = True
        self.served += 1
        self._wake()


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
