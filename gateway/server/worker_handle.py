"""What is a worker to the supervisor? A seat at the port, taken by one process after another.

A seat keeps its socket while its process is replaced, and knows what the process was handed, whether it serves, and
what it has last counted.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gateway
from gateway.config.snapshot import Snapshot
from gateway.server.rpc import ChannelClosed, Refusal, RpcChannel
from gateway.telemetry.merge import MetricsSnapshot

LEAVE = 2.0
"""Seconds for a process to end beyond what its drain takes."""
PREPARE = 120.0
"""Seconds for a worker to build a new configuration."""


@dataclass(eq=False, slots=True)
class WorkerHandle:
    """A worker's place, taken by one process after another."""

    number: int
    sock: socket.socket
    process: asyncio.subprocess.Process | None = None
    channel: RpcChannel | None = None
    snapshot: Snapshot | None = None
    """What its process was handed."""
    serves: bool = False
    born: float = 0.0
    young: int = 0
    """Young deaths in a row."""
    told: MetricsSnapshot = field(default_factory=MetricsSnapshot)
    """Its process's last known counts."""
    asked: int = 0
    """Questions for counts that are not answered yet."""

    async def start(self, snapshot: Snapshot, admin: socket.socket | None, config: Path, level: str) -> socket.socket:
        """Start a process that shall be handed the snapshot; our end of the channel to it. Raises ``OSError``."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        self.born, self.snapshot = time.monotonic(), snapshot
        try:
            self.process = await self._run(theirs, admin, config, level)
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
        return ours

    async def _run(
        self, channel: socket.socket, admin: socket.socket | None, config: Path, level: str
    ) -> asyncio.subprocess.Process:
        """A fresh interpreter, with our code whatever lies in the folder we stand in.

        A process group of its own keeps the terminal's Ctrl-C from reaching it beside ours.
        """
        given = [channel.fileno(), self.sock.fileno(), *([admin.fileno()] if admin else [])]
        names = [*(str(number) for number in given), *([] if admin else ["-"])]
        path = os.pathsep.join(filter(None, (str(Path(gateway.__file__).parent.parent), os.environ.get("PYTHONPATH"))))
        return await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", "gateway.server.worker", *names, str(config), level,
            stdin=asyncio.subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": path}, pass_fds=given, process_group=0,
        )  # fmt: skip

    async def end(self) -> str:
        """Wait for the end of a process that has hung up; how it ended."""
        assert self.process is not None
        try:
            async with asyncio.timeout(LEAVE):
                code = await self.process.wait()
        except TimeoutError:  # it has hung up, but does not end
            self.process.kill()
            code = await self.process.wait()
        ended = f"(process {self.process.pid}) " + (
            f"ended with code {code}" if code >= 0 else f"died of signal {-code}"
        )
        self.process, self.channel = None, None
        return ended

    def kill(self) -> None:
        """End its process at once, if there is one."""
        if self.process is not None and self.process.returncode is None:
            self.process.kill()

    async def ask(self, kind: str, payload: Any = None) -> Refusal | None:
        """None if the worker agrees, or is gone: the next one is handed what serves then."""
        channel = self.channel
        if channel is None:
            return None
        try:
            async with asyncio.timeout(PREPARE):
                refusal: Refusal | None = await channel.ask(kind, payload)
                return refusal
        except ChannelClosed:
            return None
        except TimeoutError:
            return Refusal((), f"worker {self.number} did not answer within {PREPARE:.0f} s")

    async def look(self) -> None:
        """Ask its process for its counts."""
        channel = self.channel
        if channel is None:
            return
        self.asked += 1
        try:
            told = await channel.ask("tally")
        except ChannelClosed:
            return
        finally:
            self.asked -= 1
        if channel is self.channel:
            self.told = told
