"""Who keeps all connections? One list of lines, one look at them a second, and the order of leaving.

Waits are counted in whole seconds by one timer for all lines, so that a request starts and cancels none.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from email.utils import formatdate
from typing import Any

from gateway.core.errors import ServerDraining
from gateway.edge.http1.connection import ConnectionTimeouts, ServerConnection
from gateway.edge.http1.request import Request, status_line
from gateway.edge.http_request import HttpRequest

App = Callable[[HttpRequest], Coroutine[Any, Any, None]]

BACKLOG = 2048
LOOK = 1.0
"""Seconds between two looks at the lines; what they wait for is this much inexact."""
LAST_WORDS = 1.5
"""Seconds for an error to reach clients whose calls the end of the drain cuts off."""

CUT_OFF = "the gateway is shutting down and could not wait for this answer to end"


class HttpServer:
    """Serves ``app`` on ready sockets, in the running loop."""

    def __init__(self, app: App, patience: ConnectionTimeouts = ConnectionTimeouts(), look: float = LOOK) -> None:  # noqa: B008  # frozen
        self._app = app
        self._seconds = look
        self.patience = patience
        self._loop = asyncio.get_running_loop()
        self._servers: list[asyncio.Server] = []
        self._empty = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self.lines: set[ServerConnection] = set()
        self.openings: dict[int, bytes] = {}
        """The first bytes of an answer by its status, for this second."""
        self.draining = False
        self.now = self._loop.time()
        """Seconds, as of the last look."""

    async def open(self, sockets: Sequence[socket.socket]) -> None:
        """Begin to listen."""
        for bound in sockets:
            self._servers.append(
                await self._loop.create_server(lambda: ServerConnection(self), sock=bound, backlog=BACKLOG)
            )
        self._look()

    def drain(self) -> None:
        """Take no new connections, close idle ones, let running answers end."""
        self.draining = True
        for server in self._servers:
            server.close()
        for line in tuple(self.lines):
            line.drain()
        if not self.lines:
            self._empty.set()

    async def left(self, seconds: float) -> None:
        """Wait until all lines are closed; what still runs after ``seconds`` is told so, and cut."""
        assert self.draining
        if not await self._wait(self._empty.wait(), seconds):
            work = self._running()
            for line in tuple(self.lines):
                if line.current is not None:
                    line.current.leave(ServerDraining(CUT_OFF))
            await self._wait(self._empty.wait(), LAST_WORDS)
            await self._cut(work)
        self._close()

    async def abort(self) -> None:
        """Cut everything, now: the calls under way are cancelled."""
        self.drain()
        work = self._running()
        for task in work:
            task.cancel()
        await self._cut(work)
        self._close()

    # ---------------------------------------------------------------- for the lines

    def start(self, request: Request) -> None:
        """Answer the request, in a task of its own."""
        request.task = asyncio.Task(self._app(request), loop=self._loop, name="request")

    def opening(self, status: int) -> bytes:
        """Status line and date, up to the request's id."""
        opening = b"%bdate: %b\r\nx-request-id: " % (status_line(status), formatdate(usegmt=True).encode("ascii"))
        self.openings[status] = opening
        return opening

    def lost(self, line: ServerConnection) -> None:
        """A line is closed."""
        self.lines.discard(line)
        if self.draining and not self.lines:
            self._empty.set()

    # ----------------------------------------------------------------

    def _look(self) -> None:
        self.now = self._loop.time()
        self.openings.clear()
        for line in tuple(self.lines):
            line.look(self.now)
        self._timer = self._loop.call_later(self._seconds, self._look)

    def _running(self) -> list[asyncio.Task[None]]:
        current = [line.current for line in self.lines]
        return [request.task for request in current if request is not None and request.task is not None]

    async def _cut(self, work: list[asyncio.Task[None]]) -> None:
        for line in tuple(self.lines):
            line.abort()
        if work:
            await asyncio.wait(work, timeout=LAST_WORDS)

    def _close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    async def _wait(self, event: Awaitable[Any], seconds: float) -> bool:
        try:
            await asyncio.wait_for(event, seconds)
        except TimeoutError:
            return False
        return True
