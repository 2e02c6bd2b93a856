"""``/version`` and ``/favicon.ico``."""

from __future__ import annotations

from gateway.edge.http_request import HttpRequest
from metatemplate.version import VERSION

ICON = (
    b'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16">'
    b'<path fill="#28c" d="M1 15V8a7 7 0 0 1 14 0v7h-4V8a3 3 0 0 0-6 0v7z"/></svg>'
)


async def version(request: HttpRequest) -> None:
    """``GET /version``, in vLLM's form."""
    request.reply_json(200, {"version": VERSION})


async def icon(request: HttpRequest) -> None:
    """``GET /favicon.ico``, which browsers request without a key."""
    request.reply(200, b"content-type: image/svg+xml\r\ncache-control: max-age=86400\r\n", ICON)


ICON_ROUTES = {"/favicon.ico": ("GET", icon)}
