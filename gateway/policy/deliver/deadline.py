"""Time limits for tasks: at a deadline, the task is cancelled, and ``Deadline`` replaces the cancellation by an error.

``Deadline`` works like ``asyncio.timeout``, but can be postponed when it is due, and shares a timer of the event loop
with other calls. Calls end long before their deadlines, so this timer is set once in many calls.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

from gateway.core.errors import GatewayError, UpstreamTimeout

Check = Callable[[], GatewayError | float]
"""Returns an error to end the task, or the event loop time at which the deadline is due again."""


def is_timeout(error: BaseException) -> bool:
    """Return whether the error is a cancellation by a deadline, because an upstream did not answer in time."""
    return isinstance(error, asyncio.CancelledError) and UpstreamTimeout in error.args


class Deadline:
    """A time limit for the task that creates this object."""

    __slots__ = ("_task", "_timer", "error", "when")

    def __init__(self, timer: SharedTimer, loop: asyncio.AbstractEventLoop, when: float, check: Check) -> None:
        """Call ``check`` at the event loop time ``when``."""
        self.when = when
        self.error: GatewayError | None = None
        """The error to raise in place of the cancellation. None if the task has not been cancelled."""
        self._task = asyncio.current_task(loop)
        self._timer = timer
        timer.checks[self] = check
        if when < timer.due or loop is not timer.loop:
            timer.fire_at(when, loop)

    def expire(self, error: GatewayError) -> None:
        """Cancel the task because of an error."""
        assert self._task is not None
        self.error, self.when = error, math.inf
        self._task.cancel(type(error))  # not the error itself: its traceback would make a cycle

    def stop(self) -> None:
        """End the time limit. ``translate`` still works if the task has already been cancelled."""
        self._timer.checks.pop(self, None)

    def translate(self, error: BaseException | None) -> None:
        """Raise the deadline's error if it has cancelled the task.

        Does nothing if other code has also cancelled the task: then the cancellation must continue.
        """
        if self.error is None or self._task is None or not isinstance(error, asyncio.CancelledError):
            return
        expired, self.error = self.error, None  # the deadline cancelled once, so only one cancellation is undone
        if self._task.uncancel() <= 0:
            raise expired from None


class SharedTimer:
    """The timer of a layer's deadlines. When it fires, the deadlines that are due are checked."""

    __slots__ = ("_handle", "checks", "due", "loop")

    def __init__(self) -> None:
        self.checks: dict[Deadline, Check] = {}
        """Not an attribute of a deadline: a check refers to its deadline, and a cycle would keep the request alive."""
        self.due = math.inf
        """The event loop time at which the timer fires."""
        self.loop: asyncio.AbstractEventLoop | None = None
        """The loop of the timer. None before the timer was first set."""
        self._handle: asyncio.TimerHandle | None = None

    def fire_at(self, when: float, loop: asyncio.AbstractEventLoop) -> None:
        """Set the timer to an earlier time than ``due``, or to a time of another loop."""
        if self._handle is not None and loop is self.loop:
            self._handle.cancel()
        self.loop, self.due = loop, when
        self._handle = loop.call_at(when, self._fire, loop)

    def _fire(self, loop: asyncio.AbstractEventLoop) -> None:
        self.due, self._handle, now = math.inf, None, loop.time()
        try:
            for deadline, check in tuple(self.checks.items()):
                if deadline.when <= now:
                    outcome = check()
                    if isinstance(outcome, GatewayError):
                        deadline.expire(outcome)
                    else:
                        deadline.when = outcome
        finally:  # a fault in one check must not stop the deadlines of other calls
            when = min([deadline.when for deadline in self.checks], default=math.inf)
            if when < math.inf:
                self.fire_at(when, loop)
