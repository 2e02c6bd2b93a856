"""A time limit for a task: a timer cancels the task, and the cancellation is replaced by an error.

``Deadline`` works like ``asyncio.timeout`` at a quarter of the cost, and can be postponed when the timer fires.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from gateway.core.errors import GatewayError, UpstreamTimeout


def is_timeout(error: BaseException) -> bool:
    """Return whether the error is a cancellation by a deadline, because an upstream did not answer in time."""
    return isinstance(error, asyncio.CancelledError) and UpstreamTimeout in error.args


class Deadline:
    """Limits the time of the task that creates the object."""

    __slots__ = ("_error", "_loop", "_task", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop, when: float, check: Callable[[], GatewayError | float]) -> None:
        """At loop time ``when`` the timer calls ``check``, which returns the error to raise, or a later loop time."""
        self._loop = loop
        self._task = asyncio.current_task(loop)
        self._error: GatewayError | None = None
        """The reason for which the task was cancelled."""
        # ``check`` is not an attribute: its owner refers to this object, and a cycle would keep the request alive.
        self._timer = self._loop.call_at(when, self._fire, check)

    def _fire(self, check: Callable[[], GatewayError | float]) -> None:
        outcome = check()
        if isinstance(outcome, GatewayError):
            assert self._task is not None
            self._error = outcome
            self._task.cancel(type(outcome))  # not the error itself: its traceback would make a cycle
        else:
            self._timer = self._loop.call_at(outcome, self._fire, check)

    def stop(self) -> None:
        """Stop the timer. ``translate`` still works if the timer has already cancelled the task."""
        self._timer.cancel()

    def translate(self, error: BaseException | None) -> None:
        """Replace the timer's cancellation by the deadline's error, unless the task was also cancelled by others."""
        if self._error is None or self._task is None or not isinstance(error, asyncio.CancelledError):
            return
        expired, self._error = self._error, None  # the timer cancelled once, so only one cancellation is undone
        if self._task.uncancel() <= 0:
            raise expired from None
