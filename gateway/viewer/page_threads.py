"""The threads that read and write pages. No call uses them, so no call waits behind a page.

One page of a client key works at a time, and a few more wait for their turn; further ones are refused.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar, TypeVarTuple

from gateway.core.errors import Overloaded

THREADS = 2
"""The number of threads. Two keys work at the same time; with more keys, their pages take turns."""
MAX_WAITING = 8
"""The maximum number of pages of a key that wait for another page of this key."""

Key = str | None
"""The name of the client key of a visitor; empty without client keys, None for a visitor who has not signed in."""
T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class PageThreads:
    """The threads of the pages of a listener, and the pages that use them or wait for them."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(THREADS, "pages")
        self._pages = Counter[Key]()
        """The number of pages of each key that are being made or wait."""
        self._turns = defaultdict[Key, asyncio.Lock](asyncio.Lock)
        """The lock of each key that has ever used a thread. Entries are never removed: client keys are few."""

    @contextmanager
    def page(self, key: Key) -> Iterator[None]:
        """Count a page of a key while the block makes it. The block must not wait for the client.

        Raises ``Overloaded`` if too many pages of the key wait.
        """
        if self._pages[key] > MAX_WAITING:
            raise Overloaded(
                f"{MAX_WAITING} pages of this visitor wait for another one already; load the page again in a moment"
            )
        self._pages[key] += 1
        try:
            yield
        finally:
            self._pages[key] -= 1

    async def run(self, key: Key, function: Callable[[*Ts], T], *arguments: *Ts) -> T:
        """Return the result of a function that a thread calls when earlier functions of this key have ended.

        A function whose visitor has left ends too before the next one of its key begins.
        """
        turn = self._turns[key]
        await turn.acquire()
        work = asyncio.get_running_loop().run_in_executor(self._executor, function, *arguments)
        work.add_done_callback(lambda _: turn.release())
        return await asyncio.shield(work)

    def close(self) -> None:
        """Drop the functions that have not begun. A running one ends by the limits of its reading."""
        self._executor.shutdown(wait=False, cancel_futures=True)
