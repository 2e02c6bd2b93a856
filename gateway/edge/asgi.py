"""Can any ASGI server carry the app? An adapter that makes an ``HttpRequest`` out of scope, receive and send.

Slower than our own server: a second task a request listens for the client's leaving.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, MutableMapping
from typing import Any

from gateway.core.errors import RequestTimeout
from gateway.edge.cancellation import ClientGone, ClientStalled
from gateway.edge.http1.request import BODY_SECONDS, too_large
from gateway.edge.http_request import HttpRequest

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class Asgi:
    """``app`` for an ASGI server."""

    def __init__(self, app: Callable[[HttpRequest], Coroutine[Any, Any, None]]) -> None:
        self._app = app
        self.running: set[HttpRequest] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI 3, HTTP only."""
        asked = _AsgiAsked(scope, receive, send)
        self.running.add(asked)
        try:
            await self._app(asked)
        finally:
            self.running.discard(asked)
            await asked.leave_off()


class _AsgiAsked(HttpRequest):
    """One request; what is said at once goes out when the app is done, or with the next part of a stream."""

    __slots__ = ("_listener", "_receive", "_said", "_send")

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers: dict[bytes, bytes] = {}
        for name, value in scope["headers"]:
            headers[name] = value if name not in headers else headers[name] + b", " + value
        super().__init__(scope["method"], scope["raw_path"].decode("latin-1"), headers)
        self._receive = receive
        self._send = send
        self._said: list[Message] = []
        self._listener: asyncio.Task[None] | None = None
        task = asyncio.current_task()
        assert task is not None
        self.task = task

    async def body(self, limit: int) -> bytes:
        """See ``HttpRequest``."""
        try:
            async with asyncio.timeout(BODY_SECONDS):
                body = await self._read(limit)
        except TimeoutError:
            raise RequestTimeout(f"the request body did not arrive within {BODY_SECONDS:g} s") from None
        self._listener = asyncio.create_task(self._listen(), name="hangup")
        return body

    def reply(self, status: int, headers: bytes, body: bytes) -> None:
        """See ``HttpRequest``."""
        if not self.answered:
            self.begin(status, headers + b"content-length: %d\r\n" % len(body))
            self.end(b"" if self.method == "HEAD" else body)

    def begin(self, status: int, headers: bytes) -> None:
        """See ``HttpRequest``."""
        self.status = status
        block = b"x-request-id: %b\r\nopenai-version: 2020-10-01\r\n%b" % (self.request_id.encode("ascii"), headers)
        rows = [tuple(line.split(b": ", 1)) for line in block.split(b"\r\n")[:-1]]
        if self.closing:
            rows.append((b"connection", b"close"))
        self._said.append({"type": "http.response.start", "status": status, "headers": rows})

    async def write(self, frames: bytes, seconds: float) -> None:
        """See ``HttpRequest``; the server does not say whether the client reads slowly or nothing at all."""
        self._said.append({"type": "http.response.body", "body": frames, "more_body": True})
        try:
            async with asyncio.timeout(seconds):
                await self._speak()
        except TimeoutError:
            raise ClientStalled from None

    def end(self, last: bytes = b"") -> None:
        """See ``HttpRequest``."""
        if not self.answered:
            self._said.append({"type": "http.response.body", "body": last, "more_body": False})
            self.answered = True

    def abandon(self) -> None:
        """See ``HttpRequest``: a server that is told nothing more cuts the connection."""
        self._said.clear()

    async def leave_off(self) -> None:
        """The app is done: say what is left."""
        listener, self._listener = self._listener, None  # its cancellation refers to it and to this request
        if listener is not None:
            listener.cancel()
        await self._speak()

    async def _speak(self) -> None:
        while self._said:
            await self._send(self._said[0])  # a server that is cut short here, as it waits for the client, sent nothing
            del self._said[0]

    async def _read(self, limit: int) -> bytes:
        chunks: list[bytes] = []
        size = 0
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            chunk = message.get("body", b"")
            size += len(chunk)
            if size > limit:
                raise too_large(limit)
            chunks.append(chunk)
            if not message.get("more_body"):
                return b"".join(chunks)

    async def _listen(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.leave(ClientGone())
