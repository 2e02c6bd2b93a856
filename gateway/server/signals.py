"""The signals of a process: SIGTERM and SIGINT end it, SIGHUP reloads its configuration."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine
from typing import Any


class Shutdown:
    """The end of a process, as far as it has been requested."""

    def __init__(self) -> None:
        self.drain_requested = asyncio.Event()
        """Set when the process shall take no more calls, and end when the running ones have ended."""
        self.abort_requested = asyncio.Event()
        """Set when it shall end without waiting for running calls."""

    def handle_signal(self) -> None:
        """SIGTERM or SIGINT: the first drains, a second one aborts."""
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
