"""The process of one worker. It serves like a single process, but receives its configuration from the supervisor.

The supervisor runs ``python -m gateway.server.processes.worker CHANNEL MAIN ADMIN CONFIG LEVEL``. The first three
arguments are file descriptors. Standard input contains the configuration, the start time and the viewer's secret of
the gateway, as a pickle. The worker neither reads nor watches files. When the supervisor ends, the worker drains and
ends.
"""

from __future__ import annotations

import asyncio
import logging
import pickle
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gateway.config.snapshot import Snapshot
from gateway.core.errors import CONFIG_FAILED, GatewayError
from gateway.policy.access.rates import Charge, RateBalance
from gateway.server.lifecycle import Listeners, serve
from gateway.server.processes.rpc import ChannelClosed, RpcChannel
from gateway.server.reload import INTERNAL_ERROR, ConfigLoader
from gateway.server.runtime import Runtime
from gateway.server.signals import Shutdown

LOG = logging.getLogger("gateway.worker")

RESPONSE_SECONDS = 2.0
"""Seconds to wait for a response of the supervisor."""


class WorkerShutdown(Shutdown):
    """Records whether one worker has been requested to drain or to abort."""

    def handle_signal(self) -> None:
        """Request a drain on every signal. Only the supervisor counts signals, and aborts the workers on the second.

        One signal may reach both the supervisor and the workers.
        """
        self.drain_requested.set()


class WorkerRuntime(Runtime):
    """The runtime of one worker, controlled by the supervisor."""

    _channel: RpcChannel
    """The channel to the supervisor. Set by ``start``."""

    def __init__(self, config: Path, sock: socket.socket, started_at: int, viewer_secret: bytes) -> None:
        super().__init__(ConfigLoader(config, {}))
        self.started_at, self.viewer_secret = started_at, viewer_secret
        self.shutdown = WorkerShutdown()
        self._sock = sock

    async def start(self, snapshot: Snapshot) -> None:
        """Build the first stack. If that fails, send the error to the supervisor and raise it."""
        self._channel = await RpcChannel.over(self._sock, self._handle)
        self._reader = asyncio.create_task(self._read_channel(), name="supervisor")
        try:
            await asyncio.to_thread(self.open, snapshot, SupervisorRates(self._channel))
        except GatewayError as error:
            await self._channel.call("refused", error)
            raise
        self.begin_tasks()

    async def ready(self) -> None:
        """Tell the supervisor that this worker is ready, and wait until all workers may accept connections."""
        await self._channel.call("ready")

    async def stop(self) -> None:
        """Send the last metrics to the supervisor, then stop."""
        try:
            async with asyncio.timeout(RESPONSE_SECONDS):
                await self._channel.call("ended", self.metrics.snapshot())
        except (ChannelClosed, TimeoutError):
            LOG.warning("the supervisor has ended or does not answer; the last metrics of this worker are lost")
        await super().stop()

    async def reload(self, *, watched: bool = False) -> bool:
        """Ask the supervisor to reload all workers, and return whether the reload succeeded. Called on SIGHUP."""
        return bool(await self._channel.call("reload"))

    async def exposition(self) -> bytes:
        """Return the body of ``/metrics`` for all workers together."""
        body: bytes = await self._ask_supervisor("exposition")
        return body

    async def shared_status(self) -> dict[str, Any]:
        body: dict[str, Any] = await self._ask_supervisor("status")
        return body

    async def _ask_supervisor(self, method: str) -> Any:
        try:
            async with asyncio.timeout(RESPONSE_SECONDS):
                return await self._channel.call(method)
        except (ChannelClosed, TimeoutError):
            what = "the supervisor, which has the metrics of all workers, did not answer"
            raise GatewayError(f"{what}; retry later") from None

    async def _read_channel(self) -> None:
        await self._channel.run()
        self.shutdown.drain_requested.set()

    async def _handle(self, method: str, payload: Any) -> Any:
        match method:
            case "metrics_snapshot":
                return self.metrics.snapshot()
            case "prepare":
                try:
                    await self.prepare(payload)
                except GatewayError as error:
                    return error
                except Exception:  # a bug, or a broken model file: the old stack keeps serving
                    LOG.exception("a worker could not prepare the new configuration")
                    return GatewayError(INTERNAL_ERROR)
            case "activate":
                assert self._prepared is not None
                await self.activate(self._prepared.snapshot)
            case "drop":
                self._prepared = self._prepared_tls = None
            case "drain":
                self.shutdown.drain_requested.set()
            case "abort":
                self.shutdown.drain_requested.set()
                self.shutdown.abort_requested.set()
        return None


class SupervisorRates:
    """A store of rates that asks the supervisor, which counts the rates of all workers."""

    def __init__(self, channel: RpcChannel) -> None:
        self._channel = channel

    async def take(self, charges: Sequence[Charge]) -> list[RateBalance] | None:
        """Take all charges if each fits (see ``RateStore.take``). Returns None if the supervisor does not answer."""
        try:
            async with asyncio.timeout(RESPONSE_SECONDS):
                balances: list[RateBalance] = await self._channel.call("take_rates", charges)
        except (ChannelClosed, TimeoutError):
            return None
        return balances

    def settle(self, charges: Sequence[Charge]) -> None:
        """Send further amounts to the supervisor. See ``RateStore.settle``."""
        self._channel.notify("settle_rates", charges)

    async def keep_open(self) -> None:
        """Do nothing. The channel is open while the worker runs."""

    async def aclose(self) -> None:
        """Do nothing. The channel is closed with the worker."""


def main(arguments: list[str]) -> int:
    """Serve until the supervisor ends this worker. Returns the exit code."""
    channel, main, admin, config, level = arguments
    try:
        snapshot, started_at, viewer_secret = pickle.load(sys.stdin.buffer)
    except (EOFError, pickle.UnpicklingError):  # the supervisor has ended already
        return 0
    worker = WorkerRuntime(Path(config), socket.socket(fileno=int(channel)), started_at, viewer_secret)
    listeners = Listeners(
        socket.socket(fileno=int(main)), socket.socket(fileno=int(admin)) if admin != "-" else None, worker.ready
    )
    try:
        return serve(worker, snapshot, level, listeners)
    except GatewayError:  # the supervisor has received the error, and prints it once for all workers
        return CONFIG_FAILED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
