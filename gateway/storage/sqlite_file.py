"""Opens an SQLite file that several processes of this machine may write, each in one thread."""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import closing
from pathlib import Path

COLUMNS = "SELECT t.name, c.name, c.type FROM sqlite_schema AS t, pragma_table_info(t.name) AS c WHERE t.type = 'table'"
"""The columns of all tables, as (table, column, type)."""


def open_database(path: Path | None, schema: str, version: int, busy_seconds: float) -> sqlite3.Connection:
    """Open or create a file that only this user may read (mode 0600), in WAL mode, and create its tables.

    A file that an earlier version of the schema has made gets the columns and indexes that it does not have.
    ``path``: None for a database in memory. ``version``: the version of the tables. ``busy_seconds``: how long a write
    waits for the writes of other processes.
    Raises ``OSError`` or ``sqlite3.Error`` if the file cannot be opened or has tables of another version.
    """
    if path is not None:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))  # SQLite gives its other files the mode of this one
    database = sqlite3.connect(path or ":memory:", timeout=busy_seconds)
    try:
        # One statement reads both values, and one transaction writes both: other processes may create the same file.
        both = "SELECT user_version, (SELECT count(*) FROM sqlite_schema) FROM pragma_user_version"
        found, tables = database.execute(both).fetchone()
        if tables and found != version:
            raise sqlite3.DatabaseError("the file has the tables of another version; move the file away")
        _use_wal(database, busy_seconds)
        database.execute("PRAGMA synchronous = NORMAL")
        if tables:
            _add_columns(database, schema)
        database.executescript(f"BEGIN IMMEDIATE; PRAGMA user_version = {version}; {schema}; COMMIT")
    except sqlite3.Error:
        database.close()
        raise
    return database


def _add_columns(database: sqlite3.Connection, schema: str) -> None:
    """Add the columns of a schema that its tables in the file do not have."""
    with closing(sqlite3.connect(":memory:")) as new:
        new.executescript(schema)
        wanted = new.execute(COLUMNS).fetchall()
    with database:
        database.execute("BEGIN IMMEDIATE")  # no other process adds the same columns
        known = set(database.execute(COLUMNS))
        for table, name, kind in wanted:
            if (table, name, kind) not in known:
                database.execute(f"ALTER TABLE {table} ADD COLUMN {name} {kind}")


def close_database(database: sqlite3.Connection, *, vacuum: bool = False) -> bool:
    """Close a file. The last process that closes it leaves WAL mode, so that one file has everything.

    Such a file can be copied, and read in a folder that only others may write. ``vacuum``: also give its free space
    back to the file system. Returns whether this was the last process.
    """
    try:
        database.execute("PRAGMA busy_timeout = 0")
        database.execute("PRAGMA journal_mode = DELETE")
        if vacuum:
            database.execute("VACUUM")
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:  # busy: another process has the file open
            raise
        return False
    finally:
        database.close()
    return True


def _use_wal(database: sqlite3.Connection, busy_seconds: float) -> None:
    """Switch to WAL mode. SQLite does not wait in this statement while another process switches the same file."""
    end = time.monotonic() + busy_seconds
    while True:
        try:
            database.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() >= end:
                raise
        time.sleep(0.005)


def used_bytes(database: sqlite3.Connection) -> int:
    """Return the number of bytes in the file that contain data."""
    pages, free, size = [
        database.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
    ]
    return int((pages - free) * size)
