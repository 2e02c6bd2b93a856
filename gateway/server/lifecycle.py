"""Runs one serving process, from binding sockets to draining."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

import uvloop

from gateway.config.snapshot import Snapshot
from gateway.edge.app import App
from gateway.edge.http1.server import BACKLOG, HttpServer
from gateway.server.greeting import greeting
from gateway.server.memory import tune_memory
from gateway.server.runtime import Runtime
from gateway.server.signals import handle_signals
from gateway.server.sockets import bind, split
from gateway.telemetry.log_writer import log_to_stderr

EXIT_ABORTED = 1
"""Exit code after a second signal: running calls were aborted."""


@dataclass(frozen=True, slots=True)
class Listeners:
    """The sockets of one process."""

    main: socket.socket
    """A bound socket, which need not listen yet."""
    admin: socket.socket | None
    ready: Callable[[], Awaitable[None]]
    """Awaited when everything is built, before the first connection is accepted."""


def serve(runtime: Runtime, snapshot: Snapshot, log_level: str, listeners: Listeners | None = None) -> int:
    """Serve until a signal, and return the exit code. Without ``listeners``, bind sockets (raises ``PortBusy``)."""
    log_to_stderr(log_level, partial(runtime.metrics.count, "gateway_log_lines_dropped_total"))
    if listeners is None:
        listeners = _bind(snapshot)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(runtime, snapshot, listeners))


def _bind(snapshot: Snapshot) -> Listeners:
    server = snapshot.server
    main = bind(server.host, server.port)
    admin = bind(*split(server.admin)) if server.admin else None

    async def ready() -> None:
        for bound in filter(None, (main, admin)):
            bound.listen(BACKLOG)  # before the greeting, whose reader may connect at once
        print(greeting(snapshot, main.getsockname()[1]), file=sys.stderr, flush=True)

    return Listeners(main, admin, ready)


async def _serve(runtime: Runtime, snapshot: Snapshot, listeners: Listeners) -> int:
    await runtime.start(snapshot)
    tune_memory()
    shutdown = runtime.shutdown
    handle_signals(shutdown.handle_signal, runtime.reload)
    try:
        main, admin = HttpServer(App(runtime.state)), None
        await listeners.ready()
        await main.open([listeners.main])
        if listeners.admin is not None:
            admin = HttpServer(App(runtime.state, admin=True))
            await admin.open([listeners.admin])
        await shutdown.drain_requested.wait()
        runtime.state.draining = True
        code = await _end(main, snapshot.server.drain, shutdown.abort_requested)
        if admin is not None:  # closed last, to report readiness while the main listener drains
            await admin.abort()
    finally:
        await runtime.stop()
    return code


async def _end(main: HttpServer, drain: float, abort: asyncio.Event) -> int:
    """Drain: let running calls end. Calls that still run after ``drain`` seconds are ended with an error.

    ``abort`` ends all calls at once, without an error. Returns the exit code.
    """
    main.drain()
    closed, aborted = asyncio.create_task(main.wait_closed(drain)), asyncio.create_task(abort.wait())
    await asyncio.wait([closed, aborted], return_when=asyncio.FIRST_COMPLETED)
    aborted.cancel()
    if closed.done():
        closed.result()
        return 0
    closed.cancel()
    await asyncio.wait([closed])
    await main.abort()
    return EXIT_ABORTED
