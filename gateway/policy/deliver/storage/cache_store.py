"""Stores of complete answers, in memory or in an SQLite file. The store on a Redis server is in ``redis_store``.

One thread reads and writes a store, so a slow disk never blocks the event loop, and a look-up finds all answers that
were stored before. If a store fails, the look-up finds nothing, and the call continues.
"""

from __future__ import annotations

import asyncio
import logging
import math
import sqlite3
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from gateway.core.events import Event
from gateway.core.frozen import dataclass
from gateway.policy.deliver.storage.sqlite_file import open_database, used_bytes
from gateway.wire.stored_events import dump_json, load_events, named_events

LOG = logging.getLogger("gateway.cache")

LOOK_UP_SECONDS = 2.0
"""The maximum time in seconds that a call waits for the store."""
SCHEMA_VERSION = 1
BUSY_SECONDS = 1.0
"""The maximum time in seconds to wait while another process writes to the file."""
MAX_WAITING = 256
"""The maximum number of answers that wait to be written. Further answers are not stored."""


class StoreFailed(Exception):
    """Raised if the store did not answer, or if a stored answer cannot be read."""


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """A complete answer in a store. Raises ``ValueError`` for a value that no gateway has written."""

    created: float
    """The time of the answer, in seconds since the epoch."""
    events: Sequence[Event]

    def __post_init__(self) -> None:
        if not self.events or not math.isfinite(self.created):
            raise ValueError("the stored answer has no events or no time")


class CacheStore(ABC):
    """A store of complete answers by cache key."""

    @abstractmethod
    async def get(self, key: bytes) -> StoredAnswer | None:
        """Return the answer for a key, or None if the store has no such answer. Raises ``StoreFailed``."""

    @abstractmethod
    def put(self, key: bytes, created: float, events: Sequence[Event], ttl: float) -> None:
        """Store an answer in the background. ``ttl``: the seconds for which the answer may be used.

        An answer that cannot be written is dropped.
        """

    @abstractmethod
    async def aclose(self) -> None:
        """Write the waiting answers, and release connections and files."""


class ThreadStore(CacheStore):
    """A store of at most ``max_size`` bytes, which one thread reads and writes. The ``ttl`` of ``put`` is not used."""

    def __init__(self, max_size: int) -> None:
        self.max_size = max_size
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="cache")
        self._given = 0
        """The number of answers given to the thread. Only ``put`` changes this number."""
        self._done = 0
        """The number of answers that the thread has written or dropped. Only the thread changes this number."""
        self._failing = False

    async def get(self, key: bytes) -> StoredAnswer | None:
        """Return the answer for a key, or None. See ``CacheStore.get``."""
        try:
            async with asyncio.timeout(LOOK_UP_SECONDS):
                return await asyncio.get_running_loop().run_in_executor(self._thread, self._get, key)
        except (sqlite3.Error, OSError, ValueError) as error:  # ``TimeoutError`` is an ``OSError``
            self._warn(error)
            raise StoreFailed from error

    def put(self, key: bytes, created: float, events: Sequence[Event], ttl: float) -> None:
        """Store an answer in the background. See ``CacheStore.put``."""
        if self._given - self._done >= MAX_WAITING:
            return
        with suppress(RuntimeError):  # closed: the process ends
            self._thread.submit(self._put, key, created, events)
            self._given += 1

    async def aclose(self) -> None:
        """Write the waiting answers, and close the store. See ``CacheStore.aclose``."""
        self._thread.submit(self._release)
        await asyncio.to_thread(self._thread.shutdown)

    def _get(self, key: bytes) -> StoredAnswer | None:
        found = self._read(key)
        self._failing = False
        return None if found is None else StoredAnswer(found[0], load_events(found[1]))

    def _put(self, key: bytes, created: float, events: Sequence[Event]) -> None:
        try:
            self._write(key, created, dump_json(named_events(events)).encode("ascii"))
        except Exception as error:  # the thread must go on, also after a value that cannot be written
            self._warn(error)
        finally:
            self._done += 1

    def _warn(self, error: Exception) -> None:
        """Log a failure if no failure has been logged since the last successful look-up."""
        if not self._failing:
            LOG.warning("the cache cannot be read or written: %s", error or type(error).__name__)
        self._failing = True

    @abstractmethod
    def _read(self, key: bytes) -> tuple[float, bytes] | None:
        """Return the time and the bytes of an answer, or None if the store does not have the key."""

    @abstractmethod
    def _write(self, key: bytes, created: float, data: bytes) -> None:
        """Store an answer in place of an older one, and remove other answers while the store is too large."""

    @abstractmethod
    def _release(self) -> None:
        """Release the memory or close the file."""


class MemoryStore(ThreadStore):
    """A store in the memory of one process. The answer that was not used for the longest time is removed first."""

    def __init__(self, max_size: int) -> None:
        super().__init__(max_size)
        self._answers: OrderedDict[bytes, tuple[float, bytes]] = OrderedDict()
        self._size = 0

    def _read(self, key: bytes) -> tuple[float, bytes] | None:
        if key in self._answers:
            self._answers.move_to_end(key)
        return self._answers.get(key)

    def _write(self, key: bytes, created: float, data: bytes) -> None:
        if key in self._answers:
            self._size -= len(self._answers.pop(key)[1])
        self._answers[key] = created, data
        self._size += len(data)
        while self._size > self.max_size:
            self._size -= len(self._answers.popitem(last=False)[1][1])

    def _release(self) -> None:
        self._answers.clear()


class SqliteStore(ThreadStore):
    """A store in an SQLite file that all processes of this machine can share. The oldest answers are removed first."""

    def __init__(self, path: Path, max_size: int) -> None:
        super().__init__(max_size)
        self._path = path
        self._database: sqlite3.Connection | None = None

    def _read(self, key: bytes) -> tuple[float, bytes] | None:
        found: tuple[float, bytes] | None = (
            self._open().execute("SELECT created, events FROM answers WHERE key = ?", (key,)).fetchone()
        )
        return found

    def _write(self, key: bytes, created: float, data: bytes) -> None:
        database = self._open()
        with database:
            database.execute("INSERT OR REPLACE INTO answers (key, created, events) VALUES (?, ?, ?)",
                             (key, created, data))  # fmt: skip
            oldest = "DELETE FROM answers WHERE id = (SELECT min(id) FROM answers)"
            while used_bytes(database) > self.max_size and database.execute(oldest).rowcount:
                pass

    def _open(self) -> sqlite3.Connection:
        if self._database is None:
            self._database = open_database(
                self._path,
                "CREATE TABLE IF NOT EXISTS answers"
                " (id INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE, created REAL NOT NULL, events BLOB NOT NULL)",
                SCHEMA_VERSION,
                BUSY_SECONDS,
            )
        return self._database

    def _release(self) -> None:
        if self._database is not None:
            self._database.close()
