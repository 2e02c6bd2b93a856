"""Limits the concurrent calls of a model. Calls above the limit wait in a bounded queue.

The queue is fair between client keys: each key has its own line, and the keys receive the free slots in turn. A call is
refused with 503 if the queue is full or the call waits too long (``docs/spec/reliability.md`` 4.6, D01 to D05).
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable

from gateway.core.errors import Overloaded
from gateway.telemetry.metrics import NumberSeries

SHUTTING_DOWN = "the gateway is shutting down; retry later"


class CallQueue:
    """The slots for concurrent calls of one model, and the queue of calls that wait for a slot."""

    def __init__(self, model: str, length: Callable[[str, str], NumberSeries]) -> None:
        """``length``: returns the gauge that counts the waiting calls of a model and a key."""
        self._model = model
        self._length = length
        self._slots = self._size = 0
        self._wait = 0.0
        self.running = 0
        self.waiting = 0
        self._lines: dict[str, deque[asyncio.Future[None]]] = {}
        """Key → the waiting calls of the key. The first key of the mapping receives the next free slot."""

    def limit(self, slots: int, wait: float, size: int) -> None:
        """Set the limits. ``wait``: the seconds that a call may wait. ``size``: the maximum number of waiting calls.

        If the limits become smaller, calls that already run or wait are not refused.
        """
        self._slots, self._wait, self._size = slots, wait, size

    async def enter(self, key: str, waited: Callable[[float], None] = lambda seconds: None) -> None:
        """Take a slot, after waiting for a free slot if necessary. The caller must call ``leave`` afterwards.

        ``waited``: called with the seconds that the call has waited, unless the call is refused at once.
        Raises ``Overloaded`` if the queue is full or the call has waited too long.
        """
        if self.running < self._slots and not self.waiting:
            self.running += 1
            waited(0.0)
            return
        if not self._wait or (self.waiting >= self._size and not self._give_way(key)):
            raise self._full()
        slot: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._lines.setdefault(key, deque()).append(slot)
        self.waiting += 1
        length = self._length(self._model, key)
        length.value += 1
        began = time.monotonic()
        try:
            async with asyncio.timeout(self._wait):
                await slot
        except BaseException as error:
            if slot.done() and not slot.cancelled() and slot.exception() is None:
                self.leave()  # the slot was given in the same moment
            elif slot in self._lines.get(key, ()):
                self._lines[key].remove(slot)
                self.waiting -= 1
            if isinstance(error, TimeoutError):
                reason = f"the call waited {self._wait:g} s in the queue (limits.queue_wait)"
                raise refusal("queue_timeout", f"model {self._model} is busy: {reason}; retry later") from None
            raise
        finally:
            length.value -= 1
            waited(time.monotonic() - began)

    def _give_way(self, key: str) -> bool:
        """Refuse the last call of the longest line if this line has at least two calls more than the line of ``key``.

        Returns whether a call was refused.
        """
        longest = max(self._lines.values(), key=len, default=deque())
        if len(longest) <= len(self._lines.get(key, ())) + 1:
            return False
        slot = longest.pop()
        self.waiting -= 1
        if not slot.done():
            slot.set_exception(self._full())
        return True

    def drain(self) -> None:
        """Refuse the waiting calls, because the process ends."""
        slots = [slot for line in self._lines.values() for slot in line if not slot.done()]
        self._lines.clear()
        self.waiting = 0
        for slot in slots:
            slot.set_exception(refusal("draining", SHUTTING_DOWN))

    def _full(self) -> Overloaded:
        limit = f"limits.concurrency={self._slots}"
        return refusal("queue_full", f"model {self._model} has too many concurrent calls ({limit}); retry later")

    def leave(self) -> None:
        """Free a slot, and give the slot to the next waiting call."""
        self.running -= 1
        while self._lines:
            key, line = next(iter(self._lines.items()))
            del self._lines[key]
            if not line:
                continue
            slot = line.popleft()
            self._lines[key] = line  # behind the other keys
            self.waiting -= 1
            if not slot.done():  # a call that is being cancelled has a cancelled slot
                self.running += 1
                slot.set_result(None)
                return


def refusal(reason: str, message: str) -> Overloaded:
    """Return the error for a call that is refused. ``reason``: see ``Overloaded.shed_reason``."""
    error = Overloaded(message)
    error.shed_reason = reason
    return error
