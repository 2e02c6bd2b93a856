"""How does time run out for a task? A timer cancels it, and on its way out the cancellation becomes an error.

As ``asyncio.timeout`` does it, at a quarter of the price: an object and a timer. (Deadlines kept together in slots that
one timer looks through were measured to cost more than a timer of the event loop for each.)
"""

from __future__ import annotations

import asyncio

from gateway.core.errors import GatewayError


class AttemptCancelled(asyncio.CancelledError):
    """The task was cancelled while it waited for a target to answer."""

    def __init__(self, target: str, attempts: int) -> None:
        super().__init__()
        self.target = target
        """The label of that target."""
        self.attempts = attempts
        """How many attempts the call had made, this one included."""


class Deadline:
    """Bounds the time of the task that makes it."""

    __slots__ = ("_loop", "_owner", "_timer", "_up")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._owner = asyncio.current_task(self._loop)
        """The task that is bounded; clocks are made by tasks only."""
        self._up: GatewayError | None = None
        """The error that the owner was cancelled for."""

    def set(self, when: float) -> None:
        """``look`` at this time of the loop's."""
        self._timer = self._loop.call_at(when, self.look)

    def look(self) -> None:
        """The time that was set has come: ``ring``, or ``set`` again."""
        raise NotImplementedError

    def ring(self, error: GatewayError) -> None:
        """Time is up: cancel the task, wherever it waits."""
        assert self._owner is not None
        self._up = error
        self._owner.cancel()

    def stop(self) -> None:
        """Not to be looked at any more."""
        self._timer.cancel()

    def convert(self, error: BaseException | None) -> None:
        """Raise what the owner was cancelled for, if it was and nobody else has cancelled it too."""
        if self._up is None or self._owner is None or not isinstance(error, asyncio.CancelledError):
            return
        if isinstance(error, AttemptCancelled):
            self._up.target, self._up.attempts = error.target, error.attempts
        up, self._up = self._up, None  # one ring takes back one cancellation: any other is somebody else's
        if self._owner.uncancel() <= 0:
            raise up from None
