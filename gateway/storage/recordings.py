"""Reads a file of recordings, which ``Recorder`` has written: the requests to the models, and their events."""

from __future__ import annotations

import json
import sqlite3
import time
from pathlib import Path
from typing import Any

from gateway.core.errors import InvalidValue
from gateway.core.events import Event
from gateway.core.exchange import Exchange
from gateway.wire.inlined_file import without_files
from gateway.wire.request_fields import HINTS
from gateway.wire.stored_events import make_events

VERSIONS = (1, 2)
STEPS = 100_000
"""The number of SQLite's steps, some milliseconds, between two looks at the time."""
NOT_A_DATABASE = "; give a file of recordings, such as a.recording.sqlite beside the output a.jsonl of a run"
"""The remedy for a file that SQLite cannot read."""


def open_recording(path: Path, busy_seconds: float = 5.0, read_seconds: float | None = None) -> sqlite3.Connection:
    """Open a file of recordings for reading. Rows have names. Raises ``InvalidValue`` for another file.

    ``busy_seconds``: how long a statement waits while another process has locked the file. ``read_seconds``: the time
    from now after which statements are interrupted, which is an ``OperationalError``; see ``is_interrupted``.
    """
    try:
        database = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", busy_seconds, uri=True)
    except sqlite3.Error as error:
        raise InvalidValue(f"{path}: {error}") from None
    database.row_factory = sqlite3.Row
    try:
        (version,) = database.execute("PRAGMA user_version").fetchone()
        tables = {name for (name,) in database.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    except sqlite3.Error as error:
        database.close()
        hint = NOT_A_DATABASE if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_NOTADB else ""
        raise InvalidValue(f"{path}: {error}{hint}") from None
    if version not in VERSIONS or not {"calls", "exchanges"} <= tables:
        database.close()
        raise InvalidValue(f"{path}: this file has no recordings of the gateway")
    if read_seconds is not None:
        end = time.monotonic() + read_seconds
        database.set_progress_handler(lambda: time.monotonic() > end, STEPS)
    return database


def is_interrupted(error: Exception) -> bool:
    """Return whether reading ended because it took longer than ``read_seconds`` of ``open_recording``."""
    return getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_INTERRUPT


def exchange_of(row: sqlite3.Row) -> Exchange:
    """Return the request of a row of ``exchanges`` that was recorded with its texts. Raises ``ValueError``."""
    return Exchange(
        endpoint=row["endpoint"],
        request_id="",
        prompts=tuple([one if isinstance(one, str) else tuple(one) for one in json.loads(row["prompts"])]),
        messages=tuple(json.loads(row["messages"])),
        params=json.loads(row["params"]),
        n=row["n"],
        stops=tuple(json.loads(row["stops"])),
        stop_token_ids=tuple(json.loads(row["stop_token_ids"])),
        stream=bool(row["stream"]),
        bos=row["bos"],
        bos_text=row["bos_text"],
        repeat=row["repeat"],
    )


def moments_of(row: sqlite3.Row) -> list[tuple[float, Event]]:
    """Return the events of a row of ``exchanges``, each with the seconds since the exchange was opened.

    Raises ``ValueError``, ``TypeError`` or ``KeyError`` if the gateway has not written the events.
    """
    moments = json.loads(row["events"])
    events = make_events([(name, fields) for _, name, fields in moments])
    return [(moment[0], event) for moment, event in zip(moments, events, strict=True)]


def reason_not_replayable(exchange: sqlite3.Row) -> str:
    """Return why a row of ``exchanges`` is not the whole request and answer, or an empty text.

    While ``redact`` is set, token ids are not recorded, even if no text is replaced.
    """
    if exchange["prompts"] is None:
        return "recorded as metadata, without texts"
    return "redacted, without token ids" if exchange["redacted"] is not None else ""


def request_facts(exchange: Exchange) -> dict[str, Any]:
    """Return everything that decides about an answer, by name: parameters, prompt, stops, ``n`` and ``repeat``.

    Hints are left out.

    As JSON, the facts of a recorded request equal those of the same request.
    """
    return {
        **{name: value for name, value in exchange.params.items() if name not in HINTS},
        "endpoint": exchange.endpoint, "prompt": exchange.prompts, "messages": without_files(exchange.messages),
        "n": exchange.n, "stop": exchange.stops, "stop_token_ids of the template": exchange.stop_token_ids,
        "bos": exchange.bos, "bos_text": exchange.bos_text, "gateway.repeat": exchange.repeat,
    }  # fmt: skip
