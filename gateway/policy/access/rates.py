"""Rates of requests and tokens per minute, as token buckets.

A full bucket holds the requests or tokens of one minute, and is refilled at a constant rate. If one bucket of a call
has too little left, the call takes nothing from any bucket. The tokens of a call are estimated at its beginning and
corrected at its end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

MINUTE = 60.0


@dataclass(frozen=True, slots=True)
class Charge:
    """The amount that one call takes from one bucket."""

    bucket: str
    """The name of the bucket, such as ``key/ci-runner/requests``."""
    per_minute: int
    """The size of the bucket, which is also the amount that is refilled in one minute."""
    amount: float
    """The requests or tokens to take. At most the size of the bucket, so that a full bucket is always enough."""


@dataclass(frozen=True, slots=True)
class RateBalance:
    """The state of a bucket after a call has taken its charge or was refused."""

    remaining: float
    """The requests or tokens left. Less than 0 if calls used more tokens than estimated."""
    wait: float
    """The seconds until the bucket has enough for the charge. 0 if the charge was taken."""


class RateStore(Protocol):
    """A store of token buckets. Several processes may share one store."""

    async def take(self, charges: Sequence[Charge]) -> list[RateBalance] | None:
        """Take all charges if every bucket has enough left. Otherwise take no charge.

        Returns the balances. None if they are not known; then the caller admits the call. Raises ``Overloaded`` if the
        store failed and the configuration requires the store.
        """

    def settle(self, charges: Sequence[Charge]) -> None:
        """Take more from the buckets, even if too little is left. A negative amount is given back. Never waits."""

    async def keep_open(self) -> None:
        """Open the connections, and keep them open. May run until it is cancelled."""

    async def aclose(self) -> None:
        """Finish the corrections that are running, and close connections."""


class MemoryRates:
    """The buckets of one process."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._buckets: dict[str, tuple[float, float]] = {}
        """Name of a bucket → (content, clock time at which the bucket had this content)."""

    async def take(self, charges: Sequence[Charge]) -> list[RateBalance] | None:
        """Take all charges, or none. See ``RateStore.take``."""
        return self.take_now(charges)

    def take_now(self, charges: Sequence[Charge]) -> list[RateBalance]:
        """Take all charges, or none. The same as ``take``, but not a coroutine."""
        now = self._clock()
        contents = [self._content(charge, now) for charge in charges]
        fits = all(content >= charge.amount for content, charge in zip(contents, charges, strict=True))
        balances = []
        for content, charge in zip(contents, charges, strict=True):
            if fits:
                content -= charge.amount
                self._buckets[charge.bucket] = content, now
            missing = 0.0 if fits else max(charge.amount - content, 0.0)
            balances.append(RateBalance(content, missing * MINUTE / charge.per_minute))
        return balances

    def settle(self, charges: Sequence[Charge]) -> None:
        """Correct the buckets by the given amounts. See ``RateStore.settle``."""
        now = self._clock()
        for charge in charges:
            content = min(self._content(charge, now) - charge.amount, float(charge.per_minute))
            self._buckets[charge.bucket] = content, now

    def lower(self, charge: Charge, content: float) -> None:
        """Reduce the content of the bucket of ``charge`` to ``content``. Keep a content that is smaller."""
        now = self._clock()
        self._buckets[charge.bucket] = min(self._content(charge, now), content), now

    async def keep_open(self) -> None:
        """Do nothing, because the buckets are in memory."""

    async def aclose(self) -> None:
        """Do nothing, because the buckets are in memory."""

    def _content(self, charge: Charge, now: float) -> float:
        full = float(charge.per_minute)
        content, then = self._buckets.get(charge.bucket, (full, now))
        return min(content + (now - then) * full / MINUTE, full)
