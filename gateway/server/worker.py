"""What does one of several workers do? It serves as a gateway alone does, but its configuration is handed to it.

Started by ``cli/workers.py`` as ``python -m gateway.server.worker CHANNEL MAIN ADMIN CONFIG LEVEL``, the first three
being file descriptors. It reads no file of the configuration and follows none: the supervisor does, for all of them.
When the supervisor is gone the worker drains and leaves, as after SIGTERM.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from gateway.config.snapshot import Snapshot
from gateway.core.errors import CONFIG_FAILED, GatewayError
from gateway.runtime import Runtime
from gateway.server.listen import Place, serve
from gateway.server.rpc import ChannelClosed, Refusal, RpcChannel, receive
from gateway.telemetry.merge import MetricsSnapshot, tally

LOG = logging.getLogger("gateway.worker")

PATIENCE = 2.0
"""Seconds for the supervisor's answer."""


class Worker(Runtime):
    """The serving world of one worker: led by the supervisor."""

    def __init__(self, config: Path, sock: socket.socket, born: int) -> None:
        super().__init__(config, {})
        self.born = born
        self._sock = sock
        self._channel: RpcChannel | None = None
        self._attending: asyncio.Task[None] | None = None
        self._answers: dict[str, Callable[[Any], Awaitable[Any]]] = {
            "tally": self._tally,
            "prepare": self._prepare,
            "take": self._take,
            "drop": self._drop,
            "drain": self._drain,
            "leave": self._leave,
        }

    async def start(self, snapshot: Snapshot) -> None:
        """Build the first stack; a refusal is told to the supervisor as well as raised."""
        self._channel = await RpcChannel.over(self._sock, self._answer)
        self._attending = asyncio.create_task(self._attend(), name="supervisor")
        try:
            await self.open(snapshot)
        except GatewayError as error:
            await self._channel.ask("refused", Refusal.of(error))
            raise

    def signalled(self) -> None:
        """Whoever stops us may have signalled every process: only the supervisor knows a second signal as such."""
        self.drain()

    async def begin(self) -> None:
        """Wait for the word to take connections: nobody does before all can."""
        assert self._channel is not None
        await self._channel.ask("ready")

    async def stop(self) -> None:
        """Leave the last counts behind."""
        assert self._channel is not None
        try:
            async with asyncio.timeout(PATIENCE):
                await self._channel.ask("leaving", await self._tally(None))
        except (ChannelClosed, TimeoutError):
            LOG.warning("the supervisor is gone, and the last counts with it")
        await super().stop()

    async def reload(self) -> bool:
        """SIGHUP at one worker is meant for all."""
        assert self._channel is not None
        return bool(await self._channel.ask("reload"))

    async def exposition(self) -> bytes:
        """What all workers tell together."""
        assert self._channel is not None
        try:
            async with asyncio.timeout(PATIENCE):
                told: bytes = await self._channel.ask("metrics")
                return told
        except (ChannelClosed, TimeoutError):
            raise GatewayError("the supervisor, which adds up the metrics of all workers, does not answer") from None

    async def _attend(self) -> None:
        assert self._channel is not None
        await self._channel.run()
        await self._drain(None)

    async def _answer(self, kind: str, payload: Any) -> Any:
        return await self._answers[kind](payload)

    async def _tally(self, _: None) -> MetricsSnapshot:
        return tally(self.metrics)

    async def _prepare(self, snapshot: Snapshot) -> Refusal | None:
        try:
            await self.prepare(snapshot)
        except GatewayError as error:
            return Refusal.of(error)
        except Exception as error:  # a mistake of ours, or a broken model file: the old stack must serve on
            LOG.exception("a worker could not prepare the new configuration")
            return Refusal((), f"a worker failed: {error}")
        return None

    async def _take(self, _: None) -> None:
        assert self._next is not None
        await self.take(self._next.snapshot)

    async def _drop(self, _: None) -> None:
        self._next = None

    async def _drain(self, _: None) -> None:
        self.drain()

    async def _leave(self, _: None) -> None:
        self.drain()
        self.cut.set()


def main(arguments: list[str]) -> int:
    """Serve until told to leave; the exit code."""
    channel, main, admin, config, level = arguments
    sock = socket.socket(fileno=int(channel))
    try:
        _, _, (snapshot, born) = receive(sock)
    except ChannelClosed:  # the supervisor is gone already
        return 0
    sock.setblocking(False)
    worker = Worker(Path(config), sock, born)
    place = Place(
        socket.socket(fileno=int(main)), socket.socket(fileno=int(admin)) if admin != "-" else None, worker.begin
    )
    try:
        return serve(worker, snapshot, level, place)
    except GatewayError:  # told to the supervisor, which says it once for all workers
        return CONFIG_FAILED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
