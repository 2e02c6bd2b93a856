"""One worker as the supervisor sees it.

A handle keeps its socket while its process is replaced. It records which configuration the process was given, whether
it serves, and its last known metrics.
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
from gateway.server.rpc import ChannelClosed, Refusal, RpcChannel
from gateway.telemetry.merge import MetricsSnapshot

END_SECONDS = 2.0
"""Seconds for a process to end, beyond its drain."""
PREPARE_SECONDS = 120.0
"""Seconds for a worker to build a new configuration."""

PACKAGES = Path(__file__).resolve().parents[2]
"""The folder that holds the package ``gateway``."""


@dataclass(eq=False, slots=True)
class WorkerHandle:
    """One worker; its process is replaced when it ends."""

    number: int
    sock: socket.socket
    process: asyncio.subprocess.Process | None = None
    channel: RpcChannel | None = None
    snapshot: Snapshot | None = None
    """The configuration that its process was given."""
    serving: bool = False
    started: float = 0.0
    """Monotonic seconds at which its process was started."""
    early_deaths: int = 0
    """Processes in a row that ended soon after their start."""
    metrics: MetricsSnapshot = field(default_factory=MetricsSnapshot)
    """Its process's last known metrics."""
    pending: int = 0
    """Requests for metrics without a response yet."""

    async def start(
        self, snapshot: Snapshot, started_at: int, admin: socket.socket | None, config: Path, level: str
    ) -> socket.socket:
        """Start a process; returns our end of the channel to it. Raises ``OSError``.

        It is a new interpreter that imports this package, whatever the working directory holds. A process group of its
        own keeps the terminal's Ctrl-C from it; the supervisor passes signals on.
        """
        self.started, self.snapshot = time.monotonic(), snapshot
        ours, theirs = socket.socketpair()
        given = [theirs.fileno(), self.sock.fileno(), *([admin.fileno()] if admin else [])]
        names = [*(str(number) for number in given), *([] if admin else ["-"])]
        path = os.pathsep.join(filter(None, (str(PACKAGES), os.environ.get("PYTHONPATH"))))
        try:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable, "-P", "-m", "gateway.server.worker", *names, str(config), level,
                stdin=asyncio.subprocess.PIPE, env={**os.environ, "PYTHONPATH": path}, pass_fds=given, process_group=0,
            )  # fmt: skip
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
        assert self.process.stdin is not None
        self.process.stdin.write(pickle.dumps((snapshot, started_at)))
        self.process.stdin.close()
        return ours

    async def end(self) -> str:
        """Wait for the end of a process that has closed its channel; returns how it ended."""
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
        """Kill its process, if there is one."""
        if self.process is not None and self.process.returncode is None:
            self.process.kill()

    async def call(self, method: str, payload: Any = None) -> Refusal | None:
        """Have its process prepare, activate or drop a configuration; None if it agrees or has ended.

        The next process of an ended one gets the configuration that serves then.
        """
        channel = self.channel
        if channel is None:
            return None
        try:
            async with asyncio.timeout(PREPARE_SECONDS):
                refusal: Refusal | None = await channel.call(method, payload)
                return refusal
        except ChannelClosed:
            return None
        except TimeoutError:
            return Refusal((), f"worker {self.number} did not answer within {PREPARE_SECONDS:.0f} s")

    async def fetch_metrics(self) -> None:
        """Update ``metrics``."""
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
        if channel is self.channel:
            self.metrics = metrics
