"""Which request bodies are accepted, judged by the request's head alone."""

from __future__ import annotations

from gateway.core.errors import UnsupportedEncoding, UnsupportedMediaType
from gateway.edge.http_request import HttpRequest, body_too_large

UTF_8 = ("utf-8", "utf8")


def check_body_headers(request: HttpRequest, limit: int) -> None:
    """Refuse a body that is declared as something other than plain JSON, or as larger than ``limit`` bytes."""
    headers = request.headers
    if headers.get(b"content-type") != b"application/json":
        _check_content_type(request.header("content-type"))
    if b"content-encoding" in headers and headers[b"content-encoding"].strip().lower() not in (b"", b"identity"):
        raise UnsupportedEncoding("the request body is compressed; send it without content-encoding")
    length = headers.get(b"content-length", b"") if request.buffered_body is None else b""
    if length.isdigit() and int(length) > limit:
        raise body_too_large(limit)


def _check_content_type(declared: str | None) -> None:
    media_type, *parameters = (declared or "").lower().split(";")
    pairs = [parameter.partition("=") for parameter in parameters]
    charsets = [value.strip().strip('"') for name, _, value in pairs if name.strip() == "charset"]
    if media_type.strip() != "application/json" or any(charset not in UTF_8 for charset in charsets):
        raise UnsupportedMediaType("send the request body as content-type: application/json, in UTF-8")
