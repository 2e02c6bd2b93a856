"""A time limit for a task: a timer cancels the task, and ``Deadline`` replaces the cancellation by an error.

``Deadline`` works like ``asyncio.timeout``, but needs a quarter of the time, and can be postponed when the timer fires.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from gateway.core.errors import GatewayError, UpstreamTimeout


def is_timeout(error: BaseException) -> bool:
    """Return whether the error is a cancellation by a deadline, because an upstream did not answer in time."""
    return isinstance(error, asyncio.CancelledError) and UpstreamTimeout in error.args


class Deadline:
    """A time limit for the task that creates this object."""

    __slots__ = ("_error", "_loop", "_task", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop, when: float, check: Callable[[], GatewayError | float]) -> None:
        """Start the timer. At loop time ``when``, the timer calls ``check``.

        ``check`` returns an error to end the task, or the loop time of the next check.
        """
        self._loop = loop
        self._task = asyncio.current_task(loop)
        self._error: GatewayError | None = None
        """The error to raise in place of the cancellation. None if the timer has not cancelled the task."""
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
        """Raise the deadline's error if the timer has cancelled the task.

        Does nothing if other code has also cancelled the task: then the cancellation must continue.
        """
        if self._error is None or self._task is None or not isinstance(error, asyncio.CancelledError):
            return
        expired, self._error = self._error, None  # the timer cancelled once, so only one cancellation is undone
        if self._task.uncancel() <= 0:
            raise expired from None
