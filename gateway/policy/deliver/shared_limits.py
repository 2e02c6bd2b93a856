"""Several exchanges of one call: turns, candidates, separate choices, and a call that starts again with another model.

They share the log of the attempts and the total time.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from gateway.core.exchange import AttemptLog, Exchange


class SharedLimits:
    """The attempts and the deadline of all exchanges of one call."""

    def __init__(self, attempts: AttemptLog, total: float) -> None:
        """Start the total time, in seconds."""
        self.attempts = attempts
        self.total = total
        self.deadline = asyncio.get_running_loop().time() + total
        """The time of the event loop at which the call must end."""

    def apply(self, exchange: Exchange, max_attempts: int | None = None) -> Exchange:
        """Return the exchange with these limits. ``max_attempts``: see ``Exchange.max_attempts``."""
        return replace(
            exchange, attempts=self.attempts, total=self.total, deadline=self.deadline, max_attempts=max_attempts
        )


def with_deadline(exchange: Exchange, total: float) -> Exchange:
    """Return the exchange with a deadline for all exchanges that are made of it, unless it has one already."""
    if exchange.deadline is not None:
        return exchange
    return SharedLimits(exchange.attempts, total).apply(exchange, exchange.max_attempts)
