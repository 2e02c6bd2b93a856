"""What do the supervisor's counts say of workers that do not answer, and of those that are gone?"""

from __future__ import annotations

import asyncio
import socket
from typing import Any

from gateway.server.metrics_aggregation import MOST_ASKED, Counts
from gateway.server.rpc import RpcChannel
from gateway.server.worker_handle import WorkerHandle
from gateway.telemetry.merge import tally
from gateway.telemetry.metrics import Metrics


async def nothing(kind: str, payload: Any) -> None:
    """What the supervisor answers here."""


def restarts(body: bytes) -> float:
    lines = [line for line in body.decode().splitlines() if line.startswith("gateway_worker_restarts_total")]
    return sum([float(line.rsplit(" ", 1)[1]) for line in lines])


def counted(times: int) -> Metrics:
    metrics = Metrics()
    for _ in range(times):
        metrics.count("gateway_worker_restarts_total")
    return metrics


def test_a_worker_that_hangs_is_asked_a_few_times_and_its_last_counts_stand_for_it() -> None:
    async def looked() -> None:
        ours, theirs = socket.socketpair()
        with theirs, socket.socket() as port:
            seat = WorkerHandle(
                0, port, channel=await RpcChannel.over(ours, nothing), serves=True, told=tally(counted(3))
            )
            assert seat.channel is not None
            reading = asyncio.create_task(seat.channel.run())
            counts = Counts([seat], counted(1))
            for _ in range(MOST_ASKED + 3):
                assert restarts(await counts.exposition()) == 4
            assert seat.asked == MOST_ASKED
            theirs.close()
            await reading
            await asyncio.sleep(0.05)
            assert seat.asked == 0

    asyncio.run(looked())


def test_what_a_dead_worker_has_counted_stays_in_the_sum() -> None:
    with socket.socket() as port:
        seat = WorkerHandle(0, port, told=tally(counted(2)))
        counts = Counts([seat], counted(1))
        counts.bury(seat)
        assert restarts(asyncio.run(counts.exposition())) == 3
        seat.told = tally(counted(1))
        counts.bury(seat)
        assert restarts(asyncio.run(counts.exposition())) == 4
