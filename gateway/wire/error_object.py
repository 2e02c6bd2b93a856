"""Errors as OpenAI's error object, and the headers from which clients learn whether to retry.

The status and the code of each error are attributes of the error classes in ``core/errors.py``.
"""

from __future__ import annotations

import random
from typing import Any

import orjson

from gateway.core.errors import GatewayError

MAX_PARAM = 128


def error_object(error: GatewayError) -> dict[str, Any]:
    """Return ``{"error": {message, type, param, code}}``. ``code`` is a string, as OpenAI's SDKs expect."""
    param = error.param if error.param is None else error.param[:MAX_PARAM]
    return {"error": {"message": error.message, "type": error.type, "param": param, "code": error.code}}


def error_body(error: GatewayError) -> bytes:
    """Return OpenAI's error object as JSON."""
    return orjson.dumps(error_object(error))


def retry_fields(error: GatewayError) -> dict[bytes, bytes]:
    """Return the headers ``retry-after`` and ``x-should-retry``, which SDKs read (``docs/spec/wire.md`` 4)."""
    fields = {}
    if error.status in (429, 503):
        # Without a given ``retry_after`` the wait is random, so that clients refused together do not retry together.
        seconds = error.retry_after if error.retry_after is not None else random.randint(1, 3)
        fields[b"retry-after"] = b"%d" % min(max(round(seconds), 1), 3600)
    if error.status >= 500 and (not error.retryable or error.retried):
        fields[b"x-should-retry"] = b"false"
    return fields
