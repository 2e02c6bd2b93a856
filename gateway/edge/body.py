"""How is a body read? Whole, in time, within its limit, and only if it is plain JSON."""

from __future__ import annotations

from gateway.core.errors import UnsupportedEncoding, UnsupportedMediaType
from gateway.edge.http1.request import too_large
from gateway.edge.http_request import HttpRequest

PLAIN_JSON = b"application/json"
"""The content type of nearly every body."""
UTF_8 = ("utf-8", "utf8")


async def read_body(asked: HttpRequest, limit: int) -> bytes:
    """The request's body; refuses by its head what can be refused before a byte is read."""
    headers = asked.headers
    if headers.get(b"content-type") != PLAIN_JSON:
        _check_type(asked.header("content-type"))
    if b"content-encoding" in headers and headers[b"content-encoding"].strip().lower() not in (b"", b"identity"):
        raise UnsupportedEncoding("the request body is compressed; send it without content-encoding")
    length = headers.get(b"content-length", b"")
    if length.isdigit() and int(length) > limit:
        raise too_large(limit)
    return await asked.body(limit)


def _check_type(declared: str | None) -> None:
    kind, *parameters = (declared or "").lower().split(";")
    named = [parameter.partition("=") for parameter in parameters]
    charsets = [value.strip().strip('"') for name, _, value in named if name.strip() == "charset"]
    if kind.strip() != "application/json" or any(charset not in UTF_8 for charset in charsets):
        raise UnsupportedMediaType("send the request body as content-type: application/json, in UTF-8")
