"""Reads a file of recordings, which ``Recorder`` has written: the requests to the models, and their events."""

from __future__ import annotations

import json
import re
import sqlite3
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gateway.core.errors import InvalidValue
from gateway.core.exchange import Exchange
from gateway.storage.recorder import SCHEMA, SCHEMA_VERSION
from gateway.wire.inlined_file import without_files
from gateway.wire.request_fields import HINTS
from gateway.wire.stored_events import make_events
from metatemplate.values.events import Event

STEPS = 100_000
"""The number of SQLite's steps, some milliseconds, between two looks at the time."""
MAX_VALUES = 100
"""The maximum number of values among which the one that was meant is looked for."""
FIRST_BYTES = b"SQLite format 3\0"
JSON_COLUMNS = frozenset(re.findall(r"(\w+) TEXT,?  -- JSON", SCHEMA))
"""The columns whose text is JSON, in calls of the mode ``full``."""
NOT_A_DATABASE = "; give a file of recordings, such as a.recording.sqlite beside the output a.jsonl of a run"
"""The remedy for a file that SQLite cannot read."""


class RecordedRow(sqlite3.Row):
    """One row of a file of recordings. A column with JSON is parsed by its name; a hash in its place is kept."""

    def __getitem__(self, name: Any) -> Any:
        value = super().__getitem__(name)
        is_json = name in JSON_COLUMNS and isinstance(value, str) and value[:1] in ("[", "{")
        return json.loads(value) if is_json else value

    def get(self, name: str) -> Any:
        """Return the value of a column, parsed. None also for a column that the file of an earlier gateway lacks."""
        return self[name] if name in self.keys() else None

    def text(self, name: str) -> str | None:
        """Return the JSON of a column as it is in the file."""
        found: str | None = super().__getitem__(name)
        return found


class RecordingFile(sqlite3.Connection):
    """A file of recordings, opened for reading by ``open_recording``. Its rows are ``RecordedRow``."""

    path: Path
    left_out = 0
    """The number of calls that were left out because their answers are not recorded."""

    def columns(self, table: str) -> list[str]:
        """Return the names of the columns of a table."""
        return [name for (name,) in self.execute("SELECT name FROM pragma_table_info(?)", (table,))]

    def find_calls(
        self,
        filters: Mapping[str, str],
        *,
        failed: bool = False,
        last: int,
        before: int | None = None,
        after: int | None = None,
        columns: str = "*",
    ) -> list[RecordedRow]:
        """Return the calls that match all ``filters`` (a name in ``CALL_FILTERS`` → its value), the latest first.

        ``failed``: only calls without an answer. ``last``: the maximum number of calls. ``before``: the ``id`` of a
        call; only calls that began before it, and none if this call is not there or belongs to another client than
        ``OWNER``. ``after``: the same for the calls that began after it, the earliest first. ``columns``: in SQL.
        """
        query, values = calls_query(filters, failed=failed, before=before, after=after, columns=columns)
        return self.execute(f"{query} LIMIT ?", (*values, last)).fetchall()

    def known_values(self, name: str) -> list[str]:
        """Return the values of a filter's column in all calls: at most ``MAX_VALUES``, and none that are empty.

        An index of the column finds each value after the one before. ``DISTINCT`` would read the entries of all calls.
        """
        column = CALL_FILTERS[name].column
        least = f"SELECT min({column}) FROM calls WHERE {column} >"
        values = f"{least} '' UNION ALL SELECT ({least} value) FROM known WHERE value IS NOT NULL"
        query = f"WITH RECURSIVE known(value) AS ({values}) SELECT value FROM known WHERE value IS NOT NULL LIMIT ?"
        return [str(value) for (value,) in self.execute(query, (MAX_VALUES,))]

    def exchanges_of(self, call: int, columns: str = "*") -> list[RecordedRow]:
        """Return the exchanges of a call, in order. ``call``: its number, the column ``id``."""
        return self.execute(f"SELECT {columns} FROM exchanges WHERE call = ? ORDER BY id", (call,)).fetchall()

    def runs(self, key: str | None, start: int, count: int) -> list[RecordedRow]:
        """Return the ``key``, ``run``, ``calls``, and the times ``first`` and ``last`` of runs, the latest run first.

        ``first``: when the first call began; ``last``: when the last one ended. ``key``: only the runs of the client
        key with this name. ``start``, ``count``: which of the runs.
        """
        own = "" if key is None else " AND key = ?"
        listed = (  # The index of the runs has all these columns.
            "SELECT key, run, count(*) AS calls, min(id) AS one, max(id) AS other FROM calls"
            f" INDEXED BY calls_by_run WHERE run > ''{own} GROUP BY run, key ORDER BY other DESC LIMIT ? OFFSET ?"
        )
        times = (
            "(SELECT time FROM calls WHERE id = one) AS first,"
            " (SELECT time + duration FROM calls WHERE id = other) AS last"
        )
        values = (*([] if key is None else [key]), count, start)
        return self.execute(f"SELECT key, run, calls, {times} FROM ({listed})", values).fetchall()

    def keys_of(self, run: str) -> list[str]:
        """Return the names of the client keys that have a run with this name."""
        return [key for (key,) in self.execute("SELECT DISTINCT key FROM calls WHERE run = ? ORDER BY 1", (run,))]

    def state_of(self, run: str, key: str) -> tuple[int, ...]:
        """Return values that change whenever the calls of a run change: their number, the first and the last one."""
        query = "SELECT count(*), coalesce(min(id), 0), coalesce(max(id), 0) FROM calls WHERE run = ? AND key = ?"
        return tuple(self.execute(query, (run, key)).fetchone())


def open_recording(path: Path, busy_seconds: float = 5.0, read_seconds: float | None = None) -> RecordingFile:
    """Open a file of recordings for reading. Raises ``InvalidValue`` for another file.

    ``busy_seconds``: how long a statement waits while another process has locked the file. ``read_seconds``: the time
    from now after which statements are interrupted, which is an ``OperationalError``; see ``is_interrupted``.
    """
    try:
        uri = f"{path.absolute().as_uri()}?mode=ro"
        file = sqlite3.connect(uri, busy_seconds, uri=True, factory=RecordingFile)
    except sqlite3.Error as error:
        raise InvalidValue(f"{path}: {error}") from None
    file.path, file.row_factory = path, RecordedRow
    try:
        (version,) = file.execute("PRAGMA user_version").fetchone()
        tables = {name for (name,) in file.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    except sqlite3.Error as error:
        file.close()
        hint = NOT_A_DATABASE if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_NOTADB else ""
        raise InvalidValue(f"{path}: {error}{hint}") from None
    if version != SCHEMA_VERSION or not {"calls", "exchanges"} <= tables:
        file.close()
        other = (
            f"recordings of version {version}, and this gateway reads version {SCHEMA_VERSION}; record again, or move "
            "the file away to read the output beside it alone"
        )
        found = "no recordings of the gateway" if version == SCHEMA_VERSION or "calls" not in tables else other
        raise InvalidValue(f"{path}: this file has {found}")
    if read_seconds is not None:
        end = time.monotonic() + read_seconds
        file.set_progress_handler(lambda: time.monotonic() > end, STEPS)
    return file


def is_interrupted(error: Exception) -> bool:
    """Return whether reading ended because it took longer than ``read_seconds`` of ``open_recording``."""
    return getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_INTERRUPT


@dataclass(frozen=True, slots=True)
class CallFilter:
    """A condition for calls: the column that it reads, the condition in SQL, and the index that finds the calls."""

    column: str
    condition: str
    index: str


OWNER = "owner"
"""The filter of a visitor who may see the calls of one client key only."""
CALL_FILTERS = {
    "id": CallFilter("id", "calls.id = ?", ""),
    "request_id": CallFilter("request_id", "request_id = ?", "calls_by_request"),
    OWNER: CallFilter("key", "key = ?", "calls_by_key"),
    "run": CallFilter("run", "run = ?", "calls_of_run"),
    "cut": CallFilter("answers_cut", "answers_cut != '[]' AND instr(answers_cut, '\"' || ? || '\"')", "calls_cut"),
    "notice": CallFilter("notices", "notices != '[]' AND instr(notices, '\"' || ?)", "calls_noticed"),
    "outcome": CallFilter("outcome", "outcome = ?", "calls_by_outcome"),
    "key": CallFilter("key", "key = ?", "calls_by_key"),
    "model": CallFilter("model", "model = ?", "calls_by_model"),
}
"""The conditions of a list of calls, by name. The index of the first one given is used: probably it finds the fewest.

The index of ``OWNER`` comes before those of most filters, so a visitor's list does not read the calls of other keys.
``notice`` is the beginning of a notice, such as its rule.
"""


def is_recording(path: Path) -> bool:
    """Return whether a file is an SQLite database. Raises ``OSError`` if it cannot be read."""
    with path.open("rb") as file:
        return file.read(len(FIRST_BYTES)) == FIRST_BYTES


def calls_query(
    filters: Mapping[str, str],
    *,
    failed: bool = False,
    before: int | None = None,
    after: int | None = None,
    columns: str = "*",
) -> tuple[str, list[str | float]]:
    """Return the statement of ``RecordingFile.find_calls`` without its limit, and its values.

    One index finds the calls, in order.
    """
    used = {name: found for name, found in CALL_FILTERS.items() if name in filters}
    conditions = [found.condition for found in used.values()] + (["outcome != 'ok'"] if failed else [])
    values: list[str | float] = [filters[name] for name in used]
    place, than, order = (before, "<", "DESC") if after is None else (after, ">", "ASC")
    if place is not None:
        of_owner = " AND key = ?" if OWNER in filters else ""
        conditions.append(f"(time, calls.id) {than} (SELECT time, id FROM calls WHERE id = ?{of_owner})")
        values += [place, filters[OWNER]] if of_owner else [place]
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    index = next((found.index for found in used.values()), "calls_by_time")
    # SQLite does not know the values, and would prefer the index of the time to those of few calls.
    indexed = f" INDEXED BY {index}" if index else ""
    return f"SELECT {columns} FROM calls{indexed}{where} ORDER BY time {order}, id {order}", values


def readable_prompts(exchange: RecordedRow | Mapping[str, Any]) -> Sequence[Any]:
    """Return the prompts of a row of ``exchanges``. Of a rendered prompt that was sent as token ids: its text."""
    text = exchange.get("prompt_text")
    return [text] if text is not None else exchange["prompts"] or ()


def exchange_of(row: RecordedRow) -> Exchange:
    """Return the request of a row of ``exchanges`` that was recorded with its texts. Raises ``ValueError``."""
    values = {name: row[name] for name in ("endpoint", "params", "n", "bos", "bos_text", "repeat")}
    lists: dict[str, Any] = {name: tuple(row[name]) for name in ("messages", "stops", "stop_token_ids")}
    prompts = tuple([one if isinstance(one, str) else tuple(one) for one in row["prompts"]])
    return Exchange(request_id="", prompts=prompts, stream=bool(row["stream"]), **values, **lists)


def moments_of(row: RecordedRow) -> list[tuple[float, Event]]:
    """Return the events of a row of ``exchanges``, each with the seconds since the exchange was opened.

    Raises ``ValueError``, ``TypeError`` or ``KeyError`` if the gateway has not written the events.
    """
    moments = row["events"]
    events = make_events([(name, fields) for _, name, fields in moments])
    return [(moment[0], event) for moment, event in zip(moments, events, strict=True)]


def reason_not_replayable(exchange: RecordedRow) -> str:
    """Return why a row of ``exchanges`` is not the whole request and answer, or an empty text.

    While ``redact`` is set, token ids are not recorded, even if no text is replaced.
    """
    if exchange.text("prompts") is None:
        return "recorded as metadata, without texts"
    return "redacted, without token ids" if exchange["redacted"] is not None else ""


def request_facts(exchange: Exchange) -> dict[str, Any]:
    """Return everything that decides about an answer, by name: parameters, prompt, stops, ``n`` and ``repeat``.

    Hints are left out.

    As JSON, the facts of a recorded request equal those of the same request.
    """
    return {
        **{name: value for name, value in exchange.params.items() if name not in HINTS},
        "endpoint": exchange.endpoint,
        "prompt": exchange.prompts,
        "messages": without_files(exchange.messages),
        "n": exchange.n,
        "stop": exchange.stops,
        "stop_token_ids of the template": exchange.stop_token_ids,
        "bos": exchange.bos,
        "bos_text": exchange.bos_text,
        "gateway.repeat": exchange.repeat,
    }
