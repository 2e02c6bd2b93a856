"""Active health checks: calls avoid a target whose last check failed, so that no call has to fail first."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable

from gateway.policy.deliver.circuit_breaker import CircuitBreaker

LOG = logging.getLogger("gateway.deliver")


class HealthCheck:
    """Checks one target again and again."""

    def __init__(
        self,
        breaker: CircuitBreaker,
        check: Callable[[], Awaitable[str]],
        interval: float,
        rng: random.Random | None = None,
    ) -> None:
        """``check`` returns the reason why the target is not healthy, or an empty text. ``interval`` is in seconds."""
        self._breaker = breaker
        self._check = check
        self._interval = interval
        self._rng = rng or random.Random()

    async def run(self) -> None:
        """Check until cancelled. The first check comes after a random part of the interval, so that checks spread."""
        pause = self._rng.uniform(0, self._interval)
        while True:
            await asyncio.sleep(pause)
            reason = await self._check()
            breaker = self._breaker
            if reason and breaker.reachable:
                LOG.warning("target %s is avoided, because its health check fails: %s", breaker.target, reason)
            elif not reason and not breaker.reachable:
                LOG.info("target %s is healthy again", breaker.target)
            breaker.set_reachable(not reason)
            pause = self._interval
