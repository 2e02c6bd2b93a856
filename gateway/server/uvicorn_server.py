"""What if another server shall speak HTTP? uvicorn, chosen by ``server.http_server``, with our order of leaving."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import uvicorn

from gateway.core.errors import ServerDraining
from gateway.edge.app import App
from gateway.edge.asgi import Asgi
from gateway.edge.http1.server import BACKLOG, CUT_OFF, LAST_WORDS


class UvicornListener:
    """See ``edge.listener.Listener``."""

    def __init__(self, app: App) -> None:
        self._asgi = Asgi(app)
        self._server = _Server(
            uvicorn.Config(
                self._asgi,
                lifespan="off",
                http="httptools",
                ws="none",
                loop="none",
                access_log=False,
                proxy_headers=False,  # nobody's word on where a request comes from is taken
                log_config=None,
                server_header=False,
                backlog=BACKLOG,
            )
        )
        self._task: asyncio.Task[None] | None = None

    async def open(self, sockets: Sequence[socket.socket]) -> None:
        """Begin to listen."""
        self._task = asyncio.create_task(self._server.serve(sockets=list(sockets)), name="uvicorn")
        while not self._server.started and not self._task.done():  # noqa: ASYNC110  # uvicorn has a flag, no event
            await asyncio.sleep(0.01)

    def drain(self) -> None:
        """Take no new connections, let running answers end."""
        self._server.should_exit = True

    async def left(self, seconds: float) -> None:
        """Wait until all is answered; what still runs after ``seconds`` is told so, and cut."""
        assert self._task is not None
        await asyncio.wait([self._task], timeout=seconds)
        if not self._task.done():
            for asked in tuple(self._asgi.running):
                asked.leave(ServerDraining(CUT_OFF))
            await asyncio.wait([self._task], timeout=LAST_WORDS)
        await self.abort()

    async def abort(self) -> None:
        """Cut everything, now: the calls under way are cancelled."""
        assert self._task is not None
        for asked in self._asgi.running:
            if asked.task is not None:
                asked.task.cancel()
        self._server.should_exit = self._server.force_exit = True
        await self._task


class _Server(uvicorn.Server):
    """Signals are ours (``listen.py``)."""

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        return nullcontext()
