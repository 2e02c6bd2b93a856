"""Error responses in OpenAI's format, with the headers from which clients learn whether to retry.

The status and the code of each error are attributes of the error classes in ``core/errors.py``.
"""

from __future__ import annotations

import random

import orjson

from gateway.core.errors import GatewayError
from gateway.edge.http_request import JSON_HEADER, HttpRequest
from gateway.wire.error_object import error_object

CLOSING = frozenset({"body_too_large", "request_timeout", "bad_host"})
"""Codes of errors after which the connection is closed, because the rest of the request is not read."""

NO_RETRY = b"x-should-retry: false\r\n"


def send_error(request: HttpRequest, error: GatewayError, headers: bytes = b"") -> None:
    """Send an error as the whole answer."""
    if error.code in CLOSING:
        request.closing = True
    request.reply(error.status, JSON_HEADER + error_headers(error) + headers, error_body(error))


def error_body(error: GatewayError) -> bytes:
    """Return OpenAI's error object as JSON."""
    return orjson.dumps(error_object(error))


def error_headers(error: GatewayError) -> bytes:
    """Return the headers ``retry-after`` and ``x-should-retry``, which SDKs read (``docs/spec/wire.md`` 4)."""
    rows = b""
    if error.status in (429, 503):
        # Without a given ``retry_after`` the wait is random, so that clients refused together do not retry together.
        seconds = error.retry_after if error.retry_after is not None else random.randint(1, 3)
        rows = b"retry-after: %d\r\n" % min(max(round(seconds), 1), 3600)
    if error.status >= 500 and (not error.retryable or error.retried):
        rows += NO_RETRY
    return rows
