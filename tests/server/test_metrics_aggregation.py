"""What do the supervisor's counts say of workers that do not answer, and of those that are gone?"""

from __future__ import annotations

import asyncio
import socket
from typing import Any

from gateway.server.metrics_aggregation import MAX_PENDING, MetricsAggregator
from gateway.server.processes.rpc import RpcChannel
from gateway.server.processes.worker_handle import WorkerHandle
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


async def test_a_worker_that_hangs_is_asked_a_few_times_and_its_last_counts_stand_for_it() -> None:
    ours, theirs = socket.socketpair()
    with theirs, socket.socket() as port:
        worker = WorkerHandle(
            0, port, channel=await RpcChannel.over(ours, nothing), serving=True, metrics=counted(3).snapshot()
        )
        assert worker.channel is not None
        reading = asyncio.create_task(worker.channel.run())
        counts = MetricsAggregator([worker], counted(1))
        for _ in range(MAX_PENDING + 3):
            assert restarts(await counts.exposition()) == 4
        assert worker.pending == MAX_PENDING
        theirs.close()
        await reading
        await asyncio.sleep(0.05)
        assert worker.pending == 0


def test_what_a_dead_worker_has_counted_stays_in_the_sum() -> None:
    with socket.socket() as port:
        worker = WorkerHandle(0, port, metrics=counted(2).snapshot())
        counts = MetricsAggregator([worker], counted(1))
        counts.process_ended(worker)
        assert restarts(asyncio.run(counts.exposition())) == 3
        worker.metrics = counted(1).snapshot()
        counts.process_ended(worker)
        assert restarts(asyncio.run(counts.exposition())) == 4
