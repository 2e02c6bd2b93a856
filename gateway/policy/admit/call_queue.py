"""Limits the concurrent calls of a model, and of a key. Calls beyond a model's limit wait in a bounded queue.

The queue is fair between keys: each key has a line of its own, and a free slot goes to the keys in turn. A call that
waits too long, or finds the queue full, is refused with 503 (``docs/spec/reliability.md`` 4.6, D01 to D05).
"""

from __future__ import annotations

import asyncio
from collections import deque

from gateway.core.errors import Overloaded


class CallQueue:
    """The concurrency slots of one model, and the queue for them."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._slots = self._size = 0
        self._wait = 0.0
        self.running = 0
        self.waiting = 0
        self._lines: dict[str, deque[asyncio.Future[None]]] = {}
        """Key → the calls that wait, in the order in which the keys have their turn."""

    def limit(self, slots: int, wait: float, size: int) -> None:
        """Set the limits. ``wait``: seconds that a call may wait; ``size``: the most calls that wait.

        Calls that run or wait already are not refused if the limits become smaller.
        """
        self._slots, self._wait, self._size = slots, wait, size

    async def enter(self, key: str) -> None:
        """Take a slot, after waiting for one if necessary. The caller has to call ``leave``. Raises ``Overloaded``."""
        if self.running < self._slots and not self.waiting:
            self.running += 1
            return
        if not self._wait or (self.waiting >= self._size and not self._give_way(key)):
            raise self._full()
        slot: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._lines.setdefault(key, deque()).append(slot)
        self.waiting += 1
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
                waited = f"the call waited {self._wait:g} s (limits.queue_wait) for a slot"
                raise _refusal("queue_timeout", f"model {self._model} is busy: {waited}; retry later") from None
            raise

    def _give_way(self, key: str) -> bool:
        """Refuse the last call of the longest line, if the line of ``key`` is shorter by more than one call."""
        longest = max(self._lines.values(), key=len, default=deque())
        if len(longest) <= len(self._lines.get(key, ())) + 1:
            return False
        slot = longest.pop()
        self.waiting -= 1
        if not slot.done():
            slot.set_exception(self._full())
        return True

    def _full(self) -> Overloaded:
        limit = f"limits.concurrency={self._slots}"
        return _refusal("queue_full", f"model {self._model} has too many concurrent calls ({limit}); retry later")

    def leave(self) -> None:
        """Free a slot, and give it to the next call that still waits."""
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


def _refusal(reason: str, message: str) -> Overloaded:
    error = Overloaded(message)
    error.shed_reason = reason
    return error
