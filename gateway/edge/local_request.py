"""A request that this process itself makes, without a socket: of ``gateway run``, and of the pages of the viewer."""

from __future__ import annotations

import asyncio

from gateway.calls.admission.facts import body_too_large
from gateway.edge.http_request import HttpRequest


class LocalRequest(HttpRequest):
    """One request from this process. The answer is kept instead of sent."""

    def __init__(self, path: str, body: bytes) -> None:
        super().__init__("POST", path, {b"host": b"localhost", b"content-type": b"application/json"})
        self.buffered_body = body
        self.task = asyncio.current_task()
        self.head = b""
        self.parts: list[bytes] = []

    async def body(self, limit: int) -> bytes:
        """Raise ``BodyTooLarge``. The application calls this method only if ``buffered_body`` is too long."""
        raise body_too_large(limit)

    def reply(self, status: int, headers: bytes, body: bytes) -> None:
        """Keep a whole answer. See ``HttpRequest.reply``."""
        self.start(status, headers)
        self.end(body)

    def start(self, status: int, headers: bytes) -> None:
        """Keep the status and headers of a stream. See ``HttpRequest.start``."""
        self.status, self.head = status, self.extra_headers + headers

    async def write(self, frames: bytes, seconds: float) -> None:
        """Keep a part of a stream. See ``HttpRequest.write``."""
        self.parts.append(frames)

    def end(self, last: bytes = b"") -> None:
        """Keep the last part of a stream. See ``HttpRequest.end``."""
        self.parts.append(last)
        self.complete = True

    def abort(self) -> None:
        """Do nothing: a request without a socket has no connection."""
