"""Active health checks: calls avoid a target whose last check failed, so that no call has to fail first."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from gateway.policy.deliver.circuit_breaker import CircuitBreaker

LOG = logging.getLogger("gateway.deliver")


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """Checks one target again and again."""

    breaker: CircuitBreaker
    check: Callable[[], Awaitable[str]]
    """Returns the reason why the target is not healthy, or an empty text."""
    interval: float
    """Seconds."""
    rng: random.Random = field(default_factory=random.Random)

    async def run(self) -> None:
        """Check until cancelled. The first check comes after a random part of the interval, so that checks spread."""
        pause = self.rng.uniform(0, self.interval)
        while True:
            await asyncio.sleep(pause)
            reason = await self.check()
            breaker = self.breaker
            if reason and breaker.reachable:
                LOG.warning("target %s is avoided, because its health check fails: %s", breaker.target, reason)
            elif not reason and not breaker.reachable:
                LOG.info("target %s is healthy again", breaker.target)
            breaker.set_reachable(not reason)
            pause = self.interval
