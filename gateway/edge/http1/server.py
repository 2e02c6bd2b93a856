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

from gateway.calls.service import GatewayState
from gateway.core.errors import GatewayError, Overloaded, ServerDraining
from gateway.edge.http1.connection import ServerConnection, client_of
from gateway.edge.http1.request import Http1Request
from gateway.edge.http1.state import ConnectionTimeouts, ServerState
from gateway.edge.http_request import HttpRequest

BACKLOG = 2048
CHECK_SECONDS = 1.0
"""Seconds between two checks of all connections. A timeout may take effect this much too late."""
ERROR_SECONDS = 1.5
"""Seconds to send errors to clients. The errors are for calls that still run at the end of draining."""

ACCEPT_PAUSE_SECONDS = 0.1
"""Seconds between a failed attempt to accept a TLS connection and the next attempt."""
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
        """``refused``: see ``ServerState``. ``limited_by``: state with the limits of connections; None: no limits."""
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
        self._handshakes: set[ServerConnection] = set()
        """Connections whose TLS handshake has not ended. They count as open connections."""
        self._accepting: set[asyncio.Task[None]] = set()
        """The tasks that accept TLS connections and wait for their handshakes."""
        self._of_client: Counter[str] = Counter()
        """Client (``client_of`` an address) → the number of open connections of this client."""
        self.calls_cut = 0
        """The number of calls that ``wait_closed`` or ``abort`` ended."""

    async def open(self, sockets: Sequence[socket.socket], certificate: ssl.SSLContext | None = None) -> None:
        """Accept connections on ``sockets``, with TLS if there is a certificate."""
        for bound in sockets:
            if certificate is None:
                unix = bound.family == socket.AF_UNIX
                create: Any = self._loop.create_unix_server if unix else self._loop.create_server
                self._servers.append(await create(self.connection, sock=bound, backlog=BACKLOG))
            else:
                bound.listen(BACKLOG)
                bound.setblocking(False)
                self._begin(self._accept(bound, certificate))
        self._check_connections()

    def close_after_answers(self) -> None:
        """Close each connection after its current or next answer. New connections are accepted."""
        self._state.closing = True

    def drain(self) -> None:
        """Accept no new connections, close idle connections, and let running answers end."""
        self._draining = self._state.closing = True
        for server in self._servers:
            server.close()
        for task in self._accepting:
            task.cancel()
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
        """Return a new connection. asyncio calls this for each connection that a socket accepts."""
        return ServerConnection(self._state, self._start, self._opened, self._closed)

    async def _accept(self, bound: socket.socket, certificate: ssl.SSLContext) -> None:
        """Accept TLS connections until cancelled.

        asyncio's server reports a connection only after the TLS handshake. So clients that never end the handshake
        would evade every limit.
        """
        with bound:
            while True:
                try:
                    link, address = await self._loop.sock_accept(bound)
                except ConnectionError:  # the client has left
                    continue
                except OSError:  # no file descriptor is free
                    pass
                else:
                    self._begin(self._handshake(link, address and address[0], certificate))
                    continue
                await asyncio.sleep(ACCEPT_PAUSE_SECONDS)

    async def _handshake(self, link: socket.socket, address: str, certificate: ssl.SSLContext) -> None:
        """Open a TLS connection. If too many are open, close it before the handshake, which is most of the work."""
        connection = self.connection()
        connection.client = client_of(address)
        self._handshakes.add(connection)
        self._count(connection.client, 1)
        try:
            if self._excess(connection.client) is not None:
                link.close()
                return
            await self._loop.connect_accepted_socket(
                lambda: connection,
                link,
                ssl=certificate,
                ssl_handshake_timeout=self._state.timeouts.head,
                ssl_shutdown_timeout=TLS_CLOSE_SECONDS,
            )
        except OSError:
            pass  # the client does not speak TLS, or has left, or its time is over
        finally:
            if connection in self._handshakes:  # else ``_opened`` counts it
                self._handshakes.discard(connection)
                self._count(connection.client, -1)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._accepting.add(task)
        task.add_done_callback(self._accepting.discard)

    def _start(self, request: Http1Request) -> None:
        """Answer the request in a new task."""
        request.task = asyncio.Task(self._app(request), loop=self._loop, name="request")

    def _opened(self, connection: ServerConnection) -> None:
        """Count a connection, and refuse it if there are too many (``docs/spec/reliability.md`` D08)."""
        self.connections.add(connection)
        if connection in self._handshakes:  # counted when it was accepted
            self._handshakes.discard(connection)
        else:
            self._count(connection.client, 1)
            if not self._draining and (setting := self._excess(connection.client)) is not None:
                connection.refuse(Overloaded(f"too many open connections ({setting}); close some, or retry later"))
        if self._draining:  # it was accepted before the drain
            connection.close()

    def _count(self, client: str, change: int) -> None:
        """Add ``change`` to the number of open connections of a client."""
        if self._limited_by is None:
            return
        number = len(self.connections) + len(self._handshakes)
        self._limited_by.metrics.set("gateway_connections", to=number)
        self._of_client[client] += change
        if self._of_client[client] <= 0:
            del self._of_client[client]

    def _excess(self, client: str) -> str | None:
        """Return the setting that a new connection of the client exceeds, and count the refusal; else None."""
        if self._limited_by is None:
            return None
        server = self._limited_by.stack.snapshot.server
        most, most_of_client = server.max_connections, server.max_connections_per_client
        if len(self.connections) + len(self._handshakes) > most:
            reason, setting = "connections", f"server.max_connections={most}"
        elif most_of_client is not None and self._of_client[client] > most_of_client:
            reason, setting = "client_connections", f"server.max_connections_per_client={most_of_client}"
        else:
            return None
        self._limited_by.metrics.count("gateway_shed_total", reason)
        return setting

    def _closed(self, connection: ServerConnection) -> None:
        self.connections.discard(connection)
        self._count(connection.client, -1)
        if self._draining and not self.connections:
            self._all_closed.set()

    # ----------------------------------------------------------------

    def _check_connections(self) -> None:
        # The next check is scheduled first: an unexpected error must not end the checks.
        self._timer = self._loop.call_later(self._check_seconds, self._check_connections)
        now = self._state.now = self._loop.time()
        self._state.starts.clear()
        for connection in tuple(self.connections):
            connection.check_timeouts(now)

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
