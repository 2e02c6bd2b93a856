"""How does anything leave? JSON bodies, errors as OpenAI's object, and the headers that go with them."""

from __future__ import annotations

import random
from typing import Any

import orjson

from gateway.core.errors import GatewayError
from gateway.edge.http_request import HttpRequest
from gateway.wire.error_object import error_object

MAX_HEADER = 1024

CLOSING = frozenset({"body_too_large", "request_timeout", "bad_host"})
"""After these the rest of the request is not worth reading."""

JSON = b"content-type: application/json\r\n"
NO_RETRY = b"x-should-retry: false\r\n"


def send_json(asked: HttpRequest, status: int, body: Any, headers: bytes = b"") -> None:
    """A whole answer."""
    asked.reply(status, JSON + headers, orjson.dumps(body))


def send_error(asked: HttpRequest, error: GatewayError, headers: bytes = b"") -> None:
    """An error before the answer has begun."""
    if error.code in CLOSING:
        asked.closing = True
    asked.reply(error.status, JSON + error_headers(error) + headers, error_body(error))


def error_body(error: GatewayError) -> bytes:
    """OpenAI's error object."""
    return orjson.dumps(error_object(error))


def error_headers(error: GatewayError) -> bytes:
    """What SDKs read to decide whether to try again (``docs/spec/wire.md`` 4)."""
    rows = b""
    if error.status in (429, 503):
        # Ours are spread a little, so that clients turned away together do not come back together.
        seconds = error.retry_after if error.retry_after is not None else random.randint(1, 3)
        rows = b"retry-after: %d\r\n" % min(max(round(seconds), 1), 3600)
    if error.status >= 500 and (not error.retryable or error.retried):
        rows += NO_RETRY
    return rows


def error_event(error: GatewayError) -> bytes:
    """An error after the answer has begun: the only honest report left, then the end."""
    return b"data: " + error_body(error) + b"\n\ndata: [DONE]\n\n"


def header_value(value: str) -> str:
    """A value from outside, fit for a header: one line of ASCII, not too long."""
    if len(value) > MAX_HEADER:
        value = value[: MAX_HEADER - 3] + "..."
    return value.replace("\r", " ").replace("\n", " ").encode("ascii", "replace").decode("ascii")
