"""What have all workers counted? Those that serve are asked; the last words of those that are gone stay in the sum."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from gateway.server.worker_handle import WorkerHandle
from gateway.telemetry.merge import MetricsSnapshot, exposition, merge, remains, tally
from gateway.telemetry.metrics import Metrics

GATHER = 0.25
"""Seconds for a worker's counts; then its last known ones stand for it."""
POLL = 1.0
"""Seconds between two looks at the counts: what a worker that is killed can lose."""
MOST_ASKED = 8
"""Questions that may wait at one worker: one that hangs would gather them with each look at ``/metrics``."""


class Counts:
    """The supervisor's own counts, those of the seats, and those of processes that are gone."""

    def __init__(self, seats: Sequence[WorkerHandle], own: Metrics) -> None:
        self._seats = seats
        self._own = own
        self._remains = MetricsSnapshot()
        self._looks: set[asyncio.Task[None]] = set()

    def bury(self, seat: WorkerHandle) -> None:
        """Keep what the seat's process has counted: it is gone."""
        self._remains = merge([self._remains, remains(seat.told)])
        seat.told = MetricsSnapshot()

    async def exposition(self) -> bytes:
        """The body of ``/metrics``."""
        asked = [self._look(seat) for seat in self._seats if seat.serves and seat.asked < MOST_ASKED]
        if asked:
            await asyncio.wait(asked, timeout=GATHER)
        own = tally(self._own)
        return exposition(merge([own, self._remains, *(seat.told for seat in self._seats)]))

    async def poll(self) -> None:
        """Look at the counts again and again, so that little is lost with a process."""
        while True:
            await asyncio.sleep(POLL)
            for seat in self._seats:
                if seat.serves and not seat.asked:
                    self._look(seat)

    def _look(self, seat: WorkerHandle) -> asyncio.Task[None]:
        look = asyncio.create_task(seat.look())
        self._looks.add(look)
        look.add_done_callback(self._looks.discard)
        return look
