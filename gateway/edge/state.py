"""The state of the running process that all handlers share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from gateway.calls.stack import Stack
from gateway.telemetry.metrics import Metrics


@dataclass(eq=False, slots=True)
class GatewayState:
    """The state that all handlers of a process share. The package ``server`` sets ``stack`` and ``ending``.

    A reload replaces ``stack``. A running call keeps the stack that was set when the call began.
    """

    stack: Stack
    metrics: Metrics
    exposition: Callable[[], Awaitable[bytes]]
    """Returns the body of ``/metrics`` for all workers together."""
    status: Callable[[], Awaitable[dict[str, Any]]]
    """Returns the body of ``/status`` for all workers together."""
    started_at: int
    """Seconds since the epoch; the same in all workers."""
    viewer_secret: bytes
    """Signs the sessions of the viewer unless ``server.viewer_secret`` is set; the same in all workers."""
    ending: bool = False
    """True: the process is about to end, so ``/health/ready`` answers 503. Calls are accepted until ``drain``."""
    draining: bool = False
    """True: new calls are refused."""
    running: int = 0
    """The number of running calls in this process."""

    def drain(self) -> None:
        """Refuse new calls, and calls that wait for a free slot (``docs/spec/reliability.md`` E04)."""
        self.draining = True
        self.stack.limiter.drain()
