"""Opens an SQLite file that several processes of this machine may write, each in one thread."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path


def open_database(path: Path, schema: str, version: int, busy_seconds: float) -> sqlite3.Connection:
    """Open or create a file that only this user may read (mode 0600), in WAL mode, and create its tables.

    ``version``: the version of the tables. ``busy_seconds``: how long a write waits for the writes of other processes.
    Raises ``OSError`` or ``sqlite3.Error`` if the file cannot be opened or has tables of another version.
    """
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))  # SQLite gives its other files the mode of this one
    database = sqlite3.connect(path, timeout=busy_seconds)
    try:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = NORMAL")
        found: int = database.execute("PRAGMA user_version").fetchone()[0]
        if found != version and database.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]:
            raise sqlite3.DatabaseError("the file has the tables of another version; move the file away")
        # The version is set first: another process that opens the file meanwhile never finds tables without it.
        database.executescript(f"PRAGMA user_version = {version}; {schema}")
    except sqlite3.Error:
        database.close()
        raise
    return database


def used_bytes(database: sqlite3.Connection) -> int:
    """Return the number of bytes in the file that contain data."""
    pages, free, size = [
        database.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
    ]
    return int((pages - free) * size)
