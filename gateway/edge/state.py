"""What the handlers read of the running process."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from gateway.assembly import Stack
from gateway.telemetry.metrics import Metrics


@dataclass(eq=False, slots=True)
class GatewayState:
    """State shared by all handlers of a process; ``server/`` changes it.

    A reload replaces ``stack``; a call keeps the stack it began with.
    """

    stack: Stack
    metrics: Metrics
    exposition: Callable[[], Awaitable[bytes]]
    """Returns the body of ``/metrics``, of all workers together."""
    started_at: int
    """Seconds since the epoch; the same in all workers."""
    draining: bool = False
    """True: new calls are refused, because the process is about to end."""
    running: int = 0
    """Calls under way in this process."""
