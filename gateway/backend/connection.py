"""What is one connection to a model's server, and the answer that is being read from it?

An asyncio protocol around llhttp: it counts what it hears, keeps what the reader has not taken yet, and knows at
each moment whether the answer is whole, broken or not HTTP at all. Who opens and pools connections: ``h1.py``.
"""

from __future__ import annotations

import asyncio
from typing import cast

import httptools

from gateway.backend.http import MAX_LINE, media_type
from gateway.core.errors import UpstreamDisconnected, UpstreamError, UpstreamInvalidResponse

MAX_HEAD = 64 * 1024
"""Bytes of a status line and all headers, interim answers included."""
MAX_HEADERS = 256
COPIED = 64 * 1024
"""Bytes from which a body is not joined with its head."""
HIGH_WATER = 256 * 1024
"""Bytes of a body that may wait for the reader before the socket is paused."""

NOT_HTTP = "the model's server does not answer in valid HTTP"
CLOSED = "the model's server closed the connection"


_FRAMING = frozenset({b"content-length", b"transfer-encoding"})
"""The headers that tell where a body ends."""


class Connection(asyncio.Protocol):
    """One connection and the answer that is being read from it; see ``HttpAnswer``."""

    __slots__ = (
        "_chunks",
        "_failure",
        "_head_bytes",
        "_headers",
        "_heard",
        "_interim",
        "_keep_alive",
        "_loop",
        "_parser",
        "_paused",
        "_surplus",
        "_transport",
        "_waiter",
        "_waiting_bytes",
        "complete",
        "ended",
        "lost",
        "status",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[None] | None = None
        self.lost = False
        self._reset()

    def _reset(self) -> None:
        self._chunks: list[bytes] = []
        self._waiting_bytes = 0
        self._paused = False
        self._headers: list[tuple[bytes, bytes]] = []
        self._head_bytes = 0
        self._interim = False
        self._heard = False
        self._surplus = False
        self._failure: UpstreamError | None = None
        self._keep_alive = False
        self.status = 0
        self.ended = False
        """The answer is complete."""
        self.complete = False
        """See ``HttpAnswer``."""

    # ------------------------------------------------------------------ the reader's side

    @property
    def reusable(self) -> bool:
        """May another request go out on it?"""
        return self.ended and self._keep_alive and not (self._surplus or self.lost or self._failure)

    @property
    def silent(self) -> bool:
        """Not a byte of an answer has come."""
        return not self._heard

    def send(self, head: bytes, body: bytes) -> None:
        """Begin an exchange: one write, but a large body is not copied for it."""
        self._reset()
        assert self._transport is not None
        if len(body) < COPIED:
            self._transport.write(head + body)
        else:
            self._transport.writelines((head, body))

    async def head(self) -> None:
        """Wait for status and headers."""
        while not self.status:
            if self._failure is not None:
                raise self._failure
            self._waiter = self._loop.create_future()
            await self._waiter

    async def more(self) -> bytes:
        """The next piece of the body; empty at its end."""
        chunks = self._chunks
        while not chunks:
            if self._failure is not None:
                raise self._failure
            if self.ended:
                return b""
            self._waiter = self._loop.create_future()
            await self._waiter
        data = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        chunks.clear()
        self._waiting_bytes = 0
        if self._paused and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()
        return data

    @property
    def content_type(self) -> str:
        """See ``HttpAnswer``."""
        value = self.header("content-type")
        return "" if value is None else media_type(value)

    def header(self, name: str) -> str | None:
        """See ``HttpAnswer``."""
        wanted, length = name.encode("ascii"), len(name)
        for key, value in self._headers:
            if len(key) == length and key.lower() == wanted:
                return value.decode("latin-1")
        return None

    def close(self) -> None:
        """Close at once, whatever is under way."""
        if self._transport is not None:
            self._transport.abort()

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None:
            self._waiter = None
            if not waiter.done():
                waiter.set_result(None)

    def _sized(self) -> bool:
        """Can the end of the body be known without the end of the connection?"""
        return self.status in (204, 304) or any(name.lower() in _FRAMING for name, _ in self._headers)

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
        if self.status and not self._sized() and error is None and not self._failure:
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

    def on_headers_complete(self) -> None:
        """llhttp: the headers are complete."""
        if self.ended:
            return
        status = self._parser.get_status_code()
        self._interim = 100 <= status < 200
        if self._interim:
            self._headers.clear()
            return
        self.status = status
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
        self._wake()
