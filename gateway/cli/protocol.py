"""How is HTTP/1.1 spoken? uvicorn's httptools protocol, with two answers of our own.

What is no HTTP at all is refused as OpenAI's error object. An offer to switch protocols
(``Upgrade: h2c``, which Java's HTTP client makes with every request, or ``websocket``) is declined by
going on in HTTP/1.1: the parser takes the bytes behind such a head for the other protocol, and the request's
body would be lost.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any, cast

import httptools
import orjson
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from gateway.core.errors import RequestError
from gateway.edge.asked import LINE
from gateway.wire.problems import error_object

DECLINED = (b"upgrade", b"http2-settings")


class HttpProtocol(HttpToolsProtocol):
    """One connection."""

    on_hangup: Callable[[], None] | None = None
    """See ``edge.asked.Line``."""
    _lost = False

    def dead(self) -> bool:
        """See ``edge.asked.Line``."""
        return self._lost

    def connection_lost(self, exc: Exception | None) -> None:
        """The client, or we, have closed the connection."""
        self._lost = True
        super().connection_lost(exc)
        if self.on_hangup is not None:
            self.on_hangup()

    def data_received(self, data: bytes) -> None:
        """Feed the parser, in pieces where an upgrade is offered."""
        self._unset_keepalive_if_required()
        rest = memoryview(data)
        try:
            while rest:
                rest = self._feed(rest)
        except httptools.HttpParserError:
            self.logger.warning("a client sent what is not HTTP/1.1")
            self.send_400_response("the request is not valid HTTP/1.1")

    def on_headers_complete(self) -> None:
        """Begin the request, unless it is about to be read again."""
        if not self._offers():
            self.scope["extensions"] = cast(Any, {LINE: self})  # ours alone: not one of ASGI's own, which are dicts
            super().on_headers_complete()

    def on_message_complete(self) -> None:
        """The request's body is complete."""
        if not self._offers():
            super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse bytes that never became a request, and close."""
        body = orjson.dumps(error_object(RequestError(msg)))
        head = (
            "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\nconnection: close\r\n"
            f"x-request-id: req_{uuid.uuid4().hex}\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        self.transport.write(head.encode("ascii") + body)
        self.transport.close()

    def _offers(self) -> bool:
        return bool(self.parser.should_upgrade()) and self.parser.get_method() != b"CONNECT"

    def _feed(self, data: memoryview) -> memoryview:
        """What is left, because it stands behind a declined offer."""
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            self._read_again()
            return data[offer.args[0] :]
        return data[len(data) :]

    def _read_again(self) -> None:
        """Give a new parser the same head without the offer."""
        lines = [
            self.parser.get_method() + b" " + self.url + b" HTTP/" + self.parser.get_http_version().encode("ascii")
        ]
        lines += [name + b": " + value for name, value in self.headers if name not in DECLINED]
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does with its own
        self.parser.feed_data(b"\r\n".join(lines) + b"\r\n\r\n")
