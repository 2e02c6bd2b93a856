"""The signals of a process: SIGTERM and SIGINT end the process, SIGHUP reloads the configuration.

What draining does is defined in ``lifecycle.py``, and for several workers in ``supervisor.py``.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine
from typing import Any


class Shutdown:
    """Records whether the process has been requested to drain or to abort."""

    def __init__(self) -> None:
        self.drain_requested = asyncio.Event()
        """Set when the process must accept no more calls, and must end after its running calls."""
        self.abort_requested = asyncio.Event()
        """Set when the process must end without waiting for running calls."""

    def handle_signal(self) -> None:
        """Request a drain on the first SIGTERM or SIGINT, and an abort on the second."""
        if self.drain_requested.is_set():
            self.abort_requested.set()
        self.drain_requested.set()


def handle_signals(end: Callable[[], None], reload: Callable[[], Coroutine[Any, Any, object]]) -> None:
    """Call ``end`` on SIGTERM and SIGINT, and run ``reload`` on SIGHUP, in the running loop."""
    loop = asyncio.get_running_loop()
    reloads: set[asyncio.Task[object]] = set()

    def start_reload() -> None:
        task = loop.create_task(reload())
        reloads.add(task)
        task.add_done_callback(reloads.discard)

    loop.add_signal_handler(signal.SIGHUP, start_reload)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end)
