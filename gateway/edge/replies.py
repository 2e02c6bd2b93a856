"""How does anything leave? JSON bodies, errors as OpenAI's object, and the headers all answers share."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import orjson

from gateway.core.errors import GatewayError
from gateway.edge.asked import Asked
from gateway.wire.problems import error_object

Headers = Iterable[tuple[str, str]]
MAX_HEADER = 1024

CLOSING = frozenset({"body_too_large", "request_timeout", "bad_host"})
"""After these the rest of the request is not worth reading."""


async def send_json(asked: Asked, status: int, body: Any, headers: Headers = ()) -> None:
    """A whole answer."""
    await send_bytes(asked, status, orjson.dumps(body), "application/json", headers)


async def send_bytes(asked: Asked, status: int, body: bytes, content_type: str, headers: Headers = ()) -> None:
    """A whole answer of any kind."""
    await start(asked, status, [("content-type", content_type), ("content-length", str(len(body))), *headers])
    await asked.send({"type": "http.response.body", "body": b"" if asked.method == "HEAD" else body})


async def start(asked: Asked, status: int, headers: Headers) -> None:
    """Status and headers; the body follows."""
    rows = [("x-request-id", asked.request_id), ("openai-version", "2020-10-01"), *headers]
    await asked.send({
        "type": "http.response.start",
        "status": status,
        "headers": [(name.encode("ascii"), _header(value)) for name, value in rows],
    })  # fmt: skip


async def send_error(asked: Asked, error: GatewayError, headers: Headers = ()) -> None:
    """An error before the answer has begun."""
    await send_json(asked, error.status, error_object(error), [*error_headers(error), *headers])


def error_headers(error: GatewayError) -> list[tuple[str, str]]:
    """What SDKs read to decide whether to try again (``specs/openai-wire-and-peers.md`` 4)."""
    rows: list[tuple[str, str]] = []
    if error.status in (429, 503):
        # Ours are spread a little, so that clients turned away together do not come back together.
        seconds = error.retry_after if error.retry_after is not None else random.randint(1, 3)
        rows.append(("retry-after", str(min(max(round(seconds), 1), 3600))))
    if error.status >= 500 and (not error.retryable or error.attempts > 1):
        rows.append(("x-should-retry", "false"))
    if error.code in CLOSING:
        rows.append(("connection", "close"))
    return rows


def error_event(error: GatewayError) -> bytes:
    """An error after the answer has begun: the only honest report left, then the end."""
    return b"data: " + orjson.dumps(error_object(error)) + b"\n\ndata: [DONE]\n\n"


def _header(value: str) -> bytes:
    if len(value) > MAX_HEADER:
        value = value[: MAX_HEADER - 3] + "..."
    return value.replace("\r", " ").replace("\n", " ").encode("ascii", "replace")
