"""A store of complete answers in an SQLite database. The store on a Redis server is in ``redis_store``.

One thread reads and writes the store, so a slow disk never blocks the event loop, and a look-up finds all answers that
were stored before. If the store fails, the look-up finds nothing, and the call continues.
"""

from __future__ import annotations

import asyncio
import logging
import math
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from gateway.storage.sqlite_file import open_database, used_bytes
from gateway.wire.json import dump_json
from gateway.wire.stored_events import load_events, named_events
from metatemplate.values.events import Event
from metatemplate.values.frozen import dataclass

LOG = logging.getLogger("gateway.cache")

LOOK_UP_SECONDS = 2.0
"""The maximum time in seconds that a call waits for a look-up, and at its end until its answer is stored."""
MAX_VALUE = 16 * 1024 * 1024
"""The maximum size of a stored answer in bytes. The thread that reads a larger one would delay other calls."""
SCHEMA_VERSION = 1
BUSY_SECONDS = 1.0
"""The maximum time in seconds to wait while another process writes to the file."""
MAX_WAITING_ANSWERS = 256
"""The maximum number of answers that wait to be written. Further answers are not stored."""


class StoreFailed(Exception):
    """Raised if the store did not answer."""


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """A complete answer in a store."""

    created: float
    """The time of the answer, in seconds since the epoch."""
    events: Sequence[Event]


UNUSABLE = StoredAnswer(0.0, ())
"""Stands for a value that no gateway has written. The next answer replaces this value."""


def read_answer(created: float | bytes, data: bytes) -> StoredAnswer:
    """Return the answer of a stored value, or ``UNUSABLE``."""
    try:
        if len(data) <= MAX_VALUE and math.isfinite(seconds := float(created)):
            return StoredAnswer(seconds, load_events(data))
    except ValueError:
        pass
    return UNUSABLE


class CacheStore(ABC):
    """A store of complete answers by cache key."""

    @abstractmethod
    async def get(self, key: bytes) -> StoredAnswer | None:
        """Return the answer for a key, or None if the store has no such answer. Raises ``StoreFailed``."""

    @abstractmethod
    async def put(
        self, key: bytes, answer: StoredAnswer, ttl: float, kept: float = 0.0, *, replace: bool = False
    ) -> None:
        """Store an answer, and return when a look-up will find it, or after ``LOOK_UP_SECONDS``.

        ``ttl``: the seconds for which the answer may be used. An answer of the key that is not older than its ``ttl``
        stays in place of the new one, except if ``replace``. An answer that cannot be written is dropped.
        ``kept``: the seconds for which a look-up may find the answer, if that is longer than ``ttl``.
        """

    @abstractmethod
    def resize(self, max_size: int) -> None:
        """Use another limit of the size in bytes, if this store has one."""

    @abstractmethod
    async def aclose(self) -> None:
        """Write the waiting answers, and release connections and files."""


class SqliteStore(CacheStore):
    """A store of at most ``max_size`` bytes in an SQLite database, which one thread reads and writes.

    All processes of this machine can share the database of a file. The oldest answers are removed first.
    """

    def __init__(self, path: Path | None, max_size: int) -> None:
        """``path``: None for a database in the memory of this process."""
        self.max_size = max_size
        self._path = path
        self._database: sqlite3.Connection | None = None
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
        except (sqlite3.Error, OSError) as error:  # ``TimeoutError`` is an ``OSError``
            self._warn(error)
            raise StoreFailed from error

    async def put(
        self, key: bytes, answer: StoredAnswer, ttl: float, kept: float = 0.0, *, replace: bool = False
    ) -> None:
        """Store an answer, for as long as there is room. See ``CacheStore.put``."""
        if self._given - self._done >= MAX_WAITING_ANSWERS:
            return
        loop, oldest = asyncio.get_running_loop(), math.inf if replace else answer.created - ttl
        try:
            written = loop.run_in_executor(self._thread, self._put, key, answer, oldest)
        except RuntimeError:  # closed: the process ends
            return
        self._given += 1
        await asyncio.wait([written], timeout=LOOK_UP_SECONDS)

    def resize(self, max_size: int) -> None:
        """Use another limit from the next answer on."""
        self.max_size = max_size

    async def aclose(self) -> None:
        """Write the waiting answers, and close the store. See ``CacheStore.aclose``."""
        self._thread.submit(self._release)
        await asyncio.to_thread(self._thread.shutdown)

    def _get(self, key: bytes) -> StoredAnswer | None:
        found = self._read(key)
        self._failing = False
        return None if found is None else read_answer(*found)

    def _put(self, key: bytes, answer: StoredAnswer, oldest: float) -> None:
        try:
            data = dump_json(named_events(answer.events)).encode("ascii")
            if len(data) <= MAX_VALUE:
                self._write(key, answer.created, data, oldest)
        except Exception as error:  # the thread must go on, also after a value that cannot be written
            self._warn(error)
        finally:
            self._done += 1

    def _warn(self, error: Exception) -> None:
        """Log a failure if no failure has been logged since the last successful look-up."""
        if not self._failing:
            LOG.warning("the cache cannot be read or written: %s", error or type(error).__name__)
        self._failing = True

    def _read(self, key: bytes) -> tuple[float, bytes] | None:
        """Return the time and the bytes of an answer, or None if the store does not have the key."""
        # SQLite stores a value of any type in any column; the casts give the types of the answer.
        query = "SELECT CAST(created AS REAL), CAST(events AS BLOB) FROM answers WHERE key = ?"
        found: tuple[float, bytes] | None = self._open().execute(query, (key,)).fetchone()
        return found

    def _write(self, key: bytes, created: float, data: bytes, oldest: float) -> None:
        """Store an answer, unless the store has one for the key that was made at ``oldest`` or later.

        The oldest answers are removed while the store is too large.
        """
        database = self._open()
        with database:
            # An infinite time, which no gateway writes, is replaced too.
            replaced = "DELETE FROM answers WHERE key = ? AND CAST(created AS REAL) NOT BETWEEN ? AND 1e308"
            database.execute(replaced, (key, oldest))
            database.execute(
                "INSERT OR IGNORE INTO answers (key, created, events) VALUES (?, ?, ?)", (key, created, data)
            )
            first = "DELETE FROM answers WHERE id = (SELECT min(id) FROM answers)"
            while used_bytes(database) > self.max_size and database.execute(first).rowcount:
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
