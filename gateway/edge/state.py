"""The state of the running process that all handlers share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from gateway.assembly import Stack
from gateway.telemetry.metrics import Metrics


@dataclass(eq=False, slots=True)
class GatewayState:
    """The state that all handlers of a process share. ``server/`` sets ``stack`` and ``draining``.

    A reload replaces ``stack``; a running call keeps the stack with which the call began.
    """

    stack: Stack
    metrics: Metrics
    exposition: Callable[[], Awaitable[bytes]]
    """Returns the body of ``/metrics`` for all workers together."""
    started_at: int
    """Seconds since the epoch; the same in all workers."""
    draining: bool = False
    """True: new calls are refused, because the process is about to end."""
    running: int = 0
    """The number of running calls in this process."""
