"""An event loop whose clock advances to the next timer at once, for tests of timeouts.

A wait takes no real time, and a busy machine changes no result: only a timer moves the clock.
Do not use it for code that waits for threads or sockets: the clock would pass their timeouts.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _Selector(selectors.DefaultSelector):
    """Advances ``now``, in seconds, where another selector waits for the next timer."""

    now = 1000.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(None if timeout is None else 0)
        if timeout and not ready:
            self.now += max(timeout, 0.0)
        return ready


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.now


def run(work: Coroutine[Any, Any, T]) -> T:
    """Like ``asyncio.run``, on a virtual clock."""
    with asyncio.Runner(loop_factory=_Loop) as runner:
        return runner.run(work)
