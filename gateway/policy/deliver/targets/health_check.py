"""Active health checks: calls avoid a target if its last health check failed."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from gateway.policy.deliver.targets.circuit_breaker import CircuitBreaker

LOG = logging.getLogger("gateway.deliver")


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """Checks the health of one target at regular intervals."""

    breaker: CircuitBreaker
    check: Callable[[], Awaitable[str]]
    """A function that returns the reason why the target is not healthy, or an empty string if the target is healthy."""
    interval: float
    """The time between two checks in seconds."""
    uniform: Callable[[float, float], float] = random.uniform

    async def run(self) -> None:
        """Check the target until the task is cancelled.

        The first check comes after a random part of the interval, so that not all targets are checked at the same time.
        """
        pause = self.uniform(0, self.interval)
        while True:
            await asyncio.sleep(pause)
            reason = await self.check()
            breaker = self.breaker
            if reason and breaker.reachable:
                LOG.warning("calls avoid target %s, because its health check failed: %s", breaker.target, reason)
            elif not reason and not breaker.reachable:
                LOG.info("target %s is healthy again", breaker.target)
            breaker.set_reachable(not reason)
            pause = self.interval
