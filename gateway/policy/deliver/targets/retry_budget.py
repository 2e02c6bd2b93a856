"""Retry budget: limits the retries of a model to a share of its calls (``docs/spec/reliability.md`` 4.1).

Without a budget, every call would be sent several times when all targets fail, and overloaded targets would receive a
multiple of their load. As in linkerd, the limit is 3 retries per second plus a share of the calls of the last 10
seconds.
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
        """``share``: the allowed retries per call, from 0 to 1. The value 1 allows every retry.

        ``observe_exhausted``: called for each retry that is not allowed.
        """
        self._share = share
        self._observe_exhausted = observe_exhausted
        self._clock = clock
        self._calls = [0] * WINDOW
        self._retries = [0] * WINDOW
        self._second = int(clock())

    def count_call(self) -> None:
        """Count the first attempt of a call."""
        self._calls[self._slot()] += 1

    def take(self) -> bool:
        """Count a retry if the budget allows it. Returns False if the call must fail without a retry."""
        slot = self._slot()
        allowed = FREE_PER_SECOND * WINDOW + self._share * sum(self._calls)
        if self._share < 1 and sum(self._retries) + 1 > allowed:
            self._observe_exhausted()
            return False
        self._retries[slot] += 1
        return True

    def _slot(self) -> int:
        """Return the index of the current second, and reset the counts of the seconds that have passed unused."""
        now = int(self._clock())
        if now != self._second:
            for second in range(max(self._second, now - WINDOW) + 1, now + 1):
                self._calls[second % WINDOW] = self._retries[second % WINDOW] = 0
            self._second = now
        return now % WINDOW
