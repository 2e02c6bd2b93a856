"""How does a request of our own server take its body and speak its answer?

A whole answer is one write; so is a stream's head with its first frames, and each batch after it.
"""

from __future__ import annotations

import asyncio
import time
from http import HTTPStatus
from random import getrandbits
from typing import TYPE_CHECKING

from gateway.core.errors import BodyTooLarge, RequestTimeout
from gateway.edge.http_request import HttpRequest, id_from

if TYPE_CHECKING:
    from gateway.edge.http1.connection import ServerConnection

BODY_SECONDS = 30.0
EARLY = 256 * 1024
"""Bytes of a body that are taken before anybody has asked for it."""

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
VERSION = b"\r\nopenai-version: 2020-10-01\r\n"
CLOSE = b"connection: close\r\n"


def status_line(status: int) -> bytes:
    """The first line of an answer."""
    return b"HTTP/1.1 %d %b\r\n" % (status, HTTPStatus(status).phrase.encode("ascii"))


class Request(HttpRequest):
    """One request on a line of ours."""

    __slots__ = ("_chunked", "_head", "_line", "chunks", "expects", "limit", "old", "size", "waiter", "whole")

    def __init__(self, line: ServerConnection, method: str, path: str, headers: dict[bytes, bytes]) -> None:
        # The bases' part is written out: their constructors would cost as much as all of this.
        self.task = None
        self._why = None
        self._settled = False
        self.method = method
        self.path = path
        self.headers = headers
        theirs = headers.get(b"x-request-id")
        if theirs is None:
            self.request_id = f"req_{getrandbits(128):032x}"
        else:
            self.request_id = id_from(theirs)
        self.received = time.monotonic()
        self.model = None
        self.known = None
        self.telling = None
        self.early = None
        self.status = 0
        self.answered = False
        self.closing = False
        self._line = line
        self._head: bytes | None = None
        self._chunked = False
        self.chunks: list[bytes] = []
        """The body, as far as it has come."""
        self.size = 0
        """Bytes of the body that have come."""
        self.limit = EARLY
        """Bytes it may have."""
        self.waiter: asyncio.Future[None] | None = None
        """Who waits for the end of the body."""
        self.whole = False
        """All of the body is here."""
        self.old = False
        """HTTP/1.0, which knows no chunks."""
        self.expects = False
        """The client waits for ``100 Continue`` before it sends the body."""

    # ---------------------------------------------------------------- the body

    async def body(self, limit: int) -> bytes:
        """See ``HttpRequest``."""
        self.limit = limit
        if self.size > limit:
            raise too_large(limit)
        if not self.whole:
            if self.expects:
                self.expects = False
                self._line.send(CONTINUE)
            self._line.read_on()
            self.waiter = asyncio.get_running_loop().create_future()
            try:
                await self.waiter
            finally:
                self.waiter = None
        body, self.early = self.early, None
        if body is not None:
            return body
        chunks, self.chunks = self.chunks, []
        return b"".join(chunks)

    def overflow(self) -> None:
        """More of the body has come than may come."""
        self._line.hold()
        self._fail(too_large(self.limit))

    def complete(self) -> None:
        """The body has ended, and somebody waits for that."""
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)

    def late(self, seconds: float) -> None:
        """The body has not come in time."""
        self._fail(RequestTimeout(f"the request body did not arrive within {seconds:g} s"))

    def _fail(self, error: Exception) -> None:
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_exception(error)

    # ---------------------------------------------------------------- the answer

    def reply(self, status: int, headers: bytes, body: bytes) -> None:
        """See ``HttpRequest``."""
        if self.answered:
            return
        self.status = status
        line = self._line
        listener = line.listener
        if not line.lost:
            line.transport.write(
                b"%b%b%b%bcontent-length: %d\r\n%b\r\n%b"
                % (
                    listener.openings.get(status) or listener.opening(status), self.request_id.encode("ascii"),
                    VERSION, headers, len(body),
                    CLOSE if self.closing or self.expects or listener.draining else b"",
                    b"" if self.method == "HEAD" else body,
                )
            )  # fmt: skip
        self.answered = True
        line.done(self)

    def begin(self, status: int, headers: bytes) -> None:
        """See ``HttpRequest``."""
        self.status = status
        listener = self._line.listener
        self._chunked = not self.old and self.method != "HEAD"
        # A client that was never told to go on may or may not send its body now.
        self.closing = self.closing or self.expects or listener.draining
        self._head = b"%b%b%b%b%b%b\r\n" % (
            listener.openings.get(status) or listener.opening(status), self.request_id.encode("ascii"),
            VERSION, headers,
            CLOSE if self.closing else b"", b"transfer-encoding: chunked\r\n" if self._chunked else b"",
        )  # fmt: skip

    async def write(self, frames: bytes, seconds: float) -> None:
        """See ``HttpRequest``."""
        if not frames:
            return
        line = self._line
        if self._chunked and self._head is None:  # every part but the first
            framed = b"%x\r\n%b\r\n" % (len(frames), frames)
        else:
            framed = self._framed(frames)
        if not line.lost:
            line.transport.write(framed)
        if line.drained is not None:
            await line.drain_writes(seconds)

    @property
    def passes_on(self) -> bool:
        """See ``HttpRequest``."""
        return self._chunked and self._head is None

    def pass_on(self, frames: bytes) -> bool:
        """See ``HttpRequest``."""
        line = self._line
        if line.drained is not None:
            return False
        if not line.lost:
            line.transport.write(b"%x\r\n%b\r\n" % (len(frames), frames))
        return True

    def end(self, last: bytes = b"") -> None:
        """See ``HttpRequest``."""
        if self.answered:
            return
        framed = self._framed(last)
        self._line.send(framed + b"0\r\n\r\n" if self._chunked else framed)
        self.answered = True
        self._line.done(self)

    def abandon(self) -> None:
        """See ``HttpRequest``."""
        self._line.abort()

    def _framed(self, frames: bytes) -> bytes:
        head = self._head
        if self.method == "HEAD":
            frames = b""
        elif self._chunked and frames:
            frames = b"%x\r\n%b\r\n" % (len(frames), frames)
        if head is None:
            return frames
        self._head = None
        return head + frames


def too_large(limit: int) -> BodyTooLarge:
    """413."""
    return BodyTooLarge(f"the request body is larger than {limit} bytes (server.max_body)")
