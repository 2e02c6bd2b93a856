"""Stores of complete answers, in memory or in an SQLite file; ``redis_store`` has them on a server.

One thread reads and writes a store, so a slow disk never stops the event loop, and an answer that is put is found by
the next look-up. Failures of a store cost a look-up, never a call.
"""

from __future__ import annotations

import asyncio
import logging
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

LOG = logging.getLogger("gateway.deliver")

LOOK_UP_SECONDS = 2.0
"""Seconds that a call waits for the store."""
SCHEMA_VERSION = 1
BUSY_SECONDS = 1.0
"""Seconds to wait while another process writes."""
MAX_WAITING = 256
"""Answers that may wait to be written; further ones are not kept."""


class StoreFailed(Exception):
    """The store did not answer, or what it holds cannot be read."""


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """A complete answer."""

    created: float
    """Seconds since the epoch."""
    events: Sequence[Event]


class CacheStore(ABC):
    """Key → answer."""

    @abstractmethod
    async def get(self, key: bytes) -> StoredAnswer | None:
        """The answer of a key; None if there is none. Raises ``StoreFailed``."""

    @abstractmethod
    def put(self, key: bytes, created: float, events: Sequence[Event], ttl: float) -> None:
        """Keep an answer soon. An answer that cannot be written is not kept. ``ttl``: seconds of its use."""

    @abstractmethod
    async def aclose(self) -> None:
        """Write what waits, and release connections and files."""


class ThreadStore(CacheStore):
    """At most ``max_size`` bytes, without regard to the ``ttl``. One thread reads and writes, and may block."""

    def __init__(self, max_size: int) -> None:
        self.max_size = max_size
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="cache")
        self._given = 0
        """Answers given to the thread; changed only by ``put``."""
        self._done = 0
        """Answers that the thread has written or dropped; changed only by the thread."""
        self._failing = False

    async def get(self, key: bytes) -> StoredAnswer | None:
        """See ``CacheStore``."""
        try:
            async with asyncio.timeout(LOOK_UP_SECONDS):
                return await asyncio.get_running_loop().run_in_executor(self._thread, self._get, key)
        except (sqlite3.Error, OSError, ValueError) as error:  # ``TimeoutError`` is an ``OSError``
            self._warn(error)
            raise StoreFailed from error

    def put(self, key: bytes, created: float, events: Sequence[Event], ttl: float) -> None:
        """See ``CacheStore``."""
        if self._given - self._done >= MAX_WAITING:
            return
        with suppress(RuntimeError):  # closed: the process ends
            self._thread.submit(self._put, key, created, events)
            self._given += 1

    async def aclose(self) -> None:
        """See ``CacheStore``."""
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
        """Log the first of several failures."""
        if not self._failing:
            LOG.warning("the cache does not answer: %s", error or type(error).__name__)
        self._failing = True

    @abstractmethod
    def _read(self, key: bytes) -> tuple[float, bytes] | None:
        """The time and the bytes of an answer."""

    @abstractmethod
    def _write(self, key: bytes, created: float, data: bytes) -> None:
        """Keep an answer in place of an older one, and remove others while there are too many bytes."""

    @abstractmethod
    def _release(self) -> None:
        """Close what is open."""


class MemoryStore(ThreadStore):
    """Answers in the memory of one process. The answer that was not used for the longest time is removed first."""

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
    """Answers in a file that all processes of this machine can share. The oldest answers are removed first."""

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
