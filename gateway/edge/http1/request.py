"""The body and the answer of one request of our own server.

A whole answer is one write. In a stream, the head and the first frames are one write; each later batch is one write.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from gateway.calls.admission.facts import body_too_large
from gateway.edge.http1.state import ServerState
from gateway.edge.http_request import HttpRequest, body_timeout

MAX_BUFFERED = 256 * 1024
"""The maximum number of bytes of a body that are read before the handler calls ``body``."""

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
VERSION = b"\r\nopenai-version: 2020-10-01\r\n"
CLOSE = b"connection: close\r\n"
SIZE_LINES = tuple([b"%x\r\n" % size for size in range(1024)])
"""Size of a chunk → the line before it. Formatting a line for each event of a stream would cause a quarter of the
misses of the processor's instruction cache."""


def chunk(data: bytes) -> bytes:
    """Return a chunk of a chunked body (RFC 9112, 7.1). ``data`` must not be empty: that chunk would be the last."""
    size = len(data)
    return (SIZE_LINES[size] if size < len(SIZE_LINES) else b"%x\r\n" % size) + data + b"\r\n"


class RequestConnection(Protocol):
    """The attributes and methods of ``ServerConnection`` that a request uses."""

    state: ServerState
    transport: asyncio.Transport
    lost: bool
    drained: asyncio.Future[None] | None

    def send(self, data: bytes) -> None: ...
    async def drain_writes(self, seconds: float) -> None: ...
    def done(self, request: Http1Request) -> None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def abort(self) -> None: ...


class Http1Request(HttpRequest):
    """One request on a connection of our own server."""

    _head: bytes | None = None
    """The head of a started stream; None after the head is sent."""
    _chunked = False
    size = 0
    """The number of received bytes of the body."""
    body_waiter: asyncio.Future[None] | None = None
    """Resolved at the end of the body; None unless ``body`` waits."""
    body_complete = False
    http10 = False
    """True: the request uses HTTP/1.0, which has no chunked encoding."""
    expects_continue = False
    """True: the client waits for ``100 Continue`` before it sends the body."""

    def __init__(self, connection: RequestConnection, method: str, path: str, headers: dict[bytes, bytes]) -> None:
        HttpRequest.__init__(self, method, path, headers)
        self._connection = connection
        self.limit = MAX_BUFFERED
        """The maximum size of the body in bytes."""
        self.chunks: list[bytes] = []
        """The received parts of the body."""

    # ---------------------------------------------------------------- the body

    async def body(self, limit: int) -> bytes:
        """Read the whole body. See ``HttpRequest.body``."""
        self.limit = limit
        if self.size > limit:
            raise body_too_large(limit)
        if not self.body_complete:
            if self.expects_continue:
                self.expects_continue = False
                self._connection.send(CONTINUE)
            self._connection.resume_reading()
            self.body_waiter = asyncio.get_running_loop().create_future()
            try:
                await self.body_waiter
            finally:
                self.body_waiter = None
        body, self.buffered_body = self.buffered_body, None
        if body is not None:
            return body
        chunks, self.chunks = self.chunks, []
        return b"".join(chunks)

    def body_overflow(self) -> None:
        """Make ``body`` fail, because more than ``limit`` bytes have arrived."""
        self._connection.pause_reading()
        self._fail_body(body_too_large(self.limit))

    def body_arrived(self) -> None:
        """Wake ``body``, because the body is complete."""
        if self.body_waiter is not None and not self.body_waiter.done():
            self.body_waiter.set_result(None)

    def body_late(self, seconds: float) -> None:
        """Make ``body`` fail, because the body did not arrive within ``seconds``."""
        self._fail_body(body_timeout(seconds))

    def _fail_body(self, error: Exception) -> None:
        if self.body_waiter is not None and not self.body_waiter.done():
            self.body_waiter.set_exception(error)

    # ---------------------------------------------------------------- the answer

    def reply(self, status: int, headers: bytes, body: bytes) -> None:
        """Send a whole answer. See ``HttpRequest.reply``."""
        if self.complete:
            return
        self.status = status
        connection = self._connection
        state = connection.state
        if not connection.lost:
            connection.transport.write(
                b"".join(
                    (
                        state.starts.get(status) or state.answer_start(status),
                        self.request_id.encode("ascii"),
                        VERSION,
                        self.extra_headers,
                        headers,
                        b"content-length: %d\r\n" % len(body),
                        CLOSE if self.closing or self.expects_continue or state.closing else b"",
                        b"\r\n",
                        b"" if self.method == "HEAD" else body,
                    )
                )
            )
        self.complete = True
        connection.done(self)

    def start(self, status: int, headers: bytes) -> None:
        """Start a stream. See ``HttpRequest.start``."""
        self.status = status
        state = self._connection.state
        self._chunked = not self.http10 and self.method != "HEAD"
        # If ``100 Continue`` was not sent, a body may or may not follow, so the connection cannot be used again.
        self.closing = self.closing or self.expects_continue or state.closing
        self._head = b"%b%b%b%b%b%b%b\r\n" % (
            state.starts.get(status) or state.answer_start(status),
            self.request_id.encode("ascii"),
            VERSION,
            self.extra_headers,
            headers,
            CLOSE if self.closing else b"",
            b"transfer-encoding: chunked\r\n" if self._chunked else b"",
        )

    async def write(self, frames: bytes, seconds: float) -> None:
        """Send a part of a stream. See ``HttpRequest.write``."""
        if not frames:
            return
        connection = self._connection
        framed = self._framed(frames)
        if not connection.lost:
            connection.transport.write(framed)
        if connection.drained is not None:
            await connection.drain_writes(seconds)

    @property
    def can_try_write(self) -> bool:
        """True: ``try_write`` may be used. See ``HttpRequest.can_try_write``."""
        return self._chunked and self._head is None

    def try_write(self, frames: bytes) -> bool:
        """Send a part of a stream without waiting. See ``HttpRequest.try_write``."""
        connection = self._connection
        if connection.drained is not None:
            return False
        if not connection.lost:
            connection.transport.write(chunk(frames))
        return True

    def end(self, last: bytes = b"") -> None:
        """End a stream with its last part. See ``HttpRequest.end``."""
        if self.complete:
            return
        framed = self._framed(last)
        self._connection.send(framed + b"0\r\n\r\n" if self._chunked else framed)
        self.complete = True
        self._connection.done(self)

    def abort(self) -> None:
        """Close the connection without completing the answer. See ``HttpRequest.abort``."""
        self._connection.abort()

    def _framed(self, frames: bytes) -> bytes:
        """Return the bytes of a part of a stream: the head if it is unsent, then ``frames``, chunked if necessary."""
        if self.method == "HEAD":
            frames = b""
        elif self._chunked and frames:
            frames = chunk(frames)
        head = self._head
        if head is None:
            return frames
        self._head = None
        return head + frames
