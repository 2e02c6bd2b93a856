"""The CORS headers, which allow web pages of the configured origins to call the gateway (``server.cors.origins``).

This works on ``HttpRequest``, because a middleware of Starlette would serve ASGI servers only.
"""

from __future__ import annotations

import re

from gateway.config.snapshot import ServerSpec
from gateway.core.errors import RequestError
from gateway.edge.http_request import HttpRequest

MAX_AGE = 600
"""Seconds for which a browser may remember the answer to a preflight request."""
FIELD_NAMES = re.compile(rb"[A-Za-z0-9_, -]{1,4096}")


def add_extra_headers(request: HttpRequest, server: ServerSpec) -> bool:
    """Set ``request.extra_headers`` for the configured origins, and answer a preflight request.

    Return True if the request was answered.
    Cookies are not enabled, because clients send keys in ``authorization``.
    """
    headers, origins = request.headers, server.cors.origins
    origin = headers[b"origin"]
    is_preflight = request.method == "OPTIONS" and b"access-control-request-method" in headers
    if "*" in origins:
        request.extra_headers = b"access-control-allow-origin: *\r\naccess-control-expose-headers: *\r\n"
    elif origin.decode("latin-1") in origins:
        request.extra_headers = (
            b"access-control-allow-origin: %b\r\naccess-control-expose-headers: *\r\nvary: origin\r\n" % origin
        )
    else:
        request.extra_headers = b"vary: origin\r\n"
        if is_preflight:
            raise RequestError("this origin is not listed in server.cors.origins; the operator can add it")
        return False
    if is_preflight:
        # ``*`` would not include ``authorization``, so the requested names are repeated.
        wanted = headers.get(b"access-control-request-headers", b"")
        allowed = b"access-control-allow-headers: %b\r\n" % wanted if FIELD_NAMES.fullmatch(wanted) else b""
        methods = b"access-control-allow-methods: GET, POST\r\naccess-control-max-age: %d\r\n" % MAX_AGE
        request.reply(200, methods + allowed, b"")
    return is_preflight
