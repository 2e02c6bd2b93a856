"""``/metrics`` with several workers: adds up the metrics of the supervisor, the workers and the ended processes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from gateway.server.worker_handle import WorkerHandle
from gateway.telemetry.merge import MetricsSnapshot, merge, without_gauges
from gateway.telemetry.metrics import Metrics

GATHER_SECONDS = 0.25
"""Seconds to wait for a worker's metrics; after that the last known metrics of the worker are used."""
MAX_PENDING = 8
"""The most unanswered requests for metrics that one worker may have, for example because the worker hangs."""


class MetricsAggregator:
    """The metrics of the supervisor, of its workers, and of processes that have ended."""

    def __init__(self, workers: Sequence[WorkerHandle], own: Metrics) -> None:
        self._workers = workers
        self._own = own
        self._ended = MetricsSnapshot()
        self._tasks: set[asyncio.Task[None]] = set()

    def process_ended(self, worker: WorkerHandle) -> None:
        """Keep the counters and histograms of a worker's process that has ended."""
        self._ended = merge([self._ended, without_gauges(worker.metrics)])
        worker.metrics = MetricsSnapshot()

    async def exposition(self) -> bytes:
        """The body of ``/metrics``."""
        tasks = [self.fetch(worker) for worker in self._workers if worker.serving and worker.pending < MAX_PENDING]
        if tasks:
            await asyncio.wait(tasks, timeout=GATHER_SECONDS)
        return merge([self._own.snapshot(), self._ended, *(worker.metrics for worker in self._workers)]).exposition()

    def fetch(self, worker: WorkerHandle) -> asyncio.Task[None]:
        """Start to fetch the metrics of a worker."""
        task = asyncio.create_task(worker.fetch_metrics())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
