"""Retry budget: limits the retries of a model to a share of its calls (``docs/spec/reliability.md`` 4.1).

When all targets fail, each call would otherwise be sent several times, and the load on the targets would multiply just
when they cannot serve it. As in linkerd, retries are limited to 3 per second plus a share of the calls of the last
10 seconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable

WINDOW = 10
"""Seconds over which calls and retries are counted."""
FREE_PER_SECOND = 3
"""Retries per second that are always allowed."""


class RetryBudget:
    """Counts the calls and retries of one model."""

    def __init__(
        self,
        share: float,
        observe_exhausted: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``share``: retries per call, between 0 and 1; 1 allows every retry.

        ``observe_exhausted`` is called for each retry that is not allowed.
        """
        self._share = share
        self._observe_exhausted = observe_exhausted
        self._clock = clock
        self._calls = [0] * WINDOW
        self._retries = [0] * WINDOW
        self._second = int(clock())

    def count_call(self) -> None:
        """Count a call's first attempt."""
        self._calls[self._slot()] += 1

    def take(self) -> bool:
        """Count a retry if the budget allows one; False: the call must fail with the error it has."""
        slot = self._slot()
        allowed = FREE_PER_SECOND * WINDOW + self._share * sum(self._calls)
        if self._share < 1 and sum(self._retries) + 1 > allowed:
            self._observe_exhausted()
            return False
        self._retries[slot] += 1
        return True

    def _slot(self) -> int:
        """The slot of the current second. The slots of the seconds since the last call are emptied."""
        now = int(self._clock())
        if now != self._second:
            for second in range(max(self._second, now - WINDOW) + 1, now + 1):
                self._calls[second % WINDOW] = self._retries[second % WINDOW] = 0
            self._second = now
        return now % WINDOW
