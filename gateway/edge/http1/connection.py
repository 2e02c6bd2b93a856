"""One client connection: parses requests, and sends their answers in order.

An asyncio protocol around the parser llhttp. Requests are answered one at a time. Pipelined requests wait in a queue,
and reading pauses while the queue is full. Input that is not HTTP/1.1 is refused with OpenAI's error object.

An offer to switch protocols (``Upgrade: h2c``, which Java's HTTP client makes with every request, or ``websocket``) is
declined: the answer comes in HTTP/1.1. The parser would treat the bytes after such a head as the other protocol, and
the request's body would be lost, so the head is parsed again without the offer.
"""

from __future__ import annotations

import asyncio
import re
import select
import uuid
from collections.abc import Callable
from ipaddress import IPv6Address, IPv6Network
from typing import NoReturn, cast

import httptools

from gateway.calls.endpoints.cancellation import ClientGone, ClientStalled
from gateway.calls.endpoints.sink import header_layout
from gateway.core.errors import GatewayError, HeadTooLarge, RequestError, RequestTimeout
from gateway.edge.http1.request import CLOSE, Http1Request
from gateway.edge.http1.state import ServerState, status_line
from gateway.wire.error_object import error_body, retry_fields

MAX_HEAD = 64 * 1024
"""The maximum size of the request line and all header fields, in bytes."""
MAX_FIELDS = 100
MAX_QUEUED = 4
"""The number of waiting pipelined requests on one connection at which reading pauses."""
MAX_DISCARDED = 64 * 1024 * 1024
"""The maximum number of bytes that a lingering close discards."""

HIGH_WATER = 64 * 1024
"""The number of unsent bytes at which back-pressure begins. With the default of TLS connections, 512 KiB, progress of a
slow client would be visible only in large steps, and a slow client would look like a client that reads nothing."""

HUNG_UP = getattr(select, "POLLRDHUP", 0)
"""The poll event for a connection that the client has closed while bytes are unread. Systems other than Linux report
only a reset."""

QUERY, FRAGMENT = b"?#"
"""Numbers, because ``number in bytes`` is ten times as fast as ``bytes in bytes``."""
DECLINED = frozenset({b"upgrade", b"http2-settings"})
METHODS = {name.encode("ascii"): name for name in ("GET", "POST", "HEAD", "OPTIONS", "PUT", "DELETE")}


def client_of(address: str) -> str:
    """Return the client of an address: an IPv4 address itself, or the /64 network of an IPv6 address.

    An IPv6 client can freely choose any address of its network.
    """
    if ":" not in address:
        return address
    full = IPv6Address(address.partition("%")[0])
    return str(full.ipv4_mapped or IPv6Network((int(full), 64), strict=False))


class ServerConnection(asyncio.Protocol):
    """One client connection."""

    __slots__ = (
        "_body_bytes",
        "_closed",
        "_closing",
        "_content_bytes",
        "_discarded",
        "_head_bytes",
        "_headers",
        "_incoming",
        "_opened",
        "_parser",
        "_progressed",
        "_queue",
        "_read_size",
        "_refusal",
        "_repeated",
        "_start",
        "_url",
        "_waiting_since",
        "client",
        "current",
        "drained",
        "lost",
        "reading_paused",
        "state",
        "transport",
    )

    def __init__(
        self,
        state: ServerState,
        start: Callable[[Http1Request], None],
        opened: Callable[[ServerConnection], None],
        closed: Callable[[ServerConnection], None],
    ) -> None:
        """``start`` begins to answer a request. ``opened`` and ``closed`` report this connection to the server."""
        self.state = state
        self._start = start
        self._opened = opened
        self._closed = closed
        self._queue: list[Http1Request] = []
        """Complete or incomplete requests whose answers have not begun, in order."""
        self.current: Http1Request | None = None
        """The request that is being answered."""
        self._incoming: Http1Request | None = None
        """The request whose body is being read."""
        self._refusal: GatewayError | None = None
        """The error for invalid input. The error is sent after the answers to all earlier requests."""
        self._closing = False
        """True: no further request is read."""
        self._discarded: int | None = None
        """The number of bytes discarded by the lingering close; None: no lingering close has begun."""
        self.lost = False
        """True: the connection is closed."""
        self.reading_paused = False
        self._progressed = False
        """True: the last read contained the end of a head, or a part of a body."""
        self._url = b""
        self._headers: dict[bytes, bytes] = {}
        self._repeated = 0
        """The number of fields in the head that have the name of an earlier field."""
        self._head_bytes = 0
        """The number of received bytes of an incomplete head."""
        self._body_bytes = 0
        """Received bytes of the body of ``_incoming`` (content and framing), without the read that ended the head."""
        self._content_bytes = 0
        """Received bytes of content in the body of ``_incoming``, including the content that came with the head."""
        self._read_size = 0
        """The number of bytes in the last read."""
        self._waiting_since = 0.0
        """Loop time at which the current wait for the client began."""
        self.client = ""
        """The result of ``client_of`` for the client's address."""
        self.drained: asyncio.Future[None] | None = None
        """Resolved when the client has read enough; None: there is no back-pressure."""

    # ---------------------------------------------------------------- called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """asyncio calls this when the client has connected."""
        self.transport = cast(asyncio.Transport, transport)  # uvloop's own class, not a subclass
        self.transport.set_write_buffer_limits(HIGH_WATER)
        self._parser = httptools.HttpRequestParser(self)
        self._waiting_since = self.state.now
        peer = transport.get_extra_info("peername")
        self.client = self.client or (client_of(peer[0]) if isinstance(peer, tuple) else "")
        self._opened(self)

    def connection_lost(self, error: Exception | None) -> None:
        """asyncio calls this when the client or the gateway has closed the connection."""
        self.lost = True
        self._closing = True
        self._queue.clear()
        current, self.current, self._incoming = self.current, None, None
        del self._parser  # the parser refers to this object: break the cycle
        self.resume_writing()
        if current is not None:
            current.cancel(ClientGone())
        self._closed(self)

    def pause_writing(self) -> None:
        """asyncio calls this when the client reads too slowly."""
        if self.drained is None:
            self.drained = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        """asyncio calls this when the client has read enough."""
        if self.drained is not None:
            if not self.drained.done():
                self.drained.set_result(None)
            self.drained = None
            if self.current is None and self._discarded is None and not self.lost:
                self._next()

    def data_received(self, data: bytes) -> None:
        """asyncio calls this when bytes have arrived."""
        if self._closing:
            if self._discarded is not None:
                self._discarded += len(data)
                if self._discarded > MAX_DISCARDED:
                    self.close()
            return
        self._read_size = len(data)
        self._progressed = False
        incoming = self._incoming
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            self._decline_upgrade(memoryview(data)[offer.args[0] :])
        except httptools.HttpParserError:
            self._invalid_input()
        queue = self._queue
        if queue:
            if self.current is None and self.drained is None:
                self._start_next()
            if len(queue) >= MAX_QUEUED or (queue and self.current is None):
                self.pause_reading()
        if self.reading_paused and not queue and self.current is not None and self.current.body_complete:
            self.resume_reading()  # a disconnect is only noticed while reading
        if self._headers or self._url or self._incoming is not None:
            self._bound_unfinished(incoming)

    # ---------------------------------------------------------------- called by the parser

    def on_url(self, url: bytes) -> None:
        """llhttp calls this with the request target, or a part of the target."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """llhttp calls this with a field of the head, or with a trailer. Trailers are dropped."""
        name = name.lower()
        headers = self._headers
        if name in headers:
            self._repeat_field(name, value)
        else:
            headers[name] = value

    def on_headers_complete(self) -> None:
        """llhttp calls this when the head is complete."""
        parser, url, headers = self._parser, self._url, self._headers
        raw = parser.get_method()
        # Of a head in several reads, the first part may have been counted without a field that was not complete.
        if (self._head_bytes or self._read_size > MAX_HEAD) and self._head_size() > MAX_HEAD:
            self._stop_parsing(_head_too_large())
        if len(headers) + self._repeated > MAX_FIELDS:
            self._stop_parsing(_too_many_fields())
        if parser.should_upgrade():
            if raw == b"CONNECT":
                self._stop_parsing(RequestError("the gateway is not a proxy, so it does not support CONNECT"))
            return  # an offer to switch protocols: ``_decline_upgrade`` parses this head again
        query = b""
        if url[:1] != b"/" or QUERY in url or FRAGMENT in url:
            authority = _authority(url)
            if authority and authority.lower() != headers.get(b"host", b"").lower().removesuffix(b":80"):
                headers[b"host"] = headers.get(b"host", b"") + b", " + authority  # two hosts: the host guard refuses
            parts = httptools.parse_url(url)
            url, query = parts.path or b"/", parts.query or b""
        if b"transfer-encoding" in headers and headers[b"transfer-encoding"].lower() != b"chunked":
            self._stop_parsing(RequestError("the only supported transfer-encoding is chunked"))
        request = Http1Request(self, METHODS.get(raw) or raw.decode("ascii"), url.decode("ascii"), headers)
        if query:
            request.query = query
        keep = parser.should_keep_alive()
        if not keep or b"connection" in headers:
            version = parser.get_http_version()
            if version not in ("1.0", "1.1"):
                self._stop_parsing(RequestError(f"HTTP/{version} is not supported; use HTTP/1.1"))
            request.http10 = version == "1.0"
            request.closing = request.http10 or not keep
        if b"expect" in headers:
            request.expects_continue = headers[b"expect"].lower() == b"100-continue" and not request.http10
        self._url = b""
        self._headers = {}
        self._repeated = 0
        self._head_bytes = self._body_bytes = self._content_bytes = 0
        self._progressed = True
        self._incoming = request
        self._queue.append(request)

    def on_body(self, body: bytes) -> None:
        """llhttp calls this with a part of the body."""
        self._progressed = True
        self._content_bytes += len(body)
        request = self._incoming
        if request is None or request.complete:
            return  # already answered: the rest of the body is dropped
        request.chunks.append(body)
        request.size += len(body)
        if request.size > request.limit:
            request.body_overflow()

    def on_message_complete(self) -> None:
        """llhttp calls this when the request is complete."""
        request = self._incoming
        if request is None:
            return  # an offer to switch protocols
        if self._headers:  # trailers
            if self._head_size() > MAX_HEAD:
                self._stop_parsing(_framing_too_large())
            self._headers = {}
            self._repeated = 0
        self._head_bytes = 0
        self._incoming = None
        if request.closing:
            self._closing = True
        request.body_complete = True
        request.expects_continue = False
        if len(request.chunks) == 1:
            request.buffered_body = request.chunks.pop()
        if request.body_waiter is not None:
            request.body_arrived()

    # ---------------------------------------------------------------- called by the request

    def send(self, data: bytes) -> None:
        """Send bytes, unless the connection is closed."""
        if not self.lost:
            self.transport.write(data)

    async def drain_writes(self, seconds: float) -> None:
        """Wait until the client has read enough. Raises ``ClientStalled`` after ``seconds`` without progress."""
        unread = self.transport.get_write_buffer_size()
        while self.drained is not None:
            await asyncio.wait([self.drained], timeout=seconds)
            unread, before = self.transport.get_write_buffer_size(), unread
            if self.drained is not None and unread >= before:
                raise ClientStalled()

    def done(self, request: Http1Request) -> None:
        """Finish ``request``, whose answer is complete. Start the next request, or close the connection."""
        if request is not self.current:
            return
        self.current = None
        if self.lost:
            return
        self._waiting_since = self.state.now
        if request.closing or request.expects_continue or self.state.closing:
            self.close()
        elif self.drained is not None:
            self.pause_reading()  # the client does not read its answers: read no request before it does
        elif self._queue or self.reading_paused or self._refusal is not None:
            self._next()

    def pause_reading(self) -> None:
        """Stop reading for now."""
        if not self.reading_paused and not self.lost:
            self.reading_paused = True
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        """Resume reading."""
        if self.reading_paused and not self.lost:
            self.reading_paused = False
            self.transport.resume_reading()

    def abort(self) -> None:
        """Close the connection at once."""
        self._closing = True
        if not self.lost:
            self.transport.abort()

    # ---------------------------------------------------------------- called by the server

    def close(self) -> None:
        """Close the connection when everything has been sent.

        If the client may still be sending a request, its system would discard the answer when the rest of the request
        meets a closed connection. So this is a lingering close: only our side is closed, and what the client sends is
        discarded until the client closes, but at most ``MAX_DISCARDED`` bytes for ``timeouts.linger`` seconds.
        """
        is_unfinished = self._incoming is not None or (self._refusal is not None and self._read_size > 0)
        self._closing = True
        self._queue.clear()
        if self.lost:
            return
        if self._discarded is not None or not is_unfinished:
            self.transport.close()
            return
        self._discarded = 0
        self._waiting_since = self.state.now
        self.resume_reading()
        if self.transport.can_write_eof():  # False with TLS
            self.transport.write_eof()

    def drain(self) -> None:
        """Close an idle connection. If a request is running, ``done`` closes the connection after the answer."""
        if self.current is None:
            self.close()

    def check_timeouts(self, now: float) -> None:
        """End the connection or the request if the client is too slow to send a request or to read an answer."""
        waited = now - self._waiting_since
        current, timeouts = self.current, self.state.timeouts
        if self.reading_paused and self._hung_up():
            self.abort()
            return
        if current is None and (self._closing or self.drained is not None):
            is_sent = self._discarded is not None and not self.transport.get_write_buffer_size()
            if waited >= (timeouts.linger if is_sent else timeouts.idle):
                self.abort()  # the client does not read the end of its answer, or does not close
        elif self._incoming is not None:
            if waited < timeouts.body:
                return
            if current is None:
                self.close()  # the request is answered, and the rest of its body does not arrive
            elif current is self._incoming:
                current.body_late(timeouts.body)
        elif current is None and self._head_bytes:
            if waited >= timeouts.head:
                self.refuse(RequestTimeout(f"the request's head did not arrive within {timeouts.head:g} s"))
        elif current is None and waited >= timeouts.idle:
            self.close()

    def _hung_up(self) -> bool:
        """Return whether the client has closed the connection. asyncio does not notice this while bytes are unread."""
        link = self.transport.get_extra_info("socket")
        if link is None or link.fileno() < 0:
            return False  # a closed TLS connection has no socket; ``connection_lost`` follows at once
        poll = select.poll()
        poll.register(link.fileno(), HUNG_UP)
        return bool(poll.poll(0))

    # ---------------------------------------------------------------- the order of requests

    def _next(self) -> None:
        """Start the next request in its turn, refuse invalid input, or resume reading."""
        if self._queue:
            self.state.pipelined.start(self._start_pipelined)
        elif self._refusal is not None:
            self.refuse(self._refusal)
        else:
            self.resume_reading()

    def _start_pipelined(self) -> None:
        if self._queue and self.current is None:
            self._start_next()
            if not self._queue:
                self.resume_reading()

    def _start_next(self) -> None:
        self.current = request = self._queue.pop(0)
        if not request.body_complete:
            self._waiting_since = self.state.now
        self._start(request)

    # ---------------------------------------------------------------- invalid and unusual input

    def _bound_unfinished(self, before: Http1Request | None) -> None:
        """Limit the size of a head, or of the framing of a body, that is not complete.

        ``before``: the value of ``_incoming`` before the last read.
        """
        if self._closing:
            return
        if self._incoming is None:
            if not self._head_bytes and self.current is None:
                self._waiting_since = self.state.now
            # Bytes of the message before this head do not count.
            self._head_bytes += (self._head_size() or 1) if self._progressed else self._read_size
            if self._head_bytes > MAX_HEAD:
                self._refusal = _head_too_large()
                self._invalid_input()
            return
        if self._incoming is before:  # bytes that came with the head do not count
            self._body_bytes += self._read_size
        # Framing may be MAX_HEAD bytes larger than the content. Trailers stay in memory, so MAX_HEAD limits them too.
        framing = self._body_bytes - self._content_bytes
        if framing - self._content_bytes > MAX_HEAD or (self._headers and self._head_size() > MAX_HEAD):
            self._refusal = _framing_too_large()
            self._invalid_input()

    def _repeat_field(self, name: bytes, value: bytes) -> None:
        """Join the values of a repeated field (RFC 9110, 5.3).

        The number of repeats is limited, because each join copies the earlier values.
        """
        self._repeated += 1
        if self._repeated > MAX_FIELDS:
            self._stop_parsing(_too_many_fields())
        self._headers[name] += b", " + value

    def _stop_parsing(self, error: GatewayError) -> NoReturn:
        """End the parser's current callback. ``data_received`` then sends the error."""
        self._refusal = error
        raise error

    def _head_size(self) -> int:
        return len(self._url) + sum(len(name) + len(value) + 4 for name, value in self._headers.items())

    def _invalid_input(self) -> None:
        """Refuse invalid input, after the earlier requests of this connection have been answered."""
        if self._closing:
            return  # bytes after the last request of this connection
        self._closing = True
        if self._refusal is None:
            self._refusal = RequestError("the request is not valid HTTP/1.1")
        partial = self._incoming
        self._incoming = None
        if partial is not None and partial.complete:
            self.close()  # the client would take a second answer for the answer to its next request
            return
        if partial is not None and partial is not self.current:
            self._queue.remove(partial)
        elif partial is not None:  # the invalid request is already being answered
            if partial.status:
                self.abort()
            else:
                self.refuse(self._refusal)
            return
        if self.current is None and not self._queue:
            self.refuse(self._refusal)

    def refuse(self, error: GatewayError) -> None:
        """Send an error although there is no complete request, and close the connection."""
        self._refusal = error
        body, request_id, retry = error_body(error), f"req_{uuid.uuid4().hex}", retry_fields(error)
        self.send(
            b"%bcontent-type: application/json\r\n%b%bx-request-id: %b\r\ncontent-length: %d\r\n\r\n%b"
            % (
                status_line(error.status),
                header_layout(tuple(retry)) % tuple(retry.values()),
                CLOSE,
                request_id.encode("ascii"),
                len(body),
                body,
            )
        )
        self.state.refused(error, request_id)
        self.close()

    def _decline_upgrade(self, rest: memoryview) -> None:
        """Parse the head again without the offer, then ``rest``, the bytes after it. ``rest`` may contain offers."""
        try:
            self._parse_again()
            while rest:
                try:
                    self._parser.feed_data(rest)
                    return
                except httptools.HttpParserUpgrade as offer:
                    rest = rest[offer.args[0] :]
                    self._parse_again()
        except httptools.HttpParserError:
            self._invalid_input()

    def _parse_again(self) -> None:
        """Feed the same head, without the offer to switch protocols, to a new parser."""
        lines = [b"%b %b HTTP/%b" % (self._parser.get_method(), self._url, self._parser.get_http_version().encode())]
        lines += [name + b": " + value for name, value in self._headers.items() if name not in DECLINED]
        self._url, self._headers, self._repeated = b"", {}, 0
        self._parser = httptools.HttpRequestParser(self)
        self._parser.feed_data(b"\r\n".join(lines) + b"\r\n\r\n")


def _authority(url: bytes) -> bytes:
    """Return host and port of a request target in absolute form (RFC 9112, 3.2.2), without ``:80``; else empty."""
    scheme, mark, rest = url.partition(b"://")
    return re.split(rb"[/?#]", rest, maxsplit=1)[0].removesuffix(b":80") if mark and scheme.isalnum() else b""


def _framing_too_large() -> HeadTooLarge:
    return HeadTooLarge(
        "the chunk sizes, extensions and trailers of the request body are too large; send larger chunks"
    )


def _too_many_fields() -> HeadTooLarge:
    return HeadTooLarge(f"the request has more than {MAX_FIELDS} header fields")


def _head_too_large() -> HeadTooLarge:
    return HeadTooLarge(f"the request's head is larger than {MAX_HEAD} bytes")
