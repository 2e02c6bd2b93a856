"""``/metrics`` of several workers: the sum of what they, the supervisor and the ended processes have counted."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from gateway.server.worker_handle import WorkerHandle
from gateway.telemetry.merge import MetricsSnapshot, merge, without_gauges
from gateway.telemetry.metrics import Metrics

GATHER_SECONDS = 0.25
"""Seconds to wait for a worker's metrics; then its last known ones are used."""
POLL_SECONDS = 1.0
"""Seconds between two polls: what a killed worker had counted since the last one is lost."""
MAX_PENDING = 8
"""Unanswered requests for metrics at one worker; a worker that hangs is asked no more often."""


class MetricsAggregator:
    """The metrics of the supervisor, of its workers, and of processes that have ended."""

    def __init__(self, workers: Sequence[WorkerHandle], own: Metrics) -> None:
        self._workers = workers
        self._own = own
        self._ended = MetricsSnapshot()
        self._tasks: set[asyncio.Task[None]] = set()

    def process_ended(self, worker: WorkerHandle) -> None:
        """Keep what the worker's ended process has counted."""
        self._ended = merge([self._ended, without_gauges(worker.metrics)])
        worker.metrics = MetricsSnapshot()

    async def exposition(self) -> bytes:
        """The body of ``/metrics``."""
        tasks = [self._fetch(worker) for worker in self._workers if worker.serving and worker.pending < MAX_PENDING]
        if tasks:
            await asyncio.wait(tasks, timeout=GATHER_SECONDS)
        return merge([self._own.snapshot(), self._ended, *(worker.metrics for worker in self._workers)]).exposition()

    async def poll(self) -> None:
        """Fetch the metrics of all workers again and again, so that a killed one loses little."""
        while True:
            await asyncio.sleep(POLL_SECONDS)
            for worker in self._workers:
                if worker.serving and not worker.pending:
                    self._fetch(worker)

    def _fetch(self, worker: WorkerHandle) -> asyncio.Task[None]:
        task = asyncio.create_task(worker.fetch_metrics())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
