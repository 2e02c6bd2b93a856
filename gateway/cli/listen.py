"""How does the process listen? uvicorn around the app, with our signals and our order of leaving."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import socket
import sys
import time
from types import FrameType

import uvicorn
import uvloop

from gateway.cli.protocol import HttpProtocol
from gateway.config.server import in_url
from gateway.config.snapshot import ServerSpec, Snapshot
from gateway.edge.app import App
from gateway.runtime import Runtime
from gateway.telemetry.lines import Lines

LEAVE = 2.0
"""Seconds beyond ``server.drain`` after which uvicorn cuts what is left."""


class PortBusy(Exception):
    """The address cannot be listened on."""


def serve(runtime: Runtime, snapshot: Snapshot, log_level: str) -> int:
    """Serve until a signal ends it; the exit code."""
    _log_to_stderr(log_level)
    server = snapshot.server
    main = _listen(server.host, server.port)
    admin = _listen(*_split(server.admin)) if server.admin else None
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(runtime, snapshot, main, admin))


async def _serve(runtime: Runtime, snapshot: Snapshot, main: socket.socket, admin: socket.socket | None) -> int:
    await runtime.start(snapshot)
    _settle_memory()
    loop = asyncio.get_running_loop()
    reloads: set[asyncio.Task[bool]] = set()

    def reload() -> None:
        task = loop.create_task(runtime.reload())
        reloads.add(task)
        task.add_done_callback(reloads.discard)

    loop.add_signal_handler(signal.SIGHUP, reload)
    try:
        listeners = [_Server(runtime, App(runtime), snapshot.server).serve(sockets=[main])]
        if admin is not None:
            quiet = _Server(runtime, App(runtime, admin=True), snapshot.server, signals=False)
            listeners[0] = _with_admin(listeners[0], quiet, admin)
        print(greeting(snapshot, main.getsockname()[1]), file=sys.stderr, flush=True)
        await listeners[0]
    finally:
        await runtime.stop()
    return 0


class _Server(uvicorn.Server):
    """uvicorn's server, told what a signal means to us."""

    def __init__(self, runtime: Runtime, app: App, server: ServerSpec, *, signals: bool = True) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                lifespan="off",
                http=HttpProtocol,
                ws="none",
                loop="none",
                access_log=False,
                proxy_headers=False,  # nobody's word on where a request comes from is taken
                log_config=None,
                server_header=False,
                timeout_graceful_shutdown=int(server.drain + LEAVE),
            )
        )
        self._runtime = runtime
        self._signals = signals

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The first signal drains, a second one leaves at once.

        uvicorn's own would raise the signal again at the end, and a clean exit would not look like one.
        """
        self._runtime.draining = True
        self.force_exit = self.should_exit
        self.should_exit = True

    def capture_signals(self):  # type: ignore[no-untyped-def]  # a context manager of uvicorn's own type
        """The admin listener leaves signals to the main one."""
        from contextlib import nullcontext

        return super().capture_signals() if self._signals else nullcontext()


def _settle_memory() -> None:
    """Spare the garbage collector what never dies: modules, configuration, engines.

    Without this every full collection walks all of it, and each of them holds up every call (p99 40 ms → 12 ms).
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


async def _with_admin(main: object, admin: _Server, bound: socket.socket) -> None:
    side = asyncio.create_task(admin.serve(sockets=[bound]))
    try:
        await main  # type: ignore[misc]
    finally:
        admin.should_exit = True
        await side


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
        bound.listen(2048)
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
