"""Starts, reloads and replaces the workers that serve one port.

The supervisor serves no calls. Only the supervisor reads the configuration. At a reload every worker prepares the new
configuration, and if no worker refuses, all workers activate it. A worker started later gets the active configuration.
The supervisor keeps the sockets open while a worker is replaced (``worker_handle.py``), and keeps the metrics of ended
processes (``metrics_aggregation.py``). When the supervisor ends, the workers end.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
import time
from collections import deque
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any

from gateway.config.snapshot import KeySpec, ModelSpec, Snapshot
from gateway.core.errors import ConfigError, GatewayError
from gateway.edge.http1.server import BACKLOG
from gateway.policy.access.rates import MemoryRates
from gateway.server.greeting import announce
from gateway.server.lifecycle import EXIT_ABORTED
from gateway.server.metrics_aggregation import MetricsAggregator
from gateway.server.processes.rpc import ChannelClosed, RpcChannel
from gateway.server.processes.worker_handle import END_SECONDS, WorkerHandle
from gateway.server.reload import ConfigLoader, ConfigReloader
from gateway.server.signals import Shutdown, handle_signals
from gateway.server.sockets import KERNEL_BALANCES, bind, bind_admin, bind_each
from gateway.telemetry.log_writer import log_to_stderr
from gateway.telemetry.merge import MetricsSnapshot, merge
from metatemplate.version import VERSION

LOG = logging.getLogger("gateway.workers")

EXIT_FAILED = 1
"""The exit code if too many workers ended soon after their start."""

EARLY_SECONDS = 10.0
"""A worker that ends within this number of seconds after its start counts as an early death."""
PAUSES = (0.0, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
"""Seconds to wait before a worker is started again, by the number of its early deaths in a row."""
POLL_SECONDS = 1.0
"""Seconds between two polls of the workers' metrics. What a killed worker counted after its last poll is lost."""
MAX_EARLY_DEATHS = 5
"""The gateway ends after this number of early deaths within ``EARLY_SECONDS``, if no worker is serving."""


class WorkersFailed(Exception):
    """Too many workers ended soon after their start, and no worker is serving."""


def serve(loader: ConfigLoader, snapshot: Snapshot, log_level: str) -> int:
    """Serve until a signal arrives, and return the exit code.

    Raises ``GatewayError`` if a worker cannot serve the configuration, and ``PortBusy``.
    """
    supervisor = Supervisor(loader, log_level)
    log_to_stderr(
        log_level, snapshot.server.log_format, partial(supervisor.metrics.count, "gateway_log_lines_dropped_total")
    )
    try:
        return asyncio.run(supervisor.serve(snapshot))
    except WorkersFailed as error:
        for handler in logging.getLogger().handlers:
            handler.flush()  # the error is the last line
        print(error, file=sys.stderr)
        return EXIT_FAILED


class Supervisor(ConfigReloader):
    """Reloads the configuration of all workers, and keeps them running."""

    def __init__(self, loader: ConfigLoader, log_level: str) -> None:
        super().__init__(loader)
        self.shutdown = Shutdown()
        self._log_level = log_level
        self._workers: list[WorkerHandle] = []
        self._admin: socket.socket | None = None
        self._rates = MemoryRates()
        """The rates of keys and models, counted for all workers together."""
        self._aggregator = MetricsAggregator(self._workers, self.metrics)
        self._early_deaths: deque[float] = deque(maxlen=MAX_EARLY_DEATHS)
        self._all_ready = asyncio.Event()
        """Set when all workers have become ready for the first time, or when the gateway is about to end."""
        self._refusal: GatewayError | None = None
        """The error for which a worker cannot serve the first configuration; None if no worker has refused it."""

    async def serve(self, snapshot: Snapshot) -> int:
        """Start the workers, keep them running until a signal arrives, and return the exit code."""
        server = snapshot.server
        self.serves_first(snapshot)
        for number, sock in enumerate(bind_each(server.host, server.port, server.workers)):
            self._workers.append(WorkerHandle(number, sock))
        self._admin = bind_admin(server.admin) if server.admin else None
        self.metrics.built(VERSION, snapshot.revision)
        handle_signals(self._end_workers, self.reload)
        running = [asyncio.create_task(self._keep_running(worker)) for worker in self._workers]
        try:
            await asyncio.gather(*running)
        finally:
            self.shutdown.drain_requested.set()
            self._kill_all()
            await asyncio.wait(running)
            await self.stop()
        return EXIT_ABORTED if self.shutdown.abort_requested.is_set() else 0

    # ------------------------------------------------------------ the life of a worker

    async def _keep_running(self, worker: WorkerHandle) -> None:
        while not self.shutdown.drain_requested.is_set():
            ended = await self._run(worker)
            if self._refusal is not None:
                raise self._refusal
            if not self.shutdown.drain_requested.is_set():
                self.metrics.count("gateway_worker_restarts_total")
                LOG.warning("worker %d %s; a new worker is started", worker.number, ended)
                await self._pause(worker)

    async def _run(self, worker: WorkerHandle) -> str:
        """Start a worker's process and wait for its end. Returns how the process ended."""
        try:
            snapshot, share = self._active, self._share(self._active, worker)
            facts = (self.started_at, self.viewer_secret)
            sock = await worker.start(share, facts, self._admin, self.loader.path, self._log_level)
            worker.snapshot = snapshot
        except OSError as error:  # no memory, no descriptors: treated like a process that ended
            return f"could not be started: {error}"
        worker.channel = await RpcChannel.over(sock, partial(self._handle, worker))
        if self.shutdown.drain_requested.is_set():
            worker.kill()
        await worker.channel.run()
        self._set_serving(worker, False)
        ended = await worker.end()
        self._aggregator.process_ended(worker)
        return ended

    async def _pause(self, worker: WorkerHandle) -> None:
        """Wait before a worker is started again, longer after each early death.

        Raises ``WorkersFailed`` after too many early deaths, if no worker is serving.
        """
        now = time.monotonic()
        if now - worker.started >= EARLY_SECONDS:
            worker.early_deaths = 0
            return
        worker.early_deaths += 1
        self._early_deaths.append(now)
        others = any(other.serving for other in self._workers)
        deaths = self._early_deaths
        if not others and len(deaths) == MAX_EARLY_DEATHS and now - deaths[0] < EARLY_SECONDS:
            what = f"{MAX_EARLY_DEATHS} workers ended within {EARLY_SECONDS:.0f} s, and no worker is ready"
            raise WorkersFailed(f"{what}; the gateway stops (see the log above)")
        pause = PAUSES[min(worker.early_deaths, len(PAUSES)) - 1]
        release = bool(pause) and others and KERNEL_BALANCES and worker.sock.family != socket.AF_UNIX
        if release:
            port = worker.sock.getsockname()[1]
            worker.sock.close()  # otherwise the kernel would give connections to a socket that is not served
        with suppress(TimeoutError):  # a request to stop ends the pause
            await asyncio.wait_for(self.shutdown.drain_requested.wait(), pause)
        if release and not self.shutdown.drain_requested.is_set():
            worker.sock = bind(self.bound.host, port, shared=True)

    def _set_serving(self, worker: WorkerHandle, serving: bool) -> None:
        worker.serving = serving
        self.metrics.set("gateway_workers", to=sum(one.serving for one in self._workers))

    async def _poll_workers(self) -> None:
        """Fetch the metrics of all workers every ``POLL_SECONDS``, and kill a worker that no longer answers.

        ``_keep_running`` replaces the killed worker. The timeout is counted in polls and not measured by a clock,
        because the supervisor may have been suspended too.
        """
        while True:
            await asyncio.sleep(POLL_SECONDS)
            for worker in self._workers:
                if not worker.serving:
                    continue
                if not worker.pending:
                    self._aggregator.fetch(worker)
                    continue
                worker.missed_polls += 1
                if worker.missed_polls * POLL_SECONDS >= self.bound.worker_timeout:
                    seconds = f"{self.bound.worker_timeout:g} s (server.worker_timeout)"
                    LOG.error("worker %d has not answered for %s; it is killed", worker.number, seconds)
                    worker.kill()

    # ------------------------------------------------------------ requests of workers

    async def _handle(self, worker: WorkerHandle, method: str, payload: Any) -> Any:
        match method:
            case "ready":
                await self._worker_ready(worker)
            case "refused" if self._all_ready.is_set():
                LOG.error("worker %d cannot serve the configuration:\n%s", worker.number, payload)
            case "refused":
                self._refusal = payload
            case "ended":
                worker.metrics = payload
            case "take_rates":
                return self._rates.take_now(payload)
            case "settle_rates":
                self._rates.settle(payload)
            case "exposition":
                return await self.exposition()
            case "status":
                return await self.shared_status()
            case "reload":
                return await self.reload()
        return None

    async def _worker_ready(self, worker: WorkerHandle) -> None:
        """Mark a worker as serving after it has built its stack. At the start, wait until all workers are ready."""
        channel = worker.channel
        async with self._reloading:
            if channel is None or channel.closed:  # the process has ended; the handle may have a new one
                raise ChannelClosed
            if worker.snapshot is not self._active:  # a reload happened during the start
                refusal = await worker.call("prepare", self._share(self._active, worker))
                if refusal is not None:
                    LOG.error("worker %d cannot load the active configuration: %s", worker.number, refusal)
                    worker.kill()
                    raise ChannelClosed
                await worker.call("activate")
                worker.snapshot = self._active
            self._set_serving(worker, True)
            if not self._all_ready.is_set() and all(one.serving for one in self._workers):
                self._begin()
        await self._all_ready.wait()

    def _begin(self) -> None:
        """Accept connections, print the greeting, watch the files and poll the workers."""
        for one in self._workers:
            one.sock.listen(BACKLOG)  # before the greeting: its reader may connect at once
        if self._admin is not None:
            self._admin.listen()
        announce(self._active, self._workers[0].sock.getsockname()[1], self.viewer_secret)
        self._all_ready.set()
        self.watch()
        self._polling = asyncio.create_task(self._poll_workers())

    # ------------------------------------------------------------ reload

    async def prepare(self, snapshot: Snapshot) -> None:
        """Ask every worker to build its stack. If workers refuse, raises one error with all their reasons."""
        workers = [worker for worker in self._workers if worker.serving]
        answers = await asyncio.gather(*(worker.call("prepare", self._share(snapshot, worker)) for worker in workers))
        refusals = [answer for answer in answers if answer is not None]
        if refusals:
            await asyncio.gather(*(worker.call("drop") for worker in workers))
            found = [refusal.problems for refusal in refusals if isinstance(refusal, ConfigError)]
            raise ConfigError(tuple(dict.fromkeys(chain(*found)))) if found else refusals[0]

    async def activate(self, snapshot: Snapshot) -> None:
        """Ask every worker to serve the stack that it has built."""
        workers = [worker for worker in self._workers if worker.serving]
        self._active = snapshot
        self.metrics.built(VERSION, snapshot.revision)
        await asyncio.gather(*(worker.call("activate") for worker in workers))
        for worker in workers:
            worker.snapshot = self._active

    def _share(self, snapshot: Snapshot, worker: WorkerHandle) -> Snapshot:
        """Return the snapshot for one worker, with the worker's share of each limit of concurrent calls.

        The shares of all workers add up to the limit, but each share is at least 1. Rate limits are not divided,
        because the supervisor counts the rates of all workers.
        """
        workers, server = self.bound.workers, snapshot.server

        def whole(limit: int) -> int:
            return max(1, limit // workers + (worker.number < limit % workers))

        def share(limit: int | None) -> int | None:
            return None if limit is None else whole(limit)

        def of_model(model: ModelSpec) -> ModelSpec:
            limits = replace(model.policy.limits, concurrency=share(model.policy.limits.concurrency))
            return replace(model, policy=replace(model.policy, limits=limits))

        def of_key(key: KeySpec) -> KeySpec:
            return replace(key, limits=replace(key.limits, concurrency=share(key.limits.concurrency)))

        return replace(
            snapshot,
            server=replace(
                server, max_in_flight=whole(server.max_in_flight), max_connections=whole(server.max_connections)
            ),
            models={name: of_model(model) for name, model in snapshot.models.items()},
            keys=tuple([of_key(key) for key in snapshot.keys]),
        )

    async def exposition(self) -> bytes:
        """Return the body of ``/metrics`` for all workers together."""
        return await self._aggregator.exposition()

    def known_metrics(self) -> MetricsSnapshot:
        """Return the metrics of the supervisor, and of the workers at their last poll."""
        return merge([super().known_metrics(), *(worker.metrics for worker in self._workers)])

    # ------------------------------------------------------------ signals

    def _end_workers(self) -> None:
        """Drain all workers on the first signal, and abort them on the second. Kill workers that do not end in time."""
        self.shutdown.handle_signal()
        self._all_ready.set()  # workers that wait for the others at the start go on, and end
        aborting = self.shutdown.abort_requested.is_set()
        draining = self.bound.drain_notice + self.bound.drain + 2 * END_SECONDS
        method, seconds = ("abort", END_SECONDS / 2) if aborting else ("drain", draining)
        for worker in self._workers:
            worker.sock.close()  # otherwise the kernel would queue connections that nothing accepts
        if self._admin is not None:
            self._admin.close()
        for worker in self._workers:
            if not worker.serving:
                worker.kill()  # no calls run, and its socket would accept connections that nothing answers
            elif worker.channel is not None and not worker.channel.closed:
                worker.channel.notify(method)
        asyncio.get_running_loop().call_later(seconds, self._kill_all)

    def _kill_all(self) -> None:
        for worker in self._workers:
            worker.kill()
