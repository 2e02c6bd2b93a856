"""Measures how late the event loop runs its timers. A long delay means that some code blocks the event loop."""

from __future__ import annotations

import asyncio
import time

from gateway.telemetry.metrics import Metrics

TICK_SECONDS = 0.1


async def measure_loop_lag(metrics: Metrics) -> None:
    """Record the delay of a timer every ``TICK_SECONDS``, until cancelled (``docs/spec/reliability.md`` D11)."""
    while True:
        due = time.monotonic() + TICK_SECONDS
        await asyncio.sleep(TICK_SECONDS)
        metrics.loop_lag(max(0.0, time.monotonic() - due))
