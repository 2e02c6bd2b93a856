"""How does the process listen? Sockets, signals, a listener around the app, and the order of leaving."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import uvloop

from gateway.config.server import in_url
from gateway.config.snapshot import ServerSpec, Snapshot
from gateway.edge.app import App
from gateway.edge.listener import BACKLOG, Listener
from gateway.runtime import Runtime
from gateway.telemetry.lines import Lines

CUT = 1
"""The exit code after a second signal: calls were cut."""


class PortBusy(Exception):
    """The address cannot be listened on."""


class Listening(Protocol):
    """What speaks HTTP: our own ``Listener``, or uvicorn."""

    async def open(self, sockets: Sequence[socket.socket]) -> None:
        """Begin to listen on ready sockets."""

    def drain(self) -> None:
        """Take no new connections, let running answers end."""

    async def left(self, seconds: float) -> None:
        """Wait until all is answered; what still runs after ``seconds`` is told so, and cut."""

    async def abort(self) -> None:
        """Cut everything, now."""


@dataclass(frozen=True, slots=True)
class Sockets:
    """Bound and listening."""

    main: socket.socket
    admin: socket.socket | None


def bind(server: ServerSpec) -> Sockets:
    """The sockets of a process; raises ``PortBusy``."""
    return Sockets(_listen(server.host, server.port), _listen(*_split(server.admin)) if server.admin else None)


def serve(runtime: Runtime, snapshot: Snapshot, log_level: str, sockets: Sockets | None = None) -> int:
    """Serve until a signal ends it, on ``sockets`` if they are ready; the exit code."""
    _log_to_stderr(log_level)
    ready = sockets or bind(snapshot.server)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(runtime, snapshot, ready))


async def _serve(runtime: Runtime, snapshot: Snapshot, sockets: Sockets) -> int:
    await runtime.start(snapshot)
    _settle_memory()
    loop = asyncio.get_running_loop()
    reloads: set[asyncio.Task[bool]] = set()

    def reload() -> None:
        task = loop.create_task(runtime.reload())
        reloads.add(task)
        task.add_done_callback(reloads.discard)

    loop.add_signal_handler(signal.SIGHUP, reload)
    leave, now = _on_signals(loop)
    try:
        main, admin = listening(runtime, snapshot.server), None
        await main.open([sockets.main])
        if sockets.admin is not None:
            admin = Listener(App(runtime, admin=True))
            await admin.open([sockets.admin])
        print(greeting(snapshot, sockets.main.getsockname()[1]), file=sys.stderr, flush=True)
        await leave.wait()
        code = await _leave(runtime, main, snapshot.server.drain, now)
        if admin is not None:  # to the end, so that readiness can be asked for
            await admin.abort()
    finally:
        await runtime.stop()
    return code


def listening(runtime: Runtime, server: ServerSpec) -> Listening:
    """What speaks HTTP to the clients (``server.http_server``)."""
    app = App(runtime)
    if server.http_server == "h1":
        return Listener(app)
    from gateway.cli.uvicorn_listener import UvicornListener

    return UvicornListener(app)


def _on_signals(loop: asyncio.AbstractEventLoop) -> tuple[asyncio.Event, asyncio.Event]:
    """Set by the first signal, and by a second one."""
    leave, now = asyncio.Event(), asyncio.Event()

    def signalled() -> None:
        (now if leave.is_set() else leave).set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, signalled)
    return leave, now


async def _leave(runtime: Runtime, main: Listening, drain: float, now: asyncio.Event) -> int:
    """Readiness first, then the listener; a second signal cuts the wait short."""
    runtime.draining = True
    main.drain()
    waits = [asyncio.create_task(main.left(drain)), asyncio.create_task(now.wait())]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    left, second = waits
    second.cancel()
    if left.done():
        left.result()
        return 0
    left.cancel()
    await asyncio.wait([left])
    await main.abort()
    return CUT


def _settle_memory() -> None:
    """Spare the garbage collector what never dies: modules, configuration, engines.

    Without this every full collection walks all of it, and each of them holds up every call (p99 40 ms → 12 ms).
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
        bound.listen(BACKLOG)
    except OSError as error:
        bound.close()
        place = f"{in_url(host)}:{port}"
        raise PortBusy(f"cannot listen on {place}: {error.strerror}; choose another server.port") from None
    bound.set_inheritable(True)
    return bound


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""An address that stands for all of them → the one to ask from this machine."""


def greeting(snapshot: Snapshot, port: int) -> str:
    """What a newcomer wants to see: where it listens, what it offers, a line to try."""
    host = in_url(ANYWHERE.get(snapshot.server.host, snapshot.server.host))
    names = list(snapshot.models)
    url = f"http://{host}:{port}/v1"
    key = " -H 'authorization: Bearer YOUR_KEY'" if snapshot.keys else ""
    body = f'{{"model": "{names[0]}", "messages": [{{"role": "user", "content": "1+1=?"}}]}}'
    return (
        f"serving {', '.join(names)} at {url}  (process {os.getpid()}, {time.strftime('%H:%M:%S')})\n"
        f"try:\n  curl {url}/chat/completions -H 'content-type: application/json'{key} -d '{body}'"
    )


def _log_to_stderr(level: str) -> None:
    logging.basicConfig(level=level.upper(), handlers=[Lines(sys.stderr)])
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
