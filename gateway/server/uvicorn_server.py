"""uvicorn in the place of our own HTTP server (``server.http_server: uvicorn``), with our order of draining."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import uvicorn

from gateway.core.errors import ServerDraining
from gateway.edge.app import App
from gateway.edge.asgi import AsgiAdapter, starlette_app
from gateway.edge.http1.server import BACKLOG, DRAIN_ENDED, ERROR_SECONDS


class UvicornServer:
    """Serves the Starlette application by uvicorn; it has the methods of ``HttpServer``."""

    def __init__(self, app: App) -> None:
        self._adapter = AsgiAdapter(app)
        self._server = _SignallessServer(
            uvicorn.Config(
                starlette_app(self._adapter),
                lifespan="off",
                http="httptools",
                ws="none",
                loop="none",
                access_log=False,
                proxy_headers=False,  # no header decides where a request comes from
                log_config=None,
                server_header=False,
                backlog=BACKLOG,
            )
        )
        self._task: asyncio.Task[None] | None = None

    async def open(self, sockets: Sequence[socket.socket]) -> None:
        """Listen on bound sockets."""
        self._task = asyncio.create_task(self._server.serve(sockets=list(sockets)), name="uvicorn")
        while not self._server.started and not self._task.done():  # noqa: ASYNC110  # uvicorn has a flag, no event
            await asyncio.sleep(0.01)

    def drain(self) -> None:
        """Take no new connections, let running answers end."""
        self._server.should_exit = True

    async def wait_closed(self, seconds: float) -> None:
        """Wait until all answers have ended; calls that still run after ``seconds`` get an error and are ended."""
        assert self._task is not None
        await asyncio.wait([self._task], timeout=seconds)
        if not self._task.done():
            for request in tuple(self._adapter.running):
                request.cancel(ServerDraining(DRAIN_ENDED))
            await asyncio.wait([self._task], timeout=ERROR_SECONDS)
        await self.abort()

    async def abort(self) -> None:
        """Cancel all calls and close all connections now."""
        assert self._task is not None
        for request in self._adapter.running:
            if request.task is not None:
                request.task.cancel()
        self._server.should_exit = self._server.force_exit = True
        await self._task


class _SignallessServer(uvicorn.Server):
    """uvicorn without its signal handlers: ``lifecycle.py`` handles signals."""

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        return nullcontext()
