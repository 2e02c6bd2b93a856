"""What is one connection of a client? Bytes in, requests out, and their answers in order.

An asyncio protocol around llhttp. Requests are answered one at a time; those that came ahead of their turn wait, and
reading pauses until they have been answered. What is not HTTP/1.1 is refused with OpenAI's error object.

An offer to switch protocols (``Upgrade: h2c``, which Java's HTTP client makes with every request, or ``websocket``)
is declined by going on in HTTP/1.1: the parser takes the bytes behind such a head for the other protocol, and the
request's body would be lost, so the head is read again without the offer.
"""

from __future__ import annotations

import asyncio
import re
import select
import uuid
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import httptools

from gateway.core.errors import GatewayError, HeadTooLarge, RequestError, RequestTimeout
from gateway.edge.cancellation import ClientGone, ClientStalled
from gateway.edge.http1.request import BODY_SECONDS, CLOSE, Request, status_line
from gateway.edge.replies import error_body

if TYPE_CHECKING:
    from gateway.edge.http1.server import HttpServer

MAX_HEAD = 64 * 1024
"""Bytes of a request line and all fields."""
MAX_FIELDS = 100
AHEAD = 4
"""Requests that may wait for their turn on one line before it is read no further."""

HUNG_UP = getattr(select, "POLLRDHUP", 0)
"""What a closed connection looks like whose bytes are not read; only Linux tells, elsewhere a reset alone is seen."""

DECLINED = frozenset({b"upgrade", b"http2-settings"})
METHODS = {name.encode("ascii"): name for name in ("GET", "POST", "HEAD", "OPTIONS", "PUT", "DELETE")}


@dataclass(frozen=True, slots=True)
class ConnectionTimeouts:
    """How long a line waits for its client, in seconds."""

    head: float = 10.0
    body: float = BODY_SECONDS
    idle: float = 75.0


class ServerConnection(asyncio.Protocol):
    """One connection."""

    __slots__ = (
        "_current", "_deaf", "_fields", "_head_bytes", "_headers", "_incoming", "_parser", "_queue", "_refusal",
        "_since", "_size", "_took", "_url", "drained", "listener", "lost", "paused", "transport",
    )  # fmt: skip

    def __init__(self, listener: HttpServer) -> None:
        self.listener = listener
        self._queue: deque[Request] = deque()
        self._current: Request | None = None
        """The request that is being answered."""
        self._incoming: Request | None = None
        """The request whose body is being read."""
        self._refusal: GatewayError | None = None
        self._deaf = False
        """Whatever else comes is not read: no further request is answered on this line."""
        self.lost = False
        """The connection is closed."""
        self.paused = False
        """Nothing is read for now."""
        self._took = False
        """The last bytes held the end of a head, or some of a body."""
        self._url = b""
        self._headers: dict[bytes, bytes] = {}
        self._fields = 0
        self._head_bytes = 0
        """Bytes of a head that is not complete yet; of a body, those of its framing less those of its content."""
        self._size = 0
        self._since = 0.0
        """When the present wait began; 0: not at all."""
        self.drained: asyncio.Future[None] | None = None
        """Done when the client has read enough; None: it has."""

    # ---------------------------------------------------------------- the transport's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """asyncio: connected."""
        self.transport = cast(asyncio.Transport, transport)  # uvloop's own class, not a subclass
        self._parser = httptools.HttpRequestParser(self)
        self._since = self.listener.now
        self.listener.lines.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        """asyncio: the client, or we, have closed the connection."""
        self.lost = True
        self._deaf = True
        self._queue.clear()
        current, self._current, self._incoming = self._current, None, None
        del self._parser  # it holds our methods
        self.resume_writing()
        if current is not None:
            current.leave(ClientGone())
        self.listener.lost(self)

    def pause_writing(self) -> None:
        """asyncio: the client reads too slowly."""
        if self.drained is None:
            self.drained = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        """asyncio: the client has caught up."""
        if self.drained is not None:
            if not self.drained.done():
                self.drained.set_result(None)
            self.drained = None
            if self._current is None and not self.lost:
                self._go_on()

    def data_received(self, data: bytes) -> None:
        """asyncio: bytes have come."""
        if self._deaf:
            return
        self._size = len(data)
        self._took = False
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            self._decline(memoryview(data)[offer.args[0] :])
        except httptools.HttpParserError:
            self._broken()
        queue = self._queue
        if queue:
            if self._current is None and self.drained is None:
                self._current = request = queue.popleft()
                if not request.whole:
                    self._since = self.listener.now
                self.listener.start(request)
            if len(queue) >= AHEAD or (queue and self._current is None):
                self.hold()
        if self.paused and not queue and self._current is not None and self._current.whole:
            self.read_on()  # or nobody would hear the client leave
        if self._headers or self._url or self._incoming is not None:
            self._unfinished(len(data))

    # ---------------------------------------------------------------- the parser's side

    def on_url(self, url: bytes) -> None:
        """llhttp: (a part of) the request's target."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """llhttp: a field, of the head or behind the last chunk; the latter belong to nobody."""
        self._fields += 1
        if self._fields > MAX_FIELDS:
            self._refusal = HeadTooLarge(f"the request has more than {MAX_FIELDS} header fields")
            raise self._refusal
        name = name.lower()
        headers = self._headers
        headers[name] = value if name not in headers else headers[name] + b", " + value

    def on_headers_complete(self) -> None:
        """llhttp: the head is complete."""
        parser, url, headers = self._parser, self._url, self._headers
        raw = parser.get_method()
        if self._head_bytes + self._size > MAX_HEAD and self._head_size() > MAX_HEAD:
            self._refusal = _head_too_large()
            raise self._refusal
        if parser.should_upgrade():
            if raw == b"CONNECT":
                raise RequestError("CONNECT")
            return  # an offer: this head is going to be read again
        if url[:1] != b"/" or b"?" in url or b"#" in url:
            authority = _authority(url)
            if authority and authority.lower() != headers.get(b"host", b"").lower().removesuffix(b":80"):
                headers[b"host"] = headers.get(b"host", b"") + b", " + authority  # two hosts, which the guard refuses
            url = httptools.parse_url(url).path or b"/"
        if b"transfer-encoding" in headers and headers[b"transfer-encoding"].lower() != b"chunked":
            raise RequestError("a transfer coding that is not decoded here")
        request = Request(self, METHODS.get(raw) or raw.decode("ascii"), url.decode("ascii"), headers)
        keep = parser.should_keep_alive()
        if not keep or b"connection" in headers:
            version = parser.get_http_version()
            if version not in ("1.0", "1.1"):
                raise RequestError("HTTP/" + version)
            request.old = version == "1.0"
            request.closing = request.old or not keep
        if b"expect" in headers:
            request.expects = headers[b"expect"].lower() == b"100-continue" and not request.old
        self._url = b""
        self._headers = {}
        self._fields = 0
        self._head_bytes = -self._size  # what has come with the head counts as content
        self._took = True
        self._incoming = request
        self._queue.append(request)

    def on_body(self, body: bytes) -> None:
        """llhttp: a piece of the body."""
        self._took = True
        self._head_bytes -= 2 * len(body)  # once as it came, once for the framing that it may have
        request = self._incoming
        if request is None or request.answered:
            return  # what nobody will read is dropped
        request.chunks.append(body)
        request.size += len(body)
        if request.size > request.limit:
            request.overflow()

    def on_message_complete(self) -> None:
        """llhttp: the request is complete."""
        request = self._incoming
        if request is None:
            return  # an offer
        if self._fields:  # behind the last chunk
            if self._head_size() > MAX_HEAD:
                self._refusal = _framing_too_large()
                raise self._refusal
            self._headers = {}
            self._fields = 0
        self._head_bytes = 0
        self._incoming = None
        if request.closing:
            self._deaf = True
        request.whole = True
        request.expects = False
        if len(request.chunks) == 1:
            request.early = request.chunks.pop()
        if request.waiter is not None:
            request.complete()

    # ---------------------------------------------------------------- the request's side

    def send(self, data: bytes) -> None:
        """Bytes to the client, if it is there."""
        if not self.lost:
            self.transport.write(data)

    async def drain_writes(self, seconds: float) -> None:
        """Wait until the client has read enough; ``ClientStalled`` if it reads nothing for so many seconds."""
        unread = self.transport.get_write_buffer_size()
        while self.drained is not None:
            await asyncio.wait([self.drained], timeout=seconds)
            unread, before = self.transport.get_write_buffer_size(), unread
            if self.drained is not None and unread >= before:
                raise ClientStalled

    def done(self, request: Request) -> None:
        """An answer is complete: the next one may begin."""
        if request is not self._current:
            return
        self._current = None
        if self.lost:
            return
        self._since = self.listener.now
        if request.closing or request.expects or self.listener.draining:
            self.close()
        elif self.drained is not None:
            self.hold()  # it does not take its answers: there will be no more of them until it does
        elif self._queue or self.paused or self._refusal is not None:
            self._go_on()

    def _go_on(self) -> None:
        """Answer what waits, or read again."""
        if self._queue:
            self._current = following = self._queue.popleft()
            if not following.whole:
                self._since = self.listener.now
            self.listener.start(following)
            if not self._queue:
                self.read_on()
        elif self._refusal is not None:
            self._refuse(self._refusal)
        else:
            self.read_on()

    def hold(self) -> None:
        """Read no more for now."""
        if not self.paused and not self.lost:
            self.paused = True
            self.transport.pause_reading()

    def read_on(self) -> None:
        """Read again."""
        if self.paused and not self.lost:
            self.paused = False
            self.transport.resume_reading()

    def close(self) -> None:
        """Close when everything has been sent."""
        self._deaf = True
        self._queue.clear()
        if not self.lost:
            self.transport.close()

    def abort(self) -> None:
        """Close at once."""
        self._deaf = True
        if not self.lost:
            self.transport.abort()

    # ---------------------------------------------------------------- the listener's side

    @property
    def current(self) -> Request | None:
        """The request that is being answered."""
        return self._current

    def look(self, now: float) -> None:
        """Close what has waited too long: half a head, half a body, or for nothing at all."""
        waited = now - self._since
        current, patience = self._current, self.listener.patience
        if self.paused and self._hung_up():
            self.abort()
            return
        if current is None and (self._deaf or self.drained is not None):
            if waited >= patience.idle:
                self.abort()  # it does not take the end of its answer
        elif self._incoming is not None:
            if waited < patience.body:
                return
            if current is None:
                self.close()  # answered long ago; the rest of the body was to be skipped
            elif current is self._incoming:
                current.late(patience.body)
        elif current is None and self._head_bytes:
            if waited >= patience.head:
                self._refuse(RequestTimeout(f"the request's head did not arrive within {patience.head:g} s"))
        elif current is None and waited >= patience.idle:
            self.close()

    def _hung_up(self) -> bool:
        """Has the client closed its connection, behind bytes that are not read yet?"""
        poll = select.poll()
        poll.register(self.transport.get_extra_info("socket").fileno(), HUNG_UP)
        return bool(poll.poll(0))

    def drain(self) -> None:
        """No further request is answered; one under way may end."""
        if self._current is None:
            self.close()

    # ---------------------------------------------------------------- odd cases

    def _unfinished(self, size: int) -> None:
        """A head, or a body, has not ended: the head and what frames the body's pieces may not grow for ever."""
        if self._deaf:
            return
        if self._took and self._incoming is None:
            size = self._head_size() or 1  # what stands before it in the same bytes does not count
        if not self._head_bytes and self._incoming is None and self._current is None:
            self._since = self.listener.now
        self._head_bytes += size
        trailers = self._incoming is not None and self._fields
        if self._head_bytes > MAX_HEAD or (trailers and self._head_size() > MAX_HEAD):
            self._refusal = _head_too_large() if self._incoming is None else _framing_too_large()
            self._broken()

    def _head_size(self) -> int:
        return len(self._url) + sum(len(name) + len(value) + 4 for name, value in self._headers.items())

    def _broken(self) -> None:
        """What came is not HTTP: refuse it when the requests before it have been answered."""
        if self._deaf:
            return  # said behind the last request of this line
        self._deaf = True
        if self._refusal is None:
            self._refusal = RequestError("the request is not valid HTTP/1.1")
        half = self._incoming
        self._incoming = None
        if half is not None and half.answered:
            self.close()  # a second answer would be taken for that of its next request
            return
        if half is not None and half is not self._current:
            self._queue.remove(half)
        elif half is not None:  # the request under way is the broken one
            if half.status:
                self.abort()
            else:
                self._refuse(self._refusal)
            return
        if self._current is None and not self._queue:
            self._refuse(self._refusal)

    def _refuse(self, error: GatewayError) -> None:
        """Tell what is wrong with bytes that never became a request, and close."""
        body = error_body(error)
        self.send(
            b"%bcontent-type: application/json\r\n%bx-request-id: req_%b\r\ncontent-length: %d\r\n\r\n%b"
            % (status_line(error.status), CLOSE, uuid.uuid4().hex.encode("ascii"), len(body), body)
        )
        self.close()

    def _decline(self, rest: memoryview) -> None:
        """Read a head again without its offer, then what stands behind it, which may hold more offers."""
        try:
            self._read_again()
            while rest:
                try:
                    self._parser.feed_data(rest)
                    return
                except httptools.HttpParserUpgrade as offer:
                    rest = rest[offer.args[0] :]
                    self._read_again()
        except httptools.HttpParserError:
            self._broken()

    def _read_again(self) -> None:
        """Give a new parser the same head without the offer."""
        lines = [b"%b %b HTTP/%b" % (self._parser.get_method(), self._url, self._parser.get_http_version().encode())]
        lines += [name + b": " + value for name, value in self._headers.items() if name not in DECLINED]
        self._url, self._headers, self._fields = b"", {}, 0
        self._parser = httptools.HttpRequestParser(self)
        self._parser.feed_data(b"\r\n".join(lines) + b"\r\n\r\n")


def _authority(url: bytes) -> bytes:
    """Host and port, if not 80, of a request target in absolute form (RFC 9112, 3.2.2); empty for other forms."""
    scheme, mark, rest = url.partition(b"://")
    return re.split(rb"[/?#]", rest, maxsplit=1)[0].removesuffix(b":80") if mark and scheme.isalnum() else b""


def _framing_too_large() -> HeadTooLarge:
    return HeadTooLarge(
        f"the chunk sizes, extensions and trailers of the request's body are {MAX_HEAD} bytes larger than its content"
    )


def _head_too_large() -> HeadTooLarge:
    return HeadTooLarge(f"the request's head is larger than {MAX_HEAD} bytes")
