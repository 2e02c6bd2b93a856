"""Our own HTTP server: accepts connections, checks their timeouts, and drains them.

One timer checks all connections once a second, so a request neither starts nor cancels a timer.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

from gateway.core.errors import GatewayError, Overloaded, ServerDraining
from gateway.edge.http1.connection import ServerConnection
from gateway.edge.http1.request import Http1Request
from gateway.edge.http1.state import ConnectionTimeouts, ServerState
from gateway.edge.http_request import HttpRequest
from gateway.edge.state import GatewayState

BACKLOG = 2048
CHECK_SECONDS = 1.0
"""Seconds between two checks of all connections. Timeouts may be late by as much."""
ERROR_SECONDS = 1.5
"""Seconds to send an error to the clients whose calls still run at the end of draining."""

TLS_CLOSE_SECONDS = 1.0
"""Seconds to wait until a client confirms the end of a TLS connection."""

DRAIN_ENDED = "the gateway shut down before this answer was complete (server.drain); retry later"


class HttpServer:
    """Serves ``app`` on bound sockets, in the running loop."""

    def __init__(
        self,
        app: Callable[[HttpRequest], Coroutine[Any, Any, None]],
        timeouts: ConnectionTimeouts = ConnectionTimeouts(),  # noqa: B008  # frozen
        check_seconds: float = CHECK_SECONDS,
        refused: Callable[[GatewayError, str], None] = lambda error, request_id: None,
        limited_by: GatewayState | None = None,
    ) -> None:
        """``refused``: see ``ServerState``. ``limited_by``: has the limits of open connections; None: no limits."""
        self._app = app
        self._check_seconds = check_seconds
        self._loop = asyncio.get_running_loop()
        self._servers: list[asyncio.Server] = []
        self._all_closed = asyncio.Event()
        """Set when the last connection is closed, while draining."""
        self._timer: asyncio.TimerHandle | None = None
        self._state = ServerState(timeouts=timeouts, now=self._loop.time(), starts={}, refused=refused)
        self._limited_by = limited_by
        self._draining = False
        self.connections: set[ServerConnection] = set()
        self._of_client: Counter[str] = Counter()
        """IP address → its open connections."""
        self.calls_cut = 0
        """Calls that were ended by ``wait_closed`` or ``abort``."""

    async def open(self, sockets: Sequence[socket.socket], certificate: ssl.SSLContext | None = None) -> None:
        """Accept connections on ``sockets``, with TLS if there is a certificate."""
        timeouts = {"ssl_handshake_timeout": self._state.timeouts.head, "ssl_shutdown_timeout": TLS_CLOSE_SECONDS}
        tls: dict[str, Any] = {} if certificate is None else {"ssl": certificate, **timeouts}
        for bound in sockets:
            self._servers.append(await self._loop.create_server(self.connection, sock=bound, backlog=BACKLOG, **tls))
        self._check_connections()

    def close_after_answers(self) -> None:
        """Close each connection after its current or next answer. New connections are accepted."""
        self._state.closing = True

    def drain(self) -> None:
        """Accept no new connections, close idle connections, and let running answers end."""
        self._draining = self._state.closing = True
        for server in self._servers:
            server.close()
        for connection in tuple(self.connections):
            connection.drain()
        if not self.connections:
            self._all_closed.set()

    async def wait_closed(self, seconds: float) -> None:
        """Wait until all connections are closed. Calls that still run after ``seconds`` are ended with an error."""
        assert self._draining
        if not await self._wait(self._all_closed.wait(), seconds):
            tasks = self._running()
            self.calls_cut = len(tasks)
            for connection in tuple(self.connections):
                if connection.current is not None:
                    connection.current.cancel(ServerDraining(DRAIN_ENDED))
            await self._wait(self._all_closed.wait(), ERROR_SECONDS)
            await self._abort_connections(tasks)
        self._stop_timer()

    async def abort(self) -> None:
        """Cancel all calls and close all connections now."""
        self.drain()
        tasks = self._running()
        self.calls_cut += len(tasks)
        for task in tasks:
            task.cancel()
        await self._abort_connections(tasks)
        self._stop_timer()

    # ---------------------------------------------------------------- connections

    def connection(self) -> ServerConnection:
        """A new connection. asyncio calls this for each connection that a socket accepts."""
        return ServerConnection(self._state, self._start, self._opened, self._closed)

    def _start(self, request: Http1Request) -> None:
        """Answer the request in a new task."""
        request.task = asyncio.Task(self._app(request), loop=self._loop, name="request")

    def _opened(self, connection: ServerConnection) -> None:
        """Count a connection, and refuse it if there are too many (``docs/spec/reliability.md`` D08)."""
        self.connections.add(connection)
        if self._draining:  # it was accepted, or its TLS handshake began, before the drain
            connection.close()
        elif self._limited_by is not None:
            self._of_client[connection.client] += 1
            self._limit(connection, self._limited_by)

    def _limit(self, connection: ServerConnection, state: GatewayState) -> None:
        """Refuse the connection if it is one too many."""
        server = state.stack.snapshot.server
        total, of_client = len(self.connections), self._of_client[connection.client]
        state.metrics.connections(total)
        if total > server.max_connections:
            reason, setting = "connections", f"server.max_connections={server.max_connections}"
        elif server.max_connections_per_client is not None and of_client > server.max_connections_per_client:
            setting = f"server.max_connections_per_client={server.max_connections_per_client}"
            reason = "client_connections"
        else:
            return
        state.metrics.count("gateway_shed_total", reason)
        connection.refuse(Overloaded(f"too many open connections ({setting}); close some, or retry later"))

    def _closed(self, connection: ServerConnection) -> None:
        self.connections.discard(connection)
        if self._limited_by is not None:
            self._limited_by.metrics.connections(len(self.connections))
            self._of_client[connection.client] -= 1
            if self._of_client[connection.client] <= 0:
                del self._of_client[connection.client]
        if self._draining and not self.connections:
            self._all_closed.set()

    # ----------------------------------------------------------------

    def _check_connections(self) -> None:
        now = self._state.now = self._loop.time()
        self._state.starts.clear()
        for connection in tuple(self.connections):
            connection.check_timeouts(now)
        self._timer = self._loop.call_later(self._check_seconds, self._check_connections)

    def _running(self) -> list[asyncio.Task[None]]:
        current = [connection.current for connection in self.connections]
        return [request.task for request in current if request is not None and request.task is not None]

    async def _abort_connections(self, tasks: list[asyncio.Task[None]]) -> None:
        for connection in tuple(self.connections):
            connection.abort()
        if tasks:
            await asyncio.wait(tasks, timeout=ERROR_SECONDS)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    async def _wait(self, event: Awaitable[Any], seconds: float) -> bool:
        try:
            await asyncio.wait_for(event, seconds)
        except TimeoutError:
            return False
        return True
