"""Rates of requests and tokens per minute, as token buckets.

A bucket holds one minute's allowance and is refilled evenly. A call takes from all of its buckets, or from none.
The tokens of a call are estimated when it begins, and settled when it has ended.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

MINUTE = 60.0


@dataclass(frozen=True, slots=True)
class Charge:
    """What one call takes from one bucket."""

    bucket: str
    """The name of the bucket, such as ``key/ci-runner/requests``."""
    per_minute: int
    """The size of the bucket."""
    amount: float
    """At most the size of the bucket; otherwise the call could never be admitted."""


@dataclass(frozen=True, slots=True)
class Balance:
    """A bucket after a call has taken from it, or has tried to."""

    remaining: float
    """What is left; less than 0 if calls used more tokens than estimated."""
    wait: float
    """Seconds until the charge fits; 0: it fits."""


class RateStore(Protocol):
    """Holds the buckets. One store may serve several processes."""

    async def take(self, charges: Sequence[Charge]) -> list[Balance] | None:
        """Take all charges if each fits, else none. Returns the balances; None: they are not known, admit the call.

        Raises ``Overloaded`` if the store failed and calls must not be admitted without it.
        """
        ...

    def settle(self, charges: Sequence[Charge]) -> None:
        """Take further amounts, or give them back if negative, whatever the bucket holds. Does not wait."""
        ...

    async def aclose(self) -> None:
        """Settle what is under way, and close connections."""
        ...


class MemoryRates:
    """The buckets of one process."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._buckets: dict[str, tuple[float, float]] = {}
        """Name → (content, clock time of the content)."""

    async def take(self, charges: Sequence[Charge]) -> list[Balance] | None:
        """See ``RateStore``."""
        return self.take_now(charges)

    def take_now(self, charges: Sequence[Charge]) -> list[Balance]:
        """``take`` without waiting."""
        now = self._clock()
        contents = [self._content(charge, now) for charge in charges]
        fits = all(content >= charge.amount for content, charge in zip(contents, charges, strict=True))
        balances = []
        for content, charge in zip(contents, charges, strict=True):
            if fits:
                content -= charge.amount
                self._buckets[charge.bucket] = content, now
            missing = 0.0 if fits else max(charge.amount - content, 0.0)
            balances.append(Balance(content, missing * MINUTE / charge.per_minute))
        return balances

    def settle(self, charges: Sequence[Charge]) -> None:
        """See ``RateStore``."""
        now = self._clock()
        for charge in charges:
            content = min(self._content(charge, now) - charge.amount, float(charge.per_minute))
            self._buckets[charge.bucket] = content, now

    async def aclose(self) -> None:
        """See ``RateStore``."""

    def _content(self, charge: Charge, now: float) -> float:
        full = float(charge.per_minute)
        content, then = self._buckets.get(charge.bucket, (full, now))
        return min(content + (now - then) * full / MINUTE, full)
