"""What is one connection to a model's server, and the answer that is being read from it?

An asyncio protocol around llhttp: it counts what it hears, keeps what the reader has not taken yet, and knows at
each moment whether the answer is whole, broken or not HTTP at all. Who opens and pools connections: ``h1.py``.

llhttp tells most of it without a call into Python: what it calls are methods of lists. One ``data_received`` and one
``on_message_complete`` are all that an answer in one read costs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import httptools

from gateway.backend.http_client.response_headers import HTTP_FAULTS, MAX_HEADERS, MAX_LINE, Fields, media_type
from gateway.core.errors import UpstreamDisconnected, UpstreamError, UpstreamInvalidResponse

MAX_HEAD = 64 * 1024
"""Bytes of a status line and all headers, interim answers included; and of an answer's framing (chunk extensions,
trailers) that come without a byte of its body."""
COPIED = 64 * 1024
"""Bytes from which a body is not joined with its head."""
HIGH_WATER = 256 * 1024
"""Bytes of a body that may wait for the reader before the socket is paused."""

BODILESS = frozenset({204, 304})
"""Statuses without a body. No POST for a completion is answered so, and a server that sends one all the same would
speak into the next answer: their connections are not used again."""

NOT_HTTP = "the model's server does not answer in valid HTTP"
CLOSED = "the model's server closed the connection"


class Connection(asyncio.Protocol):
    """One connection, and the answer that is being read from it: status, headers, and a body to be read once."""

    __slots__ = (
        "_chunks",
        "_failure",
        "_fields",
        "_heads",
        "_heard",
        "_in_head",
        "_interim",
        "_keep_alive",
        "_loop",
        "_parser",
        "_paused",
        "_quiet",
        "_said",
        "_take",
        "_transport",
        "_waiter",
        "_waiting_bytes",
        "complete",
        "ended",
        "leave",
        "lost",
        "on_body",
        "on_headers_complete",
        "on_message_begin",
        "plain",
        "status",
    )

    leave: Callable[[], None]
    """End the exchange: pools the connection if the body was read to its end, else closes it. Set by the client."""
    complete: bool
    """Set by a reader that needs no more of the body, such as one that saw ``[DONE]``."""
    plain: bool
    """A success whose body is not encoded. False: ``status`` and the headers have to be looked at."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._take: Callable[[bytes], bool] | None = None
        """Who takes pieces of the body in passing; see ``flow``."""
        self._chunks: list[bytes] = []
        """The body that the reader has not taken yet, chunk framing removed."""
        self._in_head: list[None] = []
        """Not empty until the headers are complete."""
        self._quiet: list[None] = []
        """Not empty if an answer has ended and nothing was said after it."""
        self.lost = False
        self.status = 0
        self.ended = True
        """The answer is complete; before the first request there is none."""
        self._keep_alive = False
        self._paused = False
        self._interim = False
        self._heard = False
        self._failure: UpstreamError | None = None
        # What llhttp calls; it looks them up once.
        self.on_body = self._chunks.append
        self.on_headers_complete = self._in_head.clear
        self.on_message_begin = self._quiet.clear
        self._parser = httptools.HttpResponseParser(self)

    # ------------------------------------------------------------------ the reader's side

    @property
    def reusable(self) -> bool:
        """May another request go out on it? Not while some of the last one's body waits to be sent."""
        if not (self.ended and self._keep_alive and self._quiet) or self.lost or self._paused:
            return False
        return self._transport is not None and not self._transport.get_write_buffer_size()

    @property
    def silent(self) -> bool:
        """Not a byte of an answer has come."""
        return not self._heard

    def send(self, head: bytes, body: bytes) -> asyncio.Future[None]:
        """Begin an exchange: one write, but a large body is not copied for it. Done when the head or a failure is."""
        self._chunks.clear()
        self._quiet.clear()
        self._in_head[:] = (None,)
        self._heads: list[bytes] = []
        """Status line and headers as they came; at the end of the list there may be some of the body."""
        self._fields: Fields | None = None
        self._waiting_bytes = 0
        self._said = 0
        """Pieces in ``_chunks`` when the answer ended: what comes after them is not its body."""
        self._interim = self._heard = self._keep_alive = False
        self._failure = None
        self.status = 0
        self.ended = self.plain = self.complete = False
        transport = self._transport
        assert transport is not None
        if len(body) < COPIED:
            transport.write(head + body)
        else:
            transport.writelines((head, body))
        self._waiter = waiter = self._loop.create_future()
        if self.lost:
            self._fail(UpstreamDisconnected(CLOSED))
        return waiter

    async def head(self) -> None:
        """Wait for status and headers."""
        while not self.status:
            if self._failure is not None:
                raise self._failure
            self._waiter = self._loop.create_future()
            await self._waiter

    async def more(self) -> bytes:
        """The next piece of the body, of any size; empty at its end. Raises ``UpstreamError``."""
        chunks = self._chunks
        while not chunks:
            if self._failure is not None:
                raise self._failure
            if self.ended:
                return b""
            self._waiter = waiter = self._loop.create_future()
            await waiter
        data = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        chunks.clear()
        self._waiting_bytes = 0
        if self._paused and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()
        return data

    async def flow(self, take: Callable[[bytes], bool]) -> None:
        """Hand each piece to ``take`` when it arrives, until it returns False: that piece is left for ``more``.

        Ends as well where the body ends or fails.
        """
        if self._chunks or self.ended or self._failure is not None:
            return
        self._take = take
        self._waiter = waiter = self._loop.create_future()
        try:
            await waiter
        finally:
            self._take = None

    def whole(self) -> bytes | None:
        """All of the body that was not read yet, if its end has come; None: use ``more``."""
        if not self.ended or self._paused:
            return None
        chunks = self._chunks
        data = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        chunks.clear()
        return data

    @property
    def content_type(self) -> str:
        """The media type without parameters, lower case; empty when the server gave none."""
        value = self.header("content-type")
        return "" if value is None else media_type(value)

    def header(self, name: str) -> str | None:
        """One header's first value; for our own decisions, never to be passed on. ``name`` is in lower case."""
        return self._read_fields().get(name)

    def close(self) -> None:
        """Close at once, whatever is under way."""
        if self._transport is not None:
            self._transport.abort()

    def _read_fields(self) -> Fields:
        if self._fields is None:
            self._fields = Fields(b"".join(self._heads))
        return self._fields

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None:
            self._waiter = None
            if not waiter.done():
                waiter.set_result(None)

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
            if data.strip(b"\r\n"):  # llhttp too skips blank lines
                self._quiet.clear()  # bytes behind an answer belong to no request: this connection is not used again
            return
        take, chunks = self._take, self._chunks
        if take is not None:  # a passage: of all that follows, only this concerns it
            try:
                self._parser.feed_data(data)
            except HTTP_FAULTS:
                self._arrived(good=False)
                return
            if not self.ended:
                if not chunks:  # only framing has come
                    self._waiting_bytes += len(data)
                    if self._waiting_bytes > MAX_HEAD:
                        self._arrived(good=False)
                    return
                if take(chunks[0] if len(chunks) == 1 else b"".join(chunks)):
                    chunks.clear()
                    self._waiting_bytes = 0
                    return
                self._waiting_bytes = sum(map(len, chunks))
            self._arrived(good=True)
            return
        self._heard = True
        self._waiting_bytes += len(data)
        headless = not self.status
        if headless:
            self._heads.append(data)
        good = True
        try:
            self._parser.feed_data(data)
        except HTTP_FAULTS:
            good = False
        if headless and (self.status or not self._in_head):
            good = self._headed() and good
        bounded = self._waiting_bytes <= MAX_HEAD or bool(self.status and (chunks or self.ended))
        self._arrived(good=good and bounded)

    def _arrived(self, *, good: bool) -> None:
        """Something has come that the reader should look at; not ``good``: it is not HTTP."""
        if self.ended:
            del self._chunks[self._said :]  # of a second answer, which nobody asked for
        if not good:
            self._fail(UpstreamInvalidResponse(NOT_HTTP))
            self.close()
            return
        waiter = self._waiter
        if waiter is not None and self.status:
            self._waiter = None
            if not waiter.done():
                waiter.set_result(None)
        if self._waiting_bytes > HIGH_WATER and not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()

    def connection_lost(self, error: Exception | None) -> None:
        """asyncio: the connection is gone."""
        self.lost = True
        if self.ended:
            return
        if self.status and error is None and not self._failure and not self._sized():
            self.ended = True  # a body without a length ends with its connection (HTTP/1.0)
            self._wake()
        elif self._heard and not self.status and error is None:
            self._fail(UpstreamInvalidResponse("the model's server closed the connection inside its headers"))
        else:
            inside = " inside its answer" if self.status else ""
            self._fail(UpstreamDisconnected(CLOSED + inside))

    def _sized(self) -> bool:
        """Can the end of the body be known without the end of the connection?"""
        return self.status in BODILESS or self._read_fields().sized

    def _headed(self) -> bool:
        """The headers are complete: read their status. False: it is none, or there are too many headers."""
        status = self.status or self._parser.get_status_code()
        if 100 <= status < 200:
            return True
        head = self._heads[0] if len(self._heads) == 1 else b"".join(self._heads)
        end = head.find(b"\r\n\r\n")
        if end >= 0 and not self._interim and head.startswith(b"HTTP/"):
            head = head[: end + 4]
        self._heads[:] = (head,)
        large = len(head) > MAX_LINE or head.count(b"\n") > MAX_HEADERS
        if not 200 <= status < 600 or (large and self._read_fields().excessive):
            self._chunks.clear()
            self.status, self.ended = 0, False
            return False
        self.status = status
        self.plain = 200 <= status < 300 and b"content-encoding" not in head.lower()
        return True

    # ------------------------------------------------------------------ llhttp's side

    def on_message_complete(self) -> None:
        """llhttp: the answer is complete; only here does it still know whether the connection stays."""
        if self.ended:
            return
        if not self.status:
            status = self._parser.get_status_code()
            if 100 <= status < 200:
                self._interim = True
                self._in_head[:] = (None,)
                return
            self.status = status
        self._keep_alive = self.status not in BODILESS and self._parser.should_keep_alive()
        self._said = len(self._chunks)
        self._quiet.append(None)
        self.ended = True
