"""The supervisor's object for one worker.

A handle keeps the worker's socket while the process is replaced. The handle records which configuration the process
received, whether the process serves, and the last known metrics.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import socket
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gateway.config.snapshot import Snapshot
from gateway.core.errors import GatewayError
from gateway.server.processes.rpc import ChannelClosed, RpcChannel
from gateway.telemetry.merge import MetricsSnapshot

END_SECONDS = 2.0
"""Seconds that a process may take to end, in addition to draining."""
PREPARE_SECONDS = 120.0
"""Seconds that a worker may take to build a new configuration."""

PACKAGES = Path(__file__).resolve().parents[2]
"""The folder that contains the package ``gateway``."""


@dataclass(eq=False, slots=True)
class WorkerHandle:
    """One worker. A process that ends is replaced by a new process."""

    number: int
    sock: socket.socket
    process: asyncio.subprocess.Process | None = None
    channel: RpcChannel | None = None
    snapshot: Snapshot | None = None
    """The active configuration of the process, before its limits were divided between the workers."""
    serving: bool = False
    started: float = 0.0
    """Monotonic seconds at which the process was started."""
    early_deaths: int = 0
    """The number of processes in a row that ended soon after their start."""
    metrics: MetricsSnapshot = field(default_factory=MetricsSnapshot)
    """The last known metrics of the process."""
    pending: int = 0
    """The number of requests for metrics that have no response yet."""
    missed_polls: int = 0
    """The number of polls in a row at which an earlier request for metrics had no response."""

    async def start(
        self, snapshot: Snapshot, facts: tuple[int, bytes], admin: socket.socket | None, config: Path, level: str
    ) -> socket.socket:
        """Start a process, and return the supervisor's end of the socket pair. Raises ``OSError`` if this fails.

        ``facts``: the start time and the viewer's secret, which are the same in all workers.

        The new interpreter imports this package, not a package of the same name in the working directory. The process
        has a separate process group, so that Ctrl-C reaches only the supervisor, which then drains the workers.
        """
        self.started, self.missed_polls = time.monotonic(), 0
        ours, theirs = socket.socketpair()
        given = [theirs.fileno(), self.sock.fileno(), *([admin.fileno()] if admin else [])]
        names = [*(str(number) for number in given), *([] if admin else ["-"])]
        path = os.pathsep.join(filter(None, (str(PACKAGES), os.environ.get("PYTHONPATH"))))
        try:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-P",
                "-m",
                "gateway.server.processes.worker",
                *names,
                str(config),
                level,
                stdin=asyncio.subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": path},
                pass_fds=given,
                process_group=0,
            )
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
        assert self.process.stdin is not None
        self.process.stdin.write(pickle.dumps((snapshot, *facts)))
        self.process.stdin.close()
        return ours

    async def end(self) -> str:
        """Wait for the end of a process that has closed its channel, and return how the process ended.

        A process that takes longer than ``END_SECONDS`` is killed.
        """
        assert self.process is not None
        try:
            async with asyncio.timeout(END_SECONDS):
                code = await self.process.wait()
        except TimeoutError:
            self.process.kill()
            code = await self.process.wait()
        ended = f"ended with code {code}" if code >= 0 else f"died of signal {-code}"
        ended = f"(process {self.process.pid}) {ended}"
        self.process, self.channel = None, None
        return ended

    def kill(self) -> None:
        """Kill the worker's process, if it is running."""
        if self.process is not None and self.process.returncode is None:
            self.process.kill()

    async def call(self, method: str, payload: Any = None) -> GatewayError | None:
        """Ask the process to prepare, activate or drop a configuration. Returns its error; None: no error.

        Returns None also if the process has ended, because its successor starts with the active configuration.
        """
        channel = self.channel
        if channel is None:
            return None
        try:
            async with asyncio.timeout(PREPARE_SECONDS):
                error: GatewayError | None = await channel.call(method, payload)
                return error
        except ChannelClosed:
            return None
        except TimeoutError:
            return GatewayError(f"worker {self.number} did not answer within {PREPARE_SECONDS:.0f} s")

    async def fetch_metrics(self) -> None:
        """Fetch the metrics of the process, and store them in ``metrics``."""
        channel = self.channel
        if channel is None:
            return
        self.pending += 1
        try:
            metrics = await channel.call("metrics_snapshot")
        except ChannelClosed:
            return
        finally:
            self.pending -= 1
            self.missed_polls = 0
        if channel is self.channel:
            self.metrics = metrics
