"""How does a request of our own server take its body and speak its answer?

A whole answer is one write; so is a stream's head with its first frames, and each batch after it.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import TYPE_CHECKING

from gateway.core.errors import BodyTooLarge, RequestTimeout
from gateway.edge.asked import Asked

if TYPE_CHECKING:
    from gateway.edge.line import Line

BODY_SECONDS = 30.0
EARLY = 256 * 1024
"""Bytes of a body that are taken before anybody has asked for it."""

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
VERSION = b"\r\nopenai-version: 2020-10-01\r\n"
CLOSE = b"connection: close\r\n"


def status_line(status: int) -> bytes:
    """The first line of an answer."""
    return b"HTTP/1.1 %d %b\r\n" % (status, HTTPStatus(status).phrase.encode("ascii"))


class Request(Asked):
    """One request on a line of ours."""

    __slots__ = ("_chunked", "_chunks", "_head", "_limit", "_line", "_size", "_waiter", "expects", "old", "whole")

    def __init__(self, line: Line, method: str, path: str, headers: dict[bytes, bytes]) -> None:
        super().__init__(method, path, headers)
        self._line = line
        self._chunks: list[bytes] = []
        self._size = 0
        self._limit = EARLY
        self._waiter: asyncio.Future[None] | None = None
        self._head: bytes | None = None
        self._chunked = False
        self.whole = False
        """All of the body is here."""
        self.old = False
        """HTTP/1.0, which knows no chunks."""
        self.expects = False
        """The client waits for ``100 Continue`` before it sends the body."""

    # ---------------------------------------------------------------- the body

    async def body(self, limit: int) -> bytes:
        """See ``Asked``."""
        self._limit = limit
        if self._size > limit:
            raise too_large(limit)
        if not self.whole:
            if self.expects:
                self.expects = False
                self._line.send(CONTINUE)
            self._line.read_on()
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        chunks, self._chunks = self._chunks, []
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    def take(self, chunk: bytes) -> None:
        """A piece of the body has come; what nobody will read is dropped."""
        if self.answered:
            return
        self._chunks.append(chunk)
        self._size += len(chunk)
        if self._size > self._limit:
            self._line.hold()
            self._fail(too_large(self._limit))

    def complete(self) -> None:
        """The body has ended."""
        self.whole = True
        self.expects = False
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def late(self, seconds: float) -> None:
        """The body has not come in time."""
        self._fail(RequestTimeout(f"the request body did not arrive within {seconds:g} s"))

    def _fail(self, error: Exception) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(error)

    # ---------------------------------------------------------------- the answer

    def reply(self, status: int, headers: bytes, body: bytes) -> None:
        """See ``Asked``."""
        if self.answered:
            return
        self.status = status
        line = self._line
        line.send(
            b"%b%b%b%bcontent-length: %d\r\n%b\r\n%b"
            % (
                line.opening(status), self.request_id.encode("ascii"), VERSION, headers, len(body),
                CLOSE if line.closes(self) else b"", b"" if self.method == "HEAD" else body,
            )
        )  # fmt: skip
        self.answered = True
        line.done(self)

    def begin(self, status: int, headers: bytes) -> None:
        """See ``Asked``."""
        self.status = status
        line = self._line
        self._chunked = not self.old and self.method != "HEAD"
        self.closing = line.closes(self)
        self._head = b"%b%b%b%b%b%b\r\n" % (
            line.opening(status), self.request_id.encode("ascii"), VERSION, headers,
            CLOSE if self.closing else b"", b"transfer-encoding: chunked\r\n" if self._chunked else b"",
        )  # fmt: skip

    async def write(self, frames: bytes) -> None:
        """See ``Asked``."""
        if not frames:
            return
        line = self._line
        line.send(self._framed(frames))
        if line.drained is not None:
            await line.drained

    def pass_on(self, frames: bytes) -> bool:
        """See ``Asked``."""
        line = self._line
        if line.drained is not None or self._head is not None or not self._chunked:
            return False
        line.send(b"%x\r\n%b\r\n" % (len(frames), frames))
        return True

    def end(self, last: bytes = b"") -> None:
        """See ``Asked``."""
        if self.answered:
            return
        framed = self._framed(last)
        self._line.send(framed + b"0\r\n\r\n" if self._chunked else framed)
        self.answered = True
        self._line.done(self)

    def abandon(self) -> None:
        """See ``Asked``."""
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
