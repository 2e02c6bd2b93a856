"""Runs one serving process, from binding sockets to draining."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import uvloop

from gateway.config.snapshot import Snapshot
from gateway.edge.app import App
from gateway.edge.http1.server import BACKLOG, HttpServer
from gateway.server.greeting import announce
from gateway.server.memory import tune_memory
from gateway.server.runtime import Runtime
from gateway.server.signals import handle_signals
from gateway.server.sockets import bind, bind_admin
from gateway.telemetry.log_writer import log_to_stderr
from gateway.telemetry.metrics import Metrics
from metatemplate.values.words import counted

LOG = logging.getLogger("gateway.runtime")

EXIT_ABORTED = 1
"""The exit code if a second signal aborted the running calls."""
TICK_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Listeners:
    """The sockets of one process."""

    main: socket.socket
    """The bound socket for clients. It may not listen yet."""
    admin: socket.socket | None
    ready: Callable[[], Awaitable[None]]
    """Called and awaited after everything is built, before the first connection is accepted."""


def serve(runtime: Runtime, snapshot: Snapshot, log_level: str, listeners: Listeners | None = None) -> int:
    """Serve until a signal arrives, and return the exit code.

    If ``listeners`` is None, bind the configured addresses. Raises ``PortBusy`` if an address cannot be bound.
    """
    log_to_stderr(
        log_level, snapshot.server.log_format, partial(runtime.metrics.count, "gateway_log_lines_dropped_total")
    )
    if listeners is None:
        listeners = _bind(snapshot, runtime.viewer_secret)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(runtime, snapshot, listeners))


def _bind(snapshot: Snapshot, viewer_secret: bytes) -> Listeners:
    server = snapshot.server
    main = bind(server.host, server.port)
    admin = bind_admin(server.admin) if server.admin else None

    async def ready() -> None:
        for bound in filter(None, (main, admin)):
            bound.listen(BACKLOG)  # before the greeting, whose reader may connect at once
        announce(snapshot, main.getsockname()[1], viewer_secret)

    return Listeners(main, admin, ready)


async def _serve(runtime: Runtime, snapshot: Snapshot, listeners: Listeners) -> int:
    await runtime.start(snapshot)
    tune_memory()
    shutdown = runtime.shutdown
    handle_signals(shutdown.handle_signal, runtime.reload)
    lag = asyncio.create_task(_measure_loop_lag(runtime.metrics), name="loop-lag")
    try:
        app, admin = App(runtime.state, viewer=runtime.open_pages()), None
        main = HttpServer(app, refused=app.refused_input, limited_by=runtime.state)
        if listeners.admin is not None:
            admin_app = App(runtime.state, admin=True, viewer=runtime.open_pages(admin=True))
            admin = HttpServer(admin_app, refused=admin_app.refused_input)
        await listeners.ready()
        certificate = runtime.certificate.context if runtime.certificate else None
        await main.open([listeners.main], certificate)
        if admin is not None and listeners.admin is not None:
            await admin.open([listeners.admin], certificate if snapshot.server.tls.admin else None)
        await shutdown.drain_requested.wait()
        what = f"process {os.getpid()}"
        await _give_notice(runtime, main, snapshot.server.drain_notice, what)
        runtime.state.drain()
        running = runtime.state.running
        LOG.info(
            "%s drains and accepts no new connections; %s may take %g s to end (server.drain)",
            what,
            counted(running, "running call"),
            snapshot.server.drain,
        )
        started = time.monotonic()
        code = await _end(main, snapshot.server.drain, shutdown.abort_requested)
        seconds, cut = time.monotonic() - started, main.calls_cut
        if code == EXIT_ABORTED or cut:
            why = "a second signal" if code == EXIT_ABORTED else "server.drain"
            LOG.warning("%s has drained for %.1f s; calls ended early by %s: %d", what, seconds, why, cut)
        else:
            LOG.info("%s has drained in %.1f s; every call has ended", what, seconds)
        if admin is not None:  # closed last, to report readiness while the main listener drains
            await admin.abort()
    finally:
        lag.cancel()
        await runtime.stop()
    LOG.info("%s has stopped", what)
    return code


async def _measure_loop_lag(metrics: Metrics) -> None:
    """Record every ``TICK_SECONDS`` how late the event loop runs a timer (``docs/spec/reliability.md`` D11).

    A long delay means that some code blocks the event loop.
    """
    while True:
        due = time.monotonic() + TICK_SECONDS
        await asyncio.sleep(TICK_SECONDS)
        metrics.loop_lag(max(0.0, time.monotonic() - due))


async def _give_notice(runtime: Runtime, main: HttpServer, seconds: float, what: str) -> None:
    """Report that the process is not ready, and serve for ``seconds`` more, so that load balancers notice it.

    Each connection is closed after its next answer. A second signal ends the wait.
    """
    runtime.state.ending = True
    if not seconds:
        return
    main.close_after_answers()
    LOG.info(
        "%s will drain in %g s (server.drain_notice); until then it serves calls, and its readiness check answers 503",
        what,
        seconds,
    )
    with suppress(TimeoutError):
        await asyncio.wait_for(runtime.shutdown.abort_requested.wait(), seconds)


async def _end(main: HttpServer, drain: float, abort: asyncio.Event) -> int:
    """Drain, and return the exit code. Calls that still run after ``drain`` seconds are ended with an error.

    If ``abort`` is set, all calls are cancelled immediately, and their clients receive no error.
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
