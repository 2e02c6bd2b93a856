"""One client connection to a model's server, and the response that is being read.

An asyncio protocol around llhttp. The most frequent callbacks of llhttp are C methods such as ``list.append``. A
response that arrives in one read needs two Python calls: ``data_received`` and ``on_message_complete``.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable
from typing import cast

import httptools

from gateway.backend.http_client.response_headers import (
    HTTP_FAULTS,
    MAX_HEADER_LINE,
    MAX_HEADERS,
    ResponseHeaders,
    media_type,
)
from gateway.core.errors import (
    SEND_AGAIN,
    UpstreamDisconnected,
    UpstreamError,
    UpstreamInvalidResponse,
    UpstreamUnreachable,
)

MAX_FRAMING = 64 * 1024
"""The maximum number of consecutive bytes that contain no data of a body. Such bytes are status lines, headers,
interim responses, chunk extensions and trailers."""
MIN_SEPARATE_BODY = 64 * 1024
"""A request body of at least this many bytes is not joined with its head."""
HIGH_WATER = 256 * 1024
"""The socket is paused when this many bytes of a body are unread."""

BODILESS = frozenset({204, 304})
"""Statuses of responses without a body. No completion has such a status. If a server sent a body nevertheless, the
body would be read as the next response. So connections with such a response are not reused."""

NOT_HTTP = "the model's server does not answer in valid HTTP"
CLOSED = "the model's server closed the connection"
TLS_ALERT = b"\x15\x03"
"""The first bytes of a TLS server's reply to a request in plain HTTP."""
IS_TLS = "the model's server answers in TLS; use https:// instead of http:// in url"


class Connection(asyncio.Protocol):
    """One connection, with status, headers and body of the current response. The body can be read once."""

    __slots__ = (
        "_body_pieces",
        "_chunks",
        "_failure",
        "_forward",
        "_framing_bytes",
        "_head",
        "_idle",
        "_in_head",
        "_input",
        "_interim",
        "_loop",
        "_parser",
        "_paused",
        "_transport",
        "_unread_bytes",
        "_waiter",
        "content_complete",
        "is_closed",
        "is_plain_success",
        "on_body",
        "on_headers_complete",
        "on_message_begin",
        "release",
        "response_complete",
        "status",
    )

    release: Callable[[], None]
    """Pool the connection if the body was read to its end, otherwise close it. ``HttpClient`` sets this function."""
    content_complete: bool
    """True: the reader does not need the rest of the body, for example after ``[DONE]``. The reader sets the value."""
    is_plain_success: bool
    """True: the status is 2xx and the body is not encoded. False: ``status`` and the headers must be checked."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._transport: asyncio.Transport
        self._waiter: asyncio.Future[None] | None = None
        self._forward: Callable[[bytes], bool] | None = None
        """The function that receives each piece of the body on arrival; see ``forward``. None: no forwarding."""
        self._chunks: list[bytes] = []
        """The unread body, without chunk framing."""
        self._in_head: list[None] = []
        """A list that is not empty until the headers are complete."""
        self._idle: list[None] = []
        """A list that is not empty if a response has ended, the server keeps the connection, and no bytes followed."""
        self._input = select.poll()
        """Polls the socket for input that the event loop has not read."""
        self.is_closed = False
        self.status = 0
        """The status of the current response; 0 until the headers are complete."""
        self.response_complete = True
        """True: the current response has arrived completely, or no request was sent yet."""
        self._paused = False
        self._failure: UpstreamError | None = None
        # llhttp looks these callbacks up once.
        self.on_body = self._chunks.append
        self.on_headers_complete = self._in_head.clear
        self.on_message_begin = self._idle.clear
        self._parser = httptools.HttpResponseParser(self)

    # ------------------------------------------------------------------ for the reader

    @property
    def is_reusable(self) -> bool:
        """True: another request can be sent. False while a part of the last request is still unsent."""
        return bool(self._idle) and not self._paused and not self._transport.get_write_buffer_size()

    @property
    def is_idle(self) -> bool:
        """True: no bytes, and no end of the connection, have arrived since ``is_reusable``, read or not read yet."""
        return bool(self._idle) and not self._input.poll(0)

    @property
    def response_begun(self) -> bool:
        """True: a byte of the current response has arrived."""
        return bool(self._head)

    def send(self, head: bytes, body: bytes) -> asyncio.Future[None]:
        """Send a request. The future is done when a part of the body, or all headers of an error, have arrived.

        It is also done when the connection has failed.
        """
        self._chunks.clear()
        self._idle.clear()
        self._in_head.append(None)
        self._head = b""
        """Status line and headers as received, until the headers are complete with some of the body."""
        self._unread_bytes = 0
        """The size of the received pieces that contain body data, since the reader last took a piece."""
        self._framing_bytes = 0
        """The number of bytes received since the last byte of a body."""
        self.status = 0
        self._interim = self.response_complete = self.is_plain_success = self.content_complete = False
        if len(body) < MIN_SEPARATE_BODY:
            self._transport.write(head + body)
        else:
            self._transport.writelines((head, body))
        self._waiter = waiter = self._loop.create_future()
        if self.is_closed:
            self._fail(UpstreamDisconnected(CLOSED))
        return waiter

    async def read_head(self) -> None:
        """Wait for status and headers. Raises ``UpstreamError`` if the connection fails."""
        while not self.status:
            if self._failure is not None:
                raise self._failure
            self._waiter = self._loop.create_future()
            await self._waiter

    async def read(self) -> bytes:
        """Return the next piece of the body, of any size; empty at the end of the body. Raises ``UpstreamError``."""
        chunks = self._chunks
        while not chunks:
            if self._failure is not None:
                raise self._failure
            if self.response_complete:
                return b""
            self._waiter = waiter = self._loop.create_future()
            await waiter
        data = b"".join(chunks)
        chunks.clear()
        self._unread_bytes = 0
        if self._paused:
            self._paused = False
            self._transport.resume_reading()
        return data

    def read_rest(self) -> bytes | None:
        """Return the unread body if the end of the body has arrived; otherwise None, and ``read`` must be used."""
        if not self.response_complete or self._paused:
            return None
        data = b"".join(self._chunks)
        self._chunks.clear()
        return data

    async def forward(self, take: Callable[[bytes], bool]) -> None:
        """Call ``take`` with each piece of the body on arrival, until ``take`` returns False or the body ends or fails.

        A piece that ``take`` did not accept is left for ``read``.
        """
        if self._chunks or self.response_complete or self._failure is not None:
            return
        self._forward = take
        self._waiter = waiter = self._loop.create_future()
        try:
            await waiter
        finally:
            self._forward = None

    @property
    def content_type(self) -> str:
        """The media type without parameters, in lower case; empty if the server sent no content type."""
        value = self.header("content-type")
        return "" if value is None else media_type(value)

    def header(self, name: str) -> str | None:
        """Return the first value of a header. Do not send this value to clients. ``name`` is in lower case."""
        return ResponseHeaders(self._head).get(name)

    def headers(self) -> list[tuple[str, str]]:
        """Return all header fields in order. The names are in lower case."""
        return ResponseHeaders(self._head).items()

    def close(self) -> None:
        """Close the connection at once."""
        self._transport.abort()

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None:
            self._waiter = None
            if not waiter.done():
                waiter.set_result(None)

    def _fail(self, error: UpstreamError) -> None:
        if self._failure is None and not self.response_complete:
            self._failure = error
        self._wake()

    # ------------------------------------------------------------------ called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """asyncio calls this when the connection is open."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transport is not an asyncio.Transport
        self._input.register(transport.get_extra_info("socket").fileno(), select.POLLIN)

    def data_received(self, data: bytes) -> None:
        """asyncio calls this when bytes have arrived."""
        if self.response_complete:
            if data.strip(b"\r\n"):  # llhttp skips blank lines as well
                self._idle.clear()  # bytes after a response belong to no request: the connection is not reused
            return
        chunks, forward = self._chunks, self._forward
        in_head, valid = not self.status, True
        known = len(chunks)
        if in_head:
            self._head += data
        try:
            self._parser.feed_data(data)
        except HTTP_FAULTS:
            valid = False
        if in_head and (self.status or not self._in_head):
            valid = self._head_complete() and valid
        if self.response_complete:
            if not self._idle:
                del chunks[self._body_pieces :]  # pieces of a second response, which no request asked for
        elif len(chunks) > known:
            self._framing_bytes = 0
            if forward is not None and valid and forward(chunks[0] if len(chunks) == 1 else b"".join(chunks)):
                chunks.clear()
                return
            self._unread_bytes += len(data)
        else:
            self._framing_bytes += len(data)
            valid = valid and self._framing_bytes <= MAX_FRAMING
            if forward is not None and valid:
                return
        if not valid:
            alert = in_head and self._head.startswith(TLS_ALERT)
            self._fail(UpstreamUnreachable(IS_TLS) if alert else UpstreamInvalidResponse(NOT_HTTP))
            self.close()
            return
        # Successful headers wait for the first piece of the body, so that the task is woken once.
        if chunks or self.response_complete or (self.status and not self.is_plain_success):
            self._wake()
        if self._unread_bytes > HIGH_WATER and not self._paused:
            self._paused = True
            self._transport.pause_reading()

    def connection_lost(self, error: Exception | None) -> None:
        """asyncio calls this when the connection is closed."""
        self.is_closed = True
        self._idle.clear()
        if self.response_complete:
            return
        clean = self.status and error is None and not self._failure
        if clean and self.status not in BODILESS and not ResponseHeaders(self._head).is_delimited:
            self.response_complete = True  # a body without a length ends with its connection (HTTP/1.0)
            self._wake()
        elif self.response_begun and not self.status and error is None:
            self._fail(UpstreamInvalidResponse("the model's server closed the connection in the middle of the headers"))
        else:
            inside = f" in the middle of the answer; {SEND_AGAIN}" if self.status else ""
            self._fail(UpstreamDisconnected(CLOSED + inside))

    def _head_complete(self) -> bool:
        """Set ``status`` when the headers are complete. Return False if the status or the headers are invalid."""
        status = self.status or self._parser.get_status_code()
        if 100 <= status < 200:
            return True
        head = self._head
        end = head.find(b"\r\n\r\n")
        if end >= 0 and not self._interim and head.startswith(b"HTTP/"):
            self._head = head = head[: end + 4]
        large = len(head) > MAX_HEADER_LINE or head.count(b"\n") > MAX_HEADERS
        if not 200 <= status < 600 or (large and ResponseHeaders(head).is_excessive):
            self._chunks.clear()
            self._idle.clear()
            self.status, self.response_complete = 0, False
            return False
        self.status = status
        self.is_plain_success = 200 <= status < 300 and b"content-encoding" not in head.lower()
        return True

    # ------------------------------------------------------------------ called by llhttp

    def on_message_complete(self) -> None:
        """llhttp calls this when the response is complete. Only now llhttp knows whether the connection stays open."""
        if self.response_complete:
            return
        self.status = status = self.status or self._parser.get_status_code()
        if 100 <= status < 200:
            self.status, self._interim = 0, True
            self._in_head.append(None)
            return
        if status not in BODILESS and self._parser.should_keep_alive():
            self._idle.append(None)
        self._body_pieces = len(self._chunks)
        """The length of ``_chunks`` at the end of the response. Later pieces are not part of the response."""
        self.response_complete = True
