"""How do several processes serve one port? A supervisor reads the files, starts the workers and keeps them together.

The supervisor takes no call. It alone reads the configuration, so a reload is one decision: every worker prepares
it, and only if none refuses do all take it; a worker that comes later is handed the one that serves. It holds the
sockets, so the port stays open while a worker is replaced (``seat.py``), and it holds what the workers have counted,
so that ``/metrics`` tells one gateway whichever worker is asked (``counts.py``). Without it nothing goes on: when it is
gone, so are they.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import gateway
from gateway.config.snapshot import Snapshot
from gateway.core.errors import ConfigError, GatewayError, Problem
from gateway.runtime import Runtime
from gateway.server.greeting import greeting
from gateway.server.metrics_aggregation import Counts
from gateway.server.rpc import ChannelClosed, Refusal, RpcChannel
from gateway.server.sockets import DEALT, bind, bind_each, split
from gateway.server.worker_handle import LEAVE, WorkerHandle
from gateway.telemetry.log_writer import log_to_stderr

LOG = logging.getLogger("gateway.workers")

FAILED = 1
"""Exit code: the workers cannot be kept alive."""
CUT = 1
"""Exit code after a second signal: calls were cut."""

YOUNG = 10.0
"""Seconds; a worker that dies younger is replaced more slowly each time."""
PAUSES = (0.0, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
"""Seconds before the next try, by the number of young deaths in a row."""
ENOUGH = 5
"""Young deaths within ``YOUNG`` seconds after which the gateway gives up, if nobody serves any more."""


class GaveUp(Exception):
    """The workers cannot be kept alive."""


def serve(config: Path, env: Mapping[str, str], log_level: str) -> int:
    """Serve until a signal ends it; the exit code. Raises ``ConfigError`` and ``PortBusy`` before anything listens."""
    fleet = Supervisor(config, env, log_level)
    log_to_stderr(log_level, partial(fleet.metrics.count, "gateway_log_lines_dropped_total"))
    try:
        return asyncio.run(fleet.serve(fleet.load()))
    except GaveUp as error:
        print(error, file=sys.stderr)
        return FAILED


class Supervisor(Runtime):
    """The runtime of all workers together: what a lone process does itself, they are told to do."""

    def __init__(self, config: Path, env: Mapping[str, str], log_level: str) -> None:
        super().__init__(config, env)
        self._level = log_level
        self._seats: list[WorkerHandle] = []
        self._admin: socket.socket | None = None
        self._current: Snapshot | None = None
        self._counts = Counts(self._seats, self.metrics)
        self._deaths: deque[float] = deque(maxlen=ENOUGH)
        self._go = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._failed: asyncio.Future[None] | None = None

    async def serve(self, snapshot: Snapshot) -> int:
        """Start the workers, and keep them until a signal ends it."""
        self.bound = server = snapshot.server
        self._failed = asyncio.get_running_loop().create_future()
        for number, sock in enumerate(bind_each(server.host, server.port, server.workers)):
            self._seats.append(WorkerHandle(number, sock))
        self._admin = bind(*split(server.admin)) if server.admin else None
        self._hand_out(snapshot)
        self._listen_to_signals()
        kept: asyncio.Future[Any] = asyncio.gather(*(self._keep(seat) for seat in self._seats))
        try:
            await asyncio.wait([kept, self._failed], return_when=asyncio.FIRST_COMPLETED)
            if self._failed.done():
                self._failed.result()
            await kept
        finally:
            self.drain()
            self._kill()
            await asyncio.wait([kept])
            await self.stop()
        return CUT if self.cut.is_set() else 0

    # ------------------------------------------------------------ a worker's life

    async def _keep(self, seat: WorkerHandle) -> None:
        while not self.draining:
            how = await self._live(seat)
            if not self.draining:
                self.metrics.count("gateway_worker_restarts_total")
                LOG.warning("worker %d %s; another takes its place", seat.number, how)
                await self._rest(seat)

    async def _live(self, seat: WorkerHandle) -> str:
        """One process from its start to its end; how it ended."""
        assert self._current is not None
        try:
            sock = await seat.start(self._current, self._admin, self._config, self._level)
        except OSError as error:  # no memory, no descriptors: as if it had died
            return f"could not be started: {error}"
        seat.channel = await RpcChannel.over(sock, partial(self._answer, seat))
        seat.channel.tell("serve", (self._current, self.born))
        if self.draining:
            seat.kill()
        await seat.channel.run()
        self._serves(seat, False)
        ended = await seat.end()
        self._counts.bury(seat)
        return ended

    async def _rest(self, seat: WorkerHandle) -> None:
        """Wait before the next try, the longer the more often it has failed; raises nothing, but may give up."""
        now = time.monotonic()
        if now - seat.born >= YOUNG:
            seat.young = 0
            return
        seat.young += 1
        self._deaths.append(now)
        others = any(other.serves for other in self._seats)
        if not others and len(self._deaths) == ENOUGH and now - self._deaths[0] < YOUNG:
            self._fail(
                GaveUp(f"{ENOUGH} workers died within {YOUNG:.0f} s and none serves: giving up; see the log above")
            )
        pause = PAUSES[min(seat.young, len(PAUSES)) - 1]
        away = bool(pause) and others and DEALT
        if away:
            port = seat.sock.getsockname()[1]
            seat.sock.close()  # or the kernel would go on dealing connections to nobody
        await self._sleep(pause)
        if away and not self.draining:
            assert self.bound is not None
            seat.sock = bind(self.bound.host, port, shared=True)

    async def _sleep(self, seconds: float) -> None:
        """Until then, or until it is time to leave."""
        try:
            async with asyncio.timeout(seconds):
                await self.leave.wait()
        except TimeoutError:
            return

    def _serves(self, seat: WorkerHandle, serves: bool) -> None:
        seat.serves = serves
        self.metrics.workers(sum(one.serves for one in self._seats))

    def _fail(self, error: Exception) -> None:
        assert self._failed is not None
        if not self._failed.done():
            self._failed.set_exception(error)

    # ------------------------------------------------------------ what workers ask

    async def _answer(self, seat: WorkerHandle, kind: str, payload: Any) -> Any:
        match kind:
            case "ready":
                await self._welcome(seat)
            case "refused":
                self._refused(seat, payload)
            case "leaving":
                seat.told = payload
            case "metrics":
                return await self.exposition()
            case "reload":
                return await self.reload()
        return None

    async def _welcome(self, seat: WorkerHandle) -> None:
        """A worker has built its stack: let it serve, at the start as soon as all have."""
        channel = seat.channel
        async with self._reloading:
            if channel is None or channel.closed:  # it died meanwhile; the seat may be another's by now
                raise ChannelClosed
            if seat.snapshot is not self._current and not await self._catch_up(seat):
                raise ChannelClosed
            self._serves(seat, True)
            if not self._go.is_set() and all(one.serves for one in self._seats):
                self._greet()
        await self._go.wait()

    async def _catch_up(self, seat: WorkerHandle) -> bool:
        """A reload has been while it started: have it take the newer configuration."""
        refusal = await seat.ask("prepare", self._current)
        if refusal is not None:
            LOG.error("worker %d cannot take the configuration that serves: %s", seat.number, refusal.text)
            seat.kill()
            return False
        await seat.ask("take")
        seat.snapshot = self._current
        return True

    def _greet(self) -> None:
        for one in self._seats:
            one.sock.listen(2048)  # who reads the greeting may connect at once
        if self._admin is not None:
            self._admin.listen()
        assert self._current is not None
        print(greeting(self._current, self._seats[0].sock.getsockname()[1]), file=sys.stderr, flush=True)
        self._go.set()
        self.watch()
        self._spawn(self._counts.poll())

    def _refused(self, seat: WorkerHandle, refusal: Refusal) -> None:
        if self._go.is_set():
            LOG.error("worker %d cannot serve:\n%s", seat.number, refusal.text)
        else:
            self._fail(refusal.error())

    # ------------------------------------------------------------ reload

    async def prepare(self, snapshot: Snapshot) -> None:
        """Have every worker build its stack; raises what any of them refuses."""
        seats = [seat for seat in self._seats if seat.serves]
        share = self._share(snapshot)
        answers = await asyncio.gather(*(seat.ask("prepare", share) for seat in seats))
        refusals = [answer for answer in answers if answer is not None]
        if refusals:
            await asyncio.gather(*(seat.ask("drop") for seat in seats))
            raise _together(refusals)

    async def take(self, snapshot: Snapshot) -> None:
        """Have every worker serve what it has built."""
        seats = [seat for seat in self._seats if seat.serves]
        self._hand_out(snapshot)
        await asyncio.gather(*(seat.ask("take") for seat in seats))
        for seat in seats:
            seat.snapshot = self._current

    def _hand_out(self, snapshot: Snapshot) -> None:
        self._current = self._share(snapshot)
        self.metrics.built(gateway.__version__, snapshot.revision)

    def _share(self, snapshot: Snapshot) -> Snapshot:
        """A worker's part of what is limited for the whole gateway, rounded up."""
        assert self.bound is not None
        each = -(-snapshot.server.max_in_flight // self.bound.workers)
        return replace(snapshot, server=replace(snapshot.server, max_in_flight=each))

    async def exposition(self) -> bytes:
        """What all workers tell together, and what those that are gone have counted."""
        return await self._counts.exposition()

    # ------------------------------------------------------------ signals

    def _listen_to_signals(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGHUP, lambda: self._spawn(self.reload()))
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._leave)

    def _leave(self) -> None:
        """The first signal drains all workers, a second one ends them at once; what does not end is killed."""
        assert self.bound is not None
        self.signalled()
        self._go.set()  # whoever still waits for the others' start need not: it is told to leave
        word, patience = ("leave", LEAVE / 2) if self.cut.is_set() else ("drain", self.bound.drain + 2 * LEAVE)
        for seat in self._seats:
            seat.sock.close()  # or the kernel would go on queueing connections for nobody
        if self._admin is not None:
            self._admin.close()
        for seat in self._seats:
            if not seat.serves:
                seat.kill()  # it has no calls, and its socket would accept connections that are never answered
            elif seat.channel is not None and not seat.channel.closed:
                seat.channel.tell(word)
        asyncio.get_running_loop().call_later(patience, self._kill)

    def _kill(self) -> None:
        for seat in self._seats:
            seat.kill()

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _together(refusals: list[Refusal]) -> GatewayError:
    """What the workers refuse, each problem once."""
    problems: dict[Problem, None] = {}
    for refusal in refusals:
        problems |= dict.fromkeys(refusal.problems)
    return ConfigError(tuple(problems)) if problems else refusals[0].error()
