"""How are thousands of deadlines kept with one timer? They stand in slots of a fiftieth of a second.

A timer of the event loop costs more than all else that a clock does for a call, and nearly all of them are set only
to be cancelled. So a call's clock is put into a slot's set, and taken out again when the call is over; one timer
looks through the slots that have come due, and stops when no clock is set. A clock that is due later than the last
slot is looked at there, and set anew.
"""

from __future__ import annotations

import asyncio

from gateway.core.errors import GatewayError

STEP = 0.02
"""Seconds; a clock may ring so much late, and never early."""
SLOTS = 50


class Ticker:
    """Looks at the clocks that are due; used in one event loop at a time."""

    __slots__ = ("_loop", "_slots", "_timer", "_turn")

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._turn = 0
        """The last slot that has been looked at."""
        self._slots: dict[int, set[Clock]] = {}

    def set(self, clock: Clock, when: float, loop: asyncio.AbstractEventLoop) -> None:
        """Look at a clock at ``when`` (loop time) or, if that is far away, before it."""
        if self._timer is None or loop is not self._loop:
            self._loop, self._slots, self._turn = loop, {}, int(loop.time() / STEP)
            self._timer = loop.call_later(STEP, self._tick)
        turn = min(max(int(when / STEP), self._turn) + 1, self._turn + SLOTS)
        slot = self._slots.get(turn)
        if slot is None:
            slot = self._slots[turn] = set()
        slot.add(clock)
        clock.slot = slot

    def _tick(self) -> None:
        assert self._loop is not None
        now = self._loop.time()
        last, self._turn = self._turn, int(now / STEP)
        for turn in range(last + 1, min(self._turn, last + SLOTS) + 1):
            slot = self._slots.pop(turn, None)
            while slot:
                slot.pop().look(now)
        if any(self._slots.values()):
            self._timer = self._loop.call_later(STEP, self._tick)
        else:
            self._timer = None


class Clock:
    """Bounds the time of the task that winds it.

    When time is up, the task is cancelled, wherever it waits; on its way out the cancellation becomes the error it
    was cancelled for, as ``asyncio.timeout`` does it.
    """

    __slots__ = ("_owner", "_up", "slot")

    slot: set[Clock]
    """Where the ticker finds it."""

    def __init__(self) -> None:
        owner = asyncio.current_task()
        assert owner is not None
        self._owner = owner
        self._up: GatewayError | None = None
        """The error that the owner was cancelled for."""

    def look(self, now: float) -> None:
        """The ticker has come by: ``ring``, or be set again."""
        raise NotImplementedError

    def ring(self, error: GatewayError) -> None:
        """Time is up."""
        self._up = error
        self._owner.cancel()

    def stop(self) -> None:
        """Not to be looked at any more."""
        self.slot.discard(self)

    def convert(self, error: BaseException | None) -> None:
        """Raise what the owner was cancelled for, if it was and nobody else has cancelled it too."""
        if self._up is not None and isinstance(error, asyncio.CancelledError) and self._owner.uncancel() <= 0:
            raise self._up from None
