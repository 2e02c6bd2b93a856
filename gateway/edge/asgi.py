"""The HTTP interface as a Starlette application, for any ASGI server.

An ASGI server is slower than our own, because each request needs a second task that waits for a disconnect.
"""

from __future__ import annotations

import asyncio
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.routing import Route
from starlette.types import Lifespan, Message, Receive, Scope, Send

from gateway.calls.admission.facts import body_too_large
from gateway.calls.endpoints.cancellation import ClientGone, ClientStalled
from gateway.edge.app import App
from gateway.edge.http_request import BODY_SECONDS, HttpRequest, body_timeout


def starlette_app(adapter: AsgiAdapter, lifespan: Lifespan[Starlette] | None = None) -> Starlette:
    """Return a Starlette application with a route for each path. The last route serves all other paths."""
    routes = [Route(path, adapter, name=path) for path in adapter.app.routes]
    return Starlette(routes=[*routes, Route("/{path:path}", adapter, name="gateway")], lifespan=lifespan)


class AsgiAdapter:
    """Turns each ASGI request into an ``HttpRequest``, which ``app`` answers."""

    def __init__(self, app: App) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI 3 entry point, for HTTP requests only."""
        request = AsgiRequest(scope, receive, send)
        try:
            await self.app(request)
        finally:
            await request.finish()


class AsgiRequest(HttpRequest):
    """One ASGI request. ``reply``, ``start`` and ``end`` only queue messages; ``write`` and ``finish`` send them."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers: dict[bytes, bytes] = {}
        for name, value in scope["headers"]:
            headers[name] = value if name not in headers else headers[name] + b", " + value
        super().__init__(scope["method"], _path(scope), headers)
        self.query = scope.get("query_string", b"")
        self.root_path = quote(scope.get("root_path", ""))
        self._receive = receive
        self._send = send
        self._queued: list[Message] = []
        self._disconnect: asyncio.Task[None] | None = None
        self.task = asyncio.current_task()

    async def body(self, limit: int) -> bytes:
        """Read the whole body. See ``HttpRequest.body``."""
        try:
            async with asyncio.timeout(BODY_SECONDS):
                body = await self._read(limit)
        except TimeoutError:
            raise body_timeout(BODY_SECONDS) from None
        self._disconnect = asyncio.create_task(self._wait_for_disconnect(), name="disconnect")
        return body

    def reply(self, status: int, headers: bytes, body: bytes) -> None:
        """Queue a whole answer. See ``HttpRequest.reply``."""
        if not self.complete:
            self.start(status, headers + b"content-length: %d\r\n" % len(body))
            self.end(b"" if self.method == "HEAD" else body)

    def start(self, status: int, headers: bytes) -> None:
        """Queue the head of a stream. See ``HttpRequest.start``."""
        self.status = status
        block = b"x-request-id: %b\r\nopenai-version: 2020-10-01\r\n%b%b" % (
            self.request_id.encode("ascii"),
            self.extra_headers,
            headers,
        )
        rows = [tuple(line.split(b": ", 1)) for line in block.split(b"\r\n")[:-1]]
        if self.closing:
            rows.append((b"connection", b"close"))
        self._queued.append({"type": "http.response.start", "status": status, "headers": rows})

    async def write(self, frames: bytes, seconds: float) -> None:
        """Send a part of a stream. ASGI does not report progress, so a client stalls if a part is not sent in time."""
        self._queued.append({"type": "http.response.body", "body": frames, "more_body": True})
        try:
            async with asyncio.timeout(seconds):
                await self._send_queued()
        except TimeoutError:
            raise ClientStalled from None

    def end(self, last: bytes = b"") -> None:
        """Queue the last part of a stream. See ``HttpRequest.end``."""
        if not self.complete:
            self._queued.append({"type": "http.response.body", "body": last, "more_body": False})
            self.complete = True

    def abort(self) -> None:
        """Drop the queued messages. If the answer is incomplete, the ASGI server closes the connection afterwards."""
        self._queued.clear()

    async def finish(self) -> None:
        """Send the queued messages, after the handler has returned."""
        task, self._disconnect = self._disconnect, None  # the task refers to this request: break the cycle
        if task is not None:
            task.cancel()
        await self._send_queued()

    async def _send_queued(self) -> None:
        while self._queued:
            await self._send(self._queued[0])  # deleted only after this: a cancelled ``send`` has sent nothing
            del self._queued[0]

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
                raise body_too_large(limit)
            chunks.append(chunk)
            if not message.get("more_body"):
                return b"".join(chunks)

    async def _wait_for_disconnect(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.cancel(ClientGone())


def _path(scope: Scope) -> str:
    """Return the path without the mount point, percent-encoded as the client sent it if the server reports this."""
    root: str = scope.get("root_path", "")
    raw: bytes | None = scope.get("raw_path")
    if raw is not None:
        path = raw.decode("latin-1")
        for prefix in (root, quote(root)):
            if path.startswith(prefix):
                return path[len(prefix) :]
    return quote(scope["path"].removeprefix(root))
