"""How does the process listen? Sockets, signals, a listener around the app, and the order of leaving."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import uvloop

from gateway.config.snapshot import ServerSpec, Snapshot
from gateway.edge.app import App
from gateway.edge.http1.server import BACKLOG, HttpServer
from gateway.runtime import Runtime
from gateway.server.greeting import greeting
from gateway.server.memory import settle
from gateway.server.sockets import bind, split
from gateway.telemetry.log_writer import log_to_stderr

CUT = 1
"""The exit code after a second signal: calls were cut."""


class Listening(Protocol):
    """What speaks HTTP: our own ``HttpServer``, or uvicorn."""

    async def open(self, sockets: Sequence[socket.socket]) -> None:
        """Begin to listen on ready sockets."""

    def drain(self) -> None:
        """Take no new connections, let running answers end."""

    async def left(self, seconds: float) -> None:
        """Wait until all is answered; what still runs after ``seconds`` is told so, and cut."""

    async def abort(self) -> None:
        """Cut everything, now."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where one process listens."""

    main: socket.socket
    """Bound; it need not listen yet."""
    admin: socket.socket | None
    begin: Callable[[], Awaitable[None]]
    """Awaited when everything is ready, before the first connection is taken."""


def serve(runtime: Runtime, snapshot: Snapshot, log_level: str, place: Place | None = None) -> int:
    """Serve until a signal ends it; the exit code. Without a ``place`` its own sockets are bound (``PortBusy``)."""
    log_to_stderr(log_level, partial(runtime.metrics.count, "gateway_log_lines_dropped_total"))
    if place is None:
        place = _own_place(snapshot)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(runtime, snapshot, place))


def _own_place(snapshot: Snapshot) -> Place:
    server = snapshot.server
    main = bind(server.host, server.port)
    admin = bind(*split(server.admin)) if server.admin else None

    async def greet() -> None:
        for bound in filter(None, (main, admin)):
            bound.listen(BACKLOG)  # who reads the greeting may connect at once
        print(greeting(snapshot, main.getsockname()[1]), file=sys.stderr, flush=True)

    return Place(main, admin, greet)


async def _serve(runtime: Runtime, snapshot: Snapshot, place: Place) -> int:
    await runtime.start(snapshot)
    settle()
    loop = asyncio.get_running_loop()
    reloads: set[asyncio.Task[bool]] = set()

    def reload() -> None:
        task = loop.create_task(runtime.reload())
        reloads.add(task)
        task.add_done_callback(reloads.discard)

    loop.add_signal_handler(signal.SIGHUP, reload)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, runtime.signalled)
    try:
        main, admin = listening(runtime, snapshot.server), None
        await place.begin()
        await main.open([place.main])
        if place.admin is not None:
            admin = HttpServer(App(runtime, admin=True))
            await admin.open([place.admin])
        await runtime.leave.wait()
        code = await _leave(main, snapshot.server.drain, runtime.cut)
        if admin is not None:  # to the end, so that readiness can be asked for
            await admin.abort()
    finally:
        await runtime.stop()
    return code


def listening(runtime: Runtime, server: ServerSpec) -> Listening:
    """What speaks HTTP to the clients (``server.http_server``)."""
    app = App(runtime)
    if server.http_server == "h1":
        return HttpServer(app)
    from gateway.server.uvicorn_server import UvicornListener

    return UvicornListener(app)


async def _leave(main: Listening, drain: float, cut: asyncio.Event) -> int:
    """Let running answers end, for so many seconds; ``cut`` cuts the wait short."""
    main.drain()
    waits = [asyncio.create_task(main.left(drain)), asyncio.create_task(cut.wait())]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    left, hurried = waits
    hurried.cancel()
    if left.done():
        left.result()
        return 0
    left.cancel()
    await asyncio.wait([left])
    await main.abort()
    return CUT
