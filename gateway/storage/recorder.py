"""Writes recordings of calls to an SQLite file, in one thread.

A call never waits for the file. At most ``MAX_WAITING`` recordings with ``MAX_WAITING_SIZE`` characters in total wait
to be written. Recordings above this limit, and recordings that cannot be written, are dropped and counted
(``docs/spec/reliability.md`` rows G01, G02, H04, H05, H08).
Each call is written in one transaction, so a killed process never leaves a partial recording.
"""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from gateway.config.snapshot import RecordingsSpec
from gateway.core.events import Delta, Event, delta_size
from gateway.core.exchange import Exchange, RecordedExchange
from gateway.storage.sqlite_file import open_database, used_bytes
from gateway.telemetry.record import Record
from gateway.version import VERSION
from gateway.wire.redaction import NOTHING, Redaction, RedactionTimeout, Redactor
from gateway.wire.stored_events import dump_json, named_events

LOG = logging.getLogger("gateway.recordings")

BUSY_SECONDS = 5.0
"""The maximum time in seconds to wait while another process writes to the file."""
MAX_WAITING = 4096
MAX_WAITING_SIZE = 64 * 1024 * 1024

# fmt: off
CALL_COLUMNS = {
    "time": "REAL", "request_id": "TEXT", "endpoint": "TEXT", "model": "TEXT", "key": "TEXT", "policy": "TEXT",
    "template": "TEXT", "mode": "TEXT", "stream": "INTEGER", "outcome": "TEXT", "status": "INTEGER", "duration": "REAL",
    "first_token": "REAL", "target": "TEXT", "attempts": "INTEGER", "failed_attempts": "TEXT", "cache": "TEXT",
    "prompt_tokens": "INTEGER", "completion_tokens": "INTEGER", "usage_source": "TEXT", "version": "TEXT",
}
EXCHANGE_COLUMNS = {
    "call": "INTEGER", "time": "REAL", "endpoint": "TEXT", "prompt_sha256": "TEXT", "prompts": "TEXT",
    "messages": "TEXT", "params": "TEXT", "seed": "INTEGER", "n": "INTEGER", "stops": "TEXT", "stop_token_ids": "TEXT",
    "bos": "TEXT", "bos_text": "TEXT", "stream": "INTEGER", "repeat": "INTEGER", "events": "TEXT",
    "answer_sha256": "TEXT", "redacted": "INTEGER",
}
# fmt: on
"""Column → SQL type. ``docs/recordings.md`` describes the columns."""


def _table(name: str, columns: Mapping[str, str]) -> str:
    rows = ", ".join(f"{column} {kind}" for column, kind in columns.items())
    return f"CREATE TABLE IF NOT EXISTS {name} (id INTEGER PRIMARY KEY, {rows});"


SCHEMA_VERSION = 1
"""The version of the tables. It must change when the tables change."""
SCHEMA = (
    _table("calls", CALL_COLUMNS)
    + _table("exchanges", EXCHANGE_COLUMNS)
    + "CREATE INDEX IF NOT EXISTS exchanges_of_call ON exchanges (call);"
    "CREATE INDEX IF NOT EXISTS calls_by_time ON calls (time);"
    "CREATE TRIGGER IF NOT EXISTS exchanges_end AFTER DELETE ON calls"
    " BEGIN DELETE FROM exchanges WHERE call = old.id; END;"
)


@dataclass(eq=False, slots=True)
class CallRecording:
    """A running call that will be recorded."""

    recorder: Recorder
    mode: Literal["metadata", "full"]
    policy: str
    spec: RecordingsSpec
    redactor: Redactor
    exchanges: list[RecordedExchange] = field(default_factory=list)

    def end(self, record: Record) -> None:
        """Write the recording in the background."""
        self.recorder.write(self, record)


class Recorder:
    """Writes recordings to one file, in its own thread. Other threads call only ``begin``, ``write`` and ``close``."""

    def __init__(
        self,
        path: Path,
        dropped: Callable[[str], None],
        now: Callable[[], float] = time.time,
    ) -> None:
        """``dropped``: called with the reason for each recording that is dropped.

        ``now``: returns the seconds since the epoch.
        """
        self._path = path
        self._dropped = dropped
        self._now = now
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="recordings")
        self._database: sqlite3.Connection | None = None
        self._given, self._given_size = 0, 0
        """The number of recordings given to the thread, and their characters. Only ``write`` changes these numbers."""
        self._done, self._done_size = 0, 0
        """The recordings that the thread has written or dropped, and their characters. Only the thread changes them."""
        self._failing = False

    def begin(
        self,
        mode: Literal["metadata", "full"],
        policy: str,
        spec: RecordingsSpec,
        redactor: Redactor = NOTHING,
    ) -> CallRecording:
        """Return a new recording for a call that begins. ``spec`` and ``redactor`` belong to its configuration."""
        return CallRecording(recorder=self, mode=mode, policy=policy, spec=spec, redactor=redactor)

    def write(self, call: CallRecording, record: Record) -> None:
        """Write a finished call in the background. The recording is dropped if too many recordings wait."""
        size = sum(map(_size, call.exchanges))
        waiting, waiting_size = self._given - self._done, self._given_size - self._done_size
        if waiting >= MAX_WAITING or waiting_size + size > MAX_WAITING_SIZE:
            self._dropped("queue_full")
            return
        try:
            self._thread.submit(self._write, call, record, self._now() - record.duration, size)
        except RuntimeError:  # closed: the process ends
            self._dropped("failed")
            return
        self._given += 1
        self._given_size += size

    def close(self) -> None:
        """Write the waiting recordings, and close the file. Blocks the calling thread."""
        self._thread.submit(self._release)
        self._thread.shutdown()

    def _write(self, call: CallRecording, record: Record, started: float, size: int) -> None:
        try:
            if self._database is None:
                self._database = open_database(self._path, SCHEMA, SCHEMA_VERSION, BUSY_SECONDS)
            with self._database:
                mode, rows = self._exchange_rows(call, record.request_id)
                number = _insert(self._database, "calls", _call_row(call, mode, record, started))
                for row in rows:
                    _insert(self._database, "exchanges", {"call": number, **row})
                self._remove_old(self._database, call.spec)
            self._failing = False
        except Exception as error:  # the thread must go on
            full = isinstance(error, sqlite3.Error) and getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_FULL
            self._dropped("disk_full" if full else "failed")
            if not self._failing:
                LOG.error("recordings are dropped, because %s cannot be written: %s", self._path.name, error)
            self._failing = True
        finally:
            self._done += 1
            self._done_size += size

    def _exchange_rows(self, call: CallRecording, request_id: str) -> tuple[str, list[dict[str, Any]]]:
        """Return the mode and the rows of a call.

        If the redaction of the texts takes too long, the mode is ``metadata``, and the rows contain no texts.
        """
        if call.mode == "full" and not call.redactor:
            return "full", [_exchange_row(one, None, full=True) for one in call.exchanges]
        if call.mode == "full":
            redaction, rows = call.redactor.begin(), []
            try:
                for one in call.exchanges:
                    before = redaction.found
                    clean = _redacted(one, redaction)
                    rows.append(_exchange_row(clean, redaction.found - before, full=True))
            except RedactionTimeout:
                LOG.warning(
                    "call %s is recorded without texts (as metadata), because the patterns of redact took too long",
                    request_id,
                )
            else:
                return "full", rows
        return "metadata", [_exchange_row(one, None, full=False) for one in call.exchanges]

    def _remove_old(self, database: sqlite3.Connection, spec: RecordingsSpec) -> None:
        """Remove the recordings that are too old. While the file is too large, also remove the oldest recordings."""
        database.execute("DELETE FROM calls WHERE time < ?", (self._now() - spec.retention,))
        oldest = "DELETE FROM calls WHERE id = (SELECT min(id) FROM calls)"
        while used_bytes(database) > spec.max_size and database.execute(oldest).rowcount:
            pass

    def _release(self) -> None:
        if self._database is not None:
            self._database.close()


def _insert(database: sqlite3.Connection, table: str, row: Mapping[str, Any]) -> int | None:
    marks = ", ".join("?" * len(row))
    done = database.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", tuple(row.values()))
    return done.lastrowid


def _call_row(call: CallRecording, mode: str, record: Record, started: float) -> dict[str, Any]:
    own = {
        "time": started, "policy": call.policy, "mode": mode, "version": VERSION,
        "failed_attempts": dump_json(record.failed_attempts),
    }  # fmt: skip
    return {name: own[name] if name in own else getattr(record, name) for name in CALL_COLUMNS}


def _redacted(one: RecordedExchange, redaction: Redaction) -> RecordedExchange:
    """Return the exchange with all matches replaced, and without token ids. Raises ``RedactionTimeout``."""
    exchange = one.exchange
    clean = replace(
        exchange,
        prompts=tuple(redaction.value(exchange.prompts)),
        messages=tuple(redaction.value(exchange.messages)),
        params=redaction.value(exchange.params),
        stops=tuple(redaction.value(exchange.stops)),
    )
    events = redaction.events([event for _, event in one.moments])
    return RecordedExchange(clean, one.time, [(at, event) for (at, _), event in zip(one.moments, events, strict=True)])


def _exchange_row(one: RecordedExchange, redacted: int | None, *, full: bool) -> dict[str, Any]:
    """Return the columns of an exchange. ``full``: if False, hashes replace the texts, and sizes replace the events.

    ``redacted``: the number of replaced texts, or None if no pattern was applied.
    """
    exchange = one.exchange
    prompt = dump_json(exchange.prompts or exchange.messages or exchange.params.get("input"))
    seed = exchange.params.get("seed")
    answer = "".join([event.text for _, event in one.moments if isinstance(event, Delta)])
    hashed: Callable[[Any], str] = dump_json if full else lambda value: _sha256(dump_json(value))
    params = exchange.params if full else {
        name: value if isinstance(value, bool | int | float | None) else f"sha256:{hashed(value)}"
        for name, value in exchange.params.items()
    }  # fmt: skip
    return {
        "time": one.time,
        "endpoint": exchange.endpoint,
        "prompt_sha256": _sha256(_prompt_text(exchange, prompt)),
        "prompts": dump_json(exchange.prompts) if full else None,
        "messages": dump_json(exchange.messages) if full else None,
        "params": dump_json(params),
        "seed": seed if isinstance(seed, int) and -(2**63) <= seed < 2**63 else None,
        "n": exchange.n,
        "stops": hashed(exchange.stops),
        "stop_token_ids": dump_json(exchange.stop_token_ids),
        "bos": exchange.bos,
        "bos_text": exchange.bos_text if full else None,
        "stream": exchange.stream,
        "repeat": exchange.repeat,
        "events": dump_json([[round(at, 6), *_event(event, full=full)] for at, event in one.moments]),
        "answer_sha256": _sha256(answer),
        "redacted": redacted,
    }


def _event(event: Event, *, full: bool) -> tuple[str, Any]:
    """Return the type and the fields of an event. ``full``: if False, only the number of characters of a ``Delta``."""
    if full:
        return named_events([event])[0]
    return type(event).__name__, len(event.text) if isinstance(event, Delta) else None


def _prompt_text(exchange: Exchange, prompt: str) -> str:
    """Return the text whose hash is recorded: the prompt itself if it is one string, otherwise the JSON ``prompt``."""
    single = exchange.prompts[0] if len(exchange.prompts) == 1 else None
    return single if isinstance(single, str) else prompt


def _sha256(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _size(one: RecordedExchange) -> int:
    exchange = one.exchange
    pieces = [delta_size(event) for _, event in one.moments if isinstance(event, Delta)]
    return sum(map(len, exchange.prompts)) + sum(len(str(message)) for message in exchange.messages) + sum(pieces)
