"""Adds up the metrics of the supervisor, the workers and the ended processes, for ``/metrics``."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from gateway.server.processes.worker_handle import WorkerHandle
from gateway.telemetry.merge import MetricsSnapshot, merge, without_gauges
from gateway.telemetry.metrics import Metrics

GATHER_SECONDS = 0.25
"""Seconds to wait for a worker's metrics. If a worker takes longer, its last known metrics are used."""
MAX_PENDING = 8
"""The limit of unanswered requests for metrics per worker. A worker at the limit gets no further requests."""


class MetricsAggregator:
    """The metrics of the supervisor, of its workers, and of processes that have ended."""

    def __init__(self, workers: Sequence[WorkerHandle], own: Metrics) -> None:
        self._workers = workers
        self._own = own
        self._ended = MetricsSnapshot()
        self._tasks: set[asyncio.Task[None]] = set()

    def process_ended(self, worker: WorkerHandle) -> None:
        """Add the counters and histograms of a worker's ended process to those of all ended processes."""
        self._ended = merge([self._ended, without_gauges(worker.metrics)])
        worker.metrics = MetricsSnapshot()

    async def exposition(self) -> bytes:
        """Return the body of ``/metrics``."""
        tasks = [self.fetch(worker) for worker in self._workers if worker.serving and worker.pending < MAX_PENDING]
        if tasks:
            await asyncio.wait(tasks, timeout=GATHER_SECONDS)
        return merge([self._own.snapshot(), self._ended, *(worker.metrics for worker in self._workers)]).exposition()

    def fetch(self, worker: WorkerHandle) -> asyncio.Task[None]:
        """Start a task that fetches the metrics of a worker, and return the task."""
        task = asyncio.create_task(worker.fetch_metrics())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
