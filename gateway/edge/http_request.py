"""One HTTP request as the handlers see it.

Our own server (``http1/request.py``), the ASGI adapter (``asgi.py``) and requests of this process
(``local_request.py``) implement ``HttpRequest``. A handler sends a whole answer (``reply``) or a stream (``start``,
``write``, ``end``). The headers of an answer are bytes, with ``name: value`` and CRLF for each field. The server adds
``date``, ``x-request-id``, lengths and ``connection``.
"""

from __future__ import annotations

import re
import time
from abc import ABC, abstractmethod
from random import getrandbits
from typing import Any

import orjson

from gateway.calls.answer.response import ResponseStream
from gateway.calls.preparation.prepare import Prepared
from gateway.calls.route import Route
from gateway.core.caller import ANONYMOUS, Caller
from gateway.core.errors import RequestTimeout
from gateway.edge.cancellation import Cancellation
from gateway.wire.responses import ResponseWriter

BODY_SECONDS = 30.0
"""Seconds that the body of a request may take to arrive."""
JSON_HEADER = b"content-type: application/json\r\n"

_PLAIN_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}\Z")


class HttpRequest(Cancellation, ABC):
    """One HTTP request and its answer."""

    model: str | None = None
    """The model named by the path (``/{model}/v1/…``); None if the body names the model."""
    signed_in: Caller | None = None
    """The client that has signed in to the viewer; None: the header ``authorization`` names the client."""
    query = b""
    """What follows ``?`` in the request target, percent-encoded."""
    route_context: tuple[Route, Prepared] | None = None
    """The data for the ``x-gateway-*`` headers; None before the call is prepared."""
    open_stream: tuple[ResponseStream, ResponseWriter] | None = None
    """The stream that is being sent. If the stream fails, the unsent text is sent before the error."""
    status = 0
    """The status of the answer; 0 until an answer is sent."""
    buffered_body: bytes | None = None
    """The whole body, if it arrived in one piece before a handler called ``body``. None: call ``body``."""
    extra_headers = b""
    """Headers of every answer to this request, also of errors: the headers of ``cors.py`` and ``x-ratelimit-*``."""
    complete = False
    """True: the answer is complete."""
    closing = False
    """True: the connection is closed after the answer."""

    def __init__(self, method: str, path: str, headers: dict[bytes, bytes]) -> None:
        self.method = method
        self.path = path
        """The path, not percent-decoded: ``%2f`` is not a slash, so clients cannot evade the path rules of a proxy."""
        self.caller = ANONYMOUS
        """The client, as soon as its key is known to be valid."""
        self.headers = headers
        """Lower-case name → value. The values of a repeated field are joined by commas (RFC 9110, 5.3)."""
        sent = headers.get(b"x-request-id")
        # Ids must be unique, not secret. Random bits from the kernel would cost more than the rest of the head.
        self.request_id = (
            sent.decode("ascii")
            if sent is not None and _PLAIN_ID.match(sent)
            else f"req_{getrandbits(128).to_bytes(16).hex()}"
        )
        """The client's ``x-request-id`` if the value is short and plain (``_PLAIN_ID``), else a new id."""
        self.received = time.monotonic()
        """Monotonic seconds at which the head had arrived."""

    @property
    def root_path(self) -> str:
        """The path where the application is mounted, percent-encoded; empty if it is not mounted."""
        return ""

    def header(self, name: str) -> str | None:
        """Return the value of a header field; None if the field is missing. ``name`` is in lower case."""
        value = self.headers.get(name.encode("ascii"))
        return None if value is None else value.decode("latin-1")

    def reply_json(self, status: int, body: Any, headers: bytes = b"") -> None:
        """Send a whole answer in JSON."""
        self.reply(status, JSON_HEADER + headers, orjson.dumps(body))

    @abstractmethod
    async def body(self, limit: int) -> bytes:
        """Read the whole body. Raises ``BodyTooLarge`` above ``limit`` bytes, ``RequestTimeout`` for a late body."""

    @abstractmethod
    def reply(self, status: int, headers: bytes, body: bytes) -> None:
        """Send a whole answer."""

    @abstractmethod
    def start(self, status: int, headers: bytes) -> None:
        """Start a stream. The head is sent together with the first part of the stream."""

    @abstractmethod
    async def write(self, frames: bytes, seconds: float) -> None:
        """Send a part of a stream. Wait while the client reads too slowly.

        Raises ``ClientStalled`` when the client reads nothing for ``seconds``.
        """

    @property
    def can_try_write(self) -> bool:
        """True: ``try_write`` may be used for the next parts of this stream."""
        return False

    def try_write(self, frames: bytes) -> bool:
        """Non-blocking ``write``. Returns False, and writes nothing, while the client applies back-pressure."""
        return False

    @abstractmethod
    def end(self, last: bytes = b"") -> None:
        """End a stream with its last part."""

    @abstractmethod
    def abort(self) -> None:
        """Close the connection without completing the answer."""


def body_timeout(seconds: float) -> RequestTimeout:
    """Return the error for a body that did not arrive within ``seconds``."""
    return RequestTimeout(f"the request body did not arrive within {seconds:g} s")
