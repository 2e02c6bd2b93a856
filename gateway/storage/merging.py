"""Merges recordings: each call once, in the order in which the calls ended."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing
from heapq import merge
from pathlib import Path
from typing import Any

from gateway.core.errors import InvalidValue
from gateway.storage.recorder import SCHEMA, SCHEMA_VERSION, insert
from gateway.storage.recordings import RecordedRow, RecordingFile, open_recording
from gateway.storage.sqlite_file import close_database, open_database

WRITE_SECONDS = 5.0
"""The maximum time in seconds to wait while another process writes to the file."""
StoredCall = tuple[dict[str, Any], list[dict[str, Any]]]
"""A row of ``calls`` as it is stored, and its rows of ``exchanges``: column → value."""


def stored_calls(file: RecordingFile) -> Iterator[StoredCall]:
    """Yield the calls of a file in the order in which they were written. Raises ``InvalidValue`` with its path."""
    try:
        for call in file.execute("SELECT * FROM calls ORDER BY id"):
            yield _values(call, "id"), [_values(one, "id", "call") for one in file.exchanges_of(call["id"])]
    except sqlite3.Error as error:
        raise InvalidValue(f"{file.path}: {error}") from None


def _values(row: RecordedRow, *numbers: str) -> dict[str, Any]:
    """Return the columns of a row without its numbers, which another file does not share."""
    return {name: value for name, value in zip(row.keys(), row, strict=True) if name not in numbers}


def open_to_add(path: Path) -> sqlite3.Connection:
    """Open or create a file of recordings for ``add_calls``. Raises ``OSError`` or ``sqlite3.Error``."""
    return open_database(path, SCHEMA, SCHEMA_VERSION, WRITE_SECONDS)


def add_calls(database: sqlite3.Connection, calls: Iterable[StoredCall]) -> int:
    """Add the calls that a file does not have, in one transaction. Return the ``id`` of the last one.

    Two calls are the same if their request id and their start are equal: a client may send one id several times.
    """
    with database:
        database.execute("BEGIN IMMEDIATE")
        (number,) = database.execute("SELECT coalesce(max(id), 0) FROM calls").fetchone()
        known = "SELECT 1 FROM calls WHERE request_id = ? AND time = ?"
        for call, exchanges in calls:
            if database.execute(known, (call["request_id"], call["time"])).fetchone() is None:
                number += 1
                insert(database, "calls", "id", [(number, call)])
                insert(database, "exchanges", "call", [(number, one) for one in exchanges])
        return int(number)


Watch = Callable[[Iterator[StoredCall]], AbstractContextManager[Iterable[StoredCall]]]
"""Returns a progress bar over calls."""


def _last_write(out: Path) -> int:
    """Return when a file was written last, in nanoseconds; 0 without a file. Raises ``InvalidValue`` if it is open."""
    if Path(f"{out}-wal").exists():  # a new file would be read with the writes that wait for the old one
        raise InvalidValue(f"{out} is open in another process, or was not closed; merge into a new file")
    return out.stat().st_mtime_ns if out.exists() else 0


def merge_recordings(out: Path, sources: Sequence[Path], watch: Watch) -> int:
    """Write the calls of all sources to a file, which is replaced in one step. Return their number.

    ``out`` may be a source. Raises ``InvalidValue``, which names the file.
    """
    draft, began = out.with_name(f"{out.name}.partial"), _last_write(out)
    with ExitStack() as files:
        opened = [files.enter_context(closing(open_recording(path))) for path in sources]
        files.callback(draft.unlink, missing_ok=True)
        try:
            draft.unlink(missing_ok=True)
            database = files.enter_context(closing(open_to_add(draft)))
            calls = merge(*map(stored_calls, opened), key=lambda one: one[0]["time"] + one[0]["duration"])
            number = add_calls(database, files.enter_context(watch(calls)))
            close_database(database)
            if _last_write(out) != began:
                raise InvalidValue(f"{out} was written by another process meanwhile; merge into a new file")
            draft.replace(out)
        except (sqlite3.Error, OSError) as error:
            raise InvalidValue(f"{out} cannot be written: {getattr(error, 'strerror', None) or error}") from None
    return number
