"""How is a body read? Whole, in time, within its limit, and only if it is plain JSON."""

from __future__ import annotations

import asyncio

from gateway.core.errors import BodyTimeout, BodyTooLarge, UnsupportedEncoding, UnsupportedMediaType
from gateway.edge.asked import Asked
from gateway.edge.hangup import ClientGone

BODY_SECONDS = 30.0
UTF_8 = ("utf-8", "utf8")


async def read_body(asked: Asked, limit: int) -> bytes:
    """The request's body; refuses by its head what can be refused before a byte is read."""
    _check_type(asked.headers.get("content-type"))
    encoding = asked.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        raise UnsupportedEncoding("the request body is compressed; send it without content-encoding")
    length = asked.headers.get("content-length", "")
    if length.isdigit() and int(length) > limit:
        raise _too_large(limit)
    try:
        async with asyncio.timeout(BODY_SECONDS):
            return await _read(asked, limit)
    except TimeoutError:
        raise BodyTimeout(f"the request body did not arrive within {BODY_SECONDS:g} s") from None


async def _read(asked: Asked, limit: int) -> bytes:
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await asked.receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > limit:
            raise _too_large(limit)
        chunks.append(chunk)
        if not message.get("more_body"):
            return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def _check_type(declared: str | None) -> None:
    kind, *parameters = (declared or "").lower().split(";")
    named = [parameter.partition("=") for parameter in parameters]
    charsets = [value.strip().strip('"') for name, _, value in named if name.strip() == "charset"]
    if kind.strip() != "application/json" or any(charset not in UTF_8 for charset in charsets):
        raise UnsupportedMediaType("send the request body as content-type: application/json, in UTF-8")


def _too_large(limit: int) -> BodyTooLarge:
    return BodyTooLarge(f"the request body is larger than {limit} bytes (server.max_body)")
