"""One HTTP request as the handlers see it.

Our own server (``http1/request.py``) and the ASGI adapter (``asgi.py``) implement ``HttpRequest``. A handler sends a
whole answer (``reply``) or a stream (``start``, ``write``, ``end``). The headers of an answer are bytes, with
``name: value`` and CRLF for each field. The server adds ``date``, ``x-request-id``, lengths and ``connection``.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import orjson

from gateway.calls.admission.facts import RequestFacts, body_too_large
from gateway.calls.endpoints.sink import NO_FIELDS, AnswerSink, HeaderFields, header_layout
from gateway.core.errors import GatewayError, RequestTimeout, UnsupportedEncoding, UnsupportedMediaType

BODY_SECONDS = 30.0
"""Seconds that the body of a request may take to arrive."""
JSON_HEADER = b"content-type: application/json\r\n"
STREAM_HEADERS = b"content-type: text/event-stream\r\ncache-control: no-cache\r\nx-accel-buffering: no\r\n"
CLOSING = frozenset({"body_too_large", "request_timeout", "bad_host"})
"""Codes of errors after which the connection is closed, because the rest of the request is not read."""
UTF_8 = ("utf-8", "utf8")


class HttpRequest(RequestFacts, AnswerSink):
    """One HTTP request and its answer.

    For a call it is the ``RequestFacts``, the ``RequestBody`` and the ``AnswerSink``, so a call makes none of them.
    """

    query = b""
    """What follows ``?`` in the request target, percent-encoded."""
    buffered_body: bytes | None = None
    """The whole body, if it arrived in one piece before a handler called ``body``. None: call ``body``."""
    extra_headers = b""
    """Headers of every answer to this request, also of errors: the headers of ``cors.py`` and ``x-ratelimit-*``."""
    complete = False
    """True: the answer is complete."""

    def __init__(self, method: str, path: str, headers: dict[bytes, bytes]) -> None:
        RequestFacts.__init__(self, headers)
        self.headers: dict[bytes, bytes]
        self.method = method
        self.path = path
        """The path, not percent-decoded: ``%2f`` is not a slash, so clients cannot evade the path rules of a proxy."""

    def take_body(self, limit: int) -> bytes | None:
        """Return the body if it has arrived. See ``RequestBody``."""
        headers, raw = self.headers, self.buffered_body
        if headers.get(b"content-type") != b"application/json":
            _check_content_type(self.header("content-type"))
        if b"content-encoding" in headers and headers[b"content-encoding"].strip().lower() not in (b"", b"identity"):
            raise UnsupportedEncoding("the request body is compressed; send the body without content-encoding")
        if raw is None:
            length = headers.get(b"content-length", b"")
            if length.isdigit() and int(length) > limit:
                raise body_too_large(limit)
        elif len(raw) <= limit:
            self.buffered_body = None
            return raw
        return None

    def add_headers(self, headers: Mapping[str, str]) -> None:
        """Add headers to the answer. See ``AnswerSink``."""
        self.extra_headers += b"".join([f"{name}: {value}\r\n".encode() for name, value in headers.items()])

    def send_answer(self, status: int, fields: HeaderFields, body: bytes) -> None:
        """Send a whole answer in JSON. See ``AnswerSink``."""
        names, values = fields
        self.reply(status, header_layout(names, JSON_HEADER) % values, body)

    def start_stream(self, fields: HeaderFields) -> None:
        """Start a stream of server-sent events. See ``AnswerSink``."""
        names, values = fields
        self.start(200, header_layout(names, STREAM_HEADERS) % values)

    def send_error(self, error: GatewayError, fields: HeaderFields = NO_FIELDS) -> None:
        """Send an error as the whole answer."""
        if error.code in CLOSING:
            self.closing = True
        super().send_error(error, fields)

    def reply_json(self, status: int, body: Any) -> None:
        """Send a whole answer in JSON."""
        self.reply(status, JSON_HEADER, orjson.dumps(body))

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
    def abort(self) -> None:
        """Close the connection without completing the answer."""


def body_timeout(seconds: float) -> RequestTimeout:
    """Return the error for a body that did not arrive within ``seconds``."""
    return RequestTimeout(f"the request body did not arrive within {seconds:g} s")


def _check_content_type(declared: str | None) -> None:
    media_type, *parameters = (declared or "").lower().split(";")
    pairs = [parameter.partition("=") for parameter in parameters]
    charsets = [value.strip().strip('"') for name, _, value in pairs if name.strip() == "charset"]
    if media_type.strip() != "application/json" or any(charset not in UTF_8 for charset in charsets):
        raise UnsupportedMediaType("send the request body as content-type: application/json, in UTF-8")
