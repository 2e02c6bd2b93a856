"""Writes recordings of calls to an SQLite file, in one thread.

A call never waits for the file. At most ``max_waiting`` recordings with ``MAX_WAITING_SIZE`` characters in total wait
to be written. Recordings above this limit, and recordings that cannot be written, are dropped and counted
(``docs/spec/reliability.md`` rows G01, G02, H04, H05, H08). ``RecordingsSpec.keep_all`` switches this limit off.
The calls that end within ``BATCH_SECONDS`` are written in one transaction, so a killed process never leaves a partial
recording. A transaction for each call would take more time than the rest of a call.
"""

from __future__ import annotations

import json
import logging
import re
import sqlite3
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import field, fields, replace
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from threading import Event as ThreadEvent
from threading import Lock
from typing import Any, Literal

from gateway.config.snapshot import RecordingsSpec, TargetSpec
from gateway.core.call import Call
from gateway.core.exchange import Exchange, RecordedExchange, text_of_ids
from gateway.storage.sqlite_file import close_database, open_database, used_bytes
from gateway.stream.completion_builder import CompletionBuilder, fast_completion
from gateway.stream.loops import ENDED_BY_MODEL, is_looping
from gateway.telemetry.record import Record
from gateway.wire.json import dump_json, plain_value
from gateway.wire.redaction import NOTHING, Redaction, RedactionTimeout, Redactor
from gateway.wire.stored_events import fast_stored_json
from metatemplate.errors import MetaTemplateError
from metatemplate.values.events import Delta, Event, Finish, delta_size
from metatemplate.values.frozen import dataclass
from metatemplate.values.prompt import DeferredSegments
from metatemplate.version import VERSION

LOG = logging.getLogger("gateway.recordings")

BUSY_SECONDS = 5.0
"""The maximum time in seconds to wait while another process writes to the file."""
MAX_WAITING_SIZE = 64 * 1024 * 1024
BATCH_SECONDS = 0.05
"""The maximum time for which a transaction waits for further recordings."""
MAX_ERROR = 4096
"""The maximum number of characters of a recorded error."""
MAX_BATCH, MAX_BATCH_SIZE = 100, 8 * 1024 * 1024
"""The number of recordings, and of their characters, at which a transaction begins at once."""


SCHEMA_VERSION = 4
"""The version of the tables. It must change when they change by more than further columns and indexes."""
SCHEMA = files("gateway.storage").joinpath("recordings.sql").read_text(encoding="utf-8")
RECORD_COLUMNS = [one.name for one in fields(Record) if re.search(rf"^    {one.name} ", SCHEMA, re.MULTILINE)]
"""The columns of calls that are fields of the call's record."""


@dataclass(frozen=True, slots=True)
class CallFacts:
    """What is known about a call when it is admitted."""

    policy: str
    policy_sha256: str = ""
    template_sha256: str = ""
    run: str = ""
    """The client's name for the run. Empty: the call belongs to no run."""
    row: str = ""
    """The id of the row in the run. Empty: not known."""
    call: Call | None = None
    """The client's request, for its hash."""
    targets: Sequence[TargetSpec] = ()
    """The targets of the model."""


@dataclass(eq=False, slots=True)
class CallRecording:
    """A running call that will be recorded."""

    recorder: Recorder
    mode: Literal["metadata", "full"]
    facts: CallFacts
    spec: RecordingsSpec
    redactor: Redactor
    exchanges: list[RecordedExchange] = field(default_factory=list)
    dataset_prompt: str = ""
    """The name and hash of the dataset prompt. Empty: the request names no dataset prompt."""
    notices: list[str] = field(default_factory=list)
    """The notices of the preparation, and those of the delivery from the end of the call on."""

    def end(self, record: Record, notices: Sequence[str] = ()) -> None:
        """Write the recording in the background. ``notices``: those of the delivery."""
        self.notices += notices
        self.recorder.write(self, record)


_EndedCall = tuple[CallRecording, Record, Sequence[RecordedExchange], float]
"""A call that waits to be written, its record, its exchanges, and its start in seconds since the epoch."""
_Row = dict[str, Any]
"""A row of a table: column → value."""


@dataclass(eq=False, slots=True)
class _Batch:
    """The calls of one transaction."""

    calls: list[_EndedCall] = field(default_factory=list)
    size: int = 0
    complete: ThreadEvent = field(default_factory=ThreadEvent)


class Recorder:
    """Writes recordings to one file, in its own thread. The methods without ``_`` are for one other thread."""

    Facts = CallFacts
    """For a caller that must not import this module: an import in a function takes a microsecond of each call."""

    def __init__(
        self,
        path: Path,
        dropped: Callable[[str], None],
        now: Callable[[], float] = time.time,
        *,
        looping: Callable[[str], None] = lambda model: None,
        max_waiting: int = 4096,
    ) -> None:
        """``dropped``: called with the reason for each recording that is dropped.

        ``now``: returns the seconds since the epoch. ``looping``: called in the thread with the model of each recorded
        answer that ends in a loop. ``max_waiting``: the maximum number of recordings that wait to be written.
        """
        self._path = path
        self._dropped = dropped
        self._now = now
        self._looping = looping
        self._max_waiting = max_waiting
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="recordings")
        self._database: sqlite3.Connection | None = None
        self._lock = Lock()
        """Held while ``_batch`` or its calls change, and never while the file is read or written."""
        self._batch: _Batch | None = None
        """The batch to which the next call is added. None: the next call begins a batch."""
        self.written = Future[None]()
        """A future that ends when all recordings given so far have been written or dropped. Do not cancel it."""
        self.written.set_result(None)
        self._given, self._given_size = 0, 0
        """The number of recordings given to the thread, and their characters. Only ``write`` changes these numbers."""
        self._done, self._done_size = 0, 0
        """The recordings that the thread has written or dropped, and their characters. Only the thread changes them."""
        self._failing = False
        self.not_written = 0
        """The number of recordings that could not be written."""

    def begin(
        self,
        mode: Literal["metadata", "full"],
        facts: CallFacts,
        spec: RecordingsSpec,
        redactor: Redactor | None = None,
    ) -> CallRecording:
        """Return a new recording for a call that begins. ``spec`` and ``redactor`` belong to its configuration."""
        return CallRecording(recorder=self, mode=mode, facts=facts, spec=spec, redactor=redactor or NOTHING)

    def _waiting(self) -> tuple[int, int]:
        """Return the number of recordings that wait, and their characters."""
        return self._given - self._done, self._given_size - self._done_size

    @property
    def is_full(self) -> bool:
        """Return whether two batches, or half of what may wait, are waiting. A caller that can wait should wait."""
        waiting, size = self._waiting()
        return waiting >= 2 * MAX_BATCH or 2 * waiting >= self._max_waiting or 2 * size >= MAX_WAITING_SIZE

    def open(self) -> Future[None]:
        """Return a future that ends when the file is open. Its errors are those of ``open_database``."""
        return self._thread.submit(self._open)

    def flush(self) -> Future[None]:
        """Write the recordings given so far at once. Return a future that ends when they are written or dropped."""
        with self._lock:
            self._complete_batch()
        return self._thread.submit(lambda: None)

    def write(self, call: CallRecording, record: Record) -> None:
        """Write a finished call in the background. The recording is dropped if too many recordings wait."""
        exchanges = tuple(call.exchanges)
        call.exchanges.clear()  # an exchange refers to this list through its attempts, and would only be freed by gc
        size = sum(map(_size, exchanges))
        waiting, waiting_size = self._waiting()
        too_many = waiting >= self._max_waiting or waiting_size + size > MAX_WAITING_SIZE
        if too_many and not call.spec.keep_all:
            self._dropped("queue_full")
            return
        with self._lock:
            if (batch := self._batch) is None:
                batch = _Batch()
                try:
                    self.written = self._thread.submit(self._write_batch, batch)
                except RuntimeError:  # closed: the process ends
                    self._dropped("failed")
                    return
                self._batch = batch
            batch.calls.append((call, record, exchanges, self._now() - record.duration))
            batch.size += size
            if len(batch.calls) >= MAX_BATCH or batch.size >= MAX_BATCH_SIZE:
                self._complete_batch()
        self._given += 1
        self._given_size += size

    def _complete_batch(self) -> None:
        """Begin the transaction of the batch, and add no more calls to it. Call with the lock."""
        if self._batch is not None:
            self._batch.complete.set()
            self._batch = None

    def close(self) -> None:
        """Write the waiting recordings, and close the file. Blocks the calling thread."""
        self.flush()
        self._thread.submit(self._release)
        self._thread.shutdown()

    def _open(self) -> None:
        if self._database is None:
            self._database = open_database(self._path, SCHEMA, SCHEMA_VERSION, BUSY_SECONDS)

    def _write_batch(self, batch: _Batch) -> None:
        batch.complete.wait(BATCH_SECONDS)
        with self._lock:
            if self._batch is batch:
                self._batch = None
        try:
            self._write(batch.calls)
        finally:
            self._done += len(batch.calls)
            self._done_size += batch.size

    def _write(self, calls: Sequence[_EndedCall]) -> None:
        """Write calls in one transaction. If the file cannot be written, all of them are dropped."""
        try:
            self._open()
            looping = self._write_rows(calls)
        except Exception as error:  # the thread must go on
            # Another error than of the file is that of one call.
            if len(calls) > 1 and not isinstance(error, sqlite3.OperationalError | OSError):
                for one in calls:
                    self._write([one])
                return
            full = isinstance(error, sqlite3.Error) and getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_FULL
            for _ in calls:
                self._dropped("disk_full" if full else "failed")
            self.not_written += len(calls)
            if not self._failing:
                LOG.error("recordings are dropped, because %s cannot be written: %s", self._path.name, error)
            self._failing = True
            return
        self._failing = False
        for model in looping:
            self._looping(model)

    def _write_rows(self, calls: Sequence[_EndedCall]) -> list[str]:
        """Write the rows of calls in one transaction. Return the model of each answer that ends in a loop.

        The rows are made before the transaction locks the file for other writers.
        """
        rows, settings = list[tuple[_Row, list[_Row]]](), dict[int, str | None]()
        for one in calls:
            asked = None if one[0].facts.call is None else asked_json(one[0].facts.call)
            texts, exchanges = self._texts_and_exchanges(one, asked)
            rows.append((_call_row(one, settings) | texts, exchanges))
        ok = [(one.model, sent) for _, one, sent, _ in calls if one.outcome == "ok"]
        looping = [model for model, sent in ok for _ in range(_looping_answers(sent))]
        assert self._database is not None
        with self._database as database:
            database.execute("BEGIN IMMEDIATE")
            (last,) = database.execute("SELECT coalesce(max(id), 0) FROM calls").fetchone()
            numbered = list(enumerate(rows, last + 1))
            insert(database, "calls", "id", [(number, row) for number, (row, _) in numbered])
            insert(database, "exchanges", "call", [(number, row) for number, (_, own) in numbered for row in own])
            self._remove_old(database, calls[-1][0].spec)
        return looping

    def _texts_and_exchanges(self, ended: _EndedCall, asked: str | None) -> tuple[_Row, list[_Row]]:
        """Return the columns of a call that depend on what may be recorded of its texts, and its exchanges.

        ``asked``: the JSON of what the client asks. If the redaction of the texts takes too long, the mode is
        ``metadata``, and the rows contain no texts.
        """
        call, record, exchanges, _ = ended
        columns = {"mode": "full", "request_sha256": None if asked is None or call.redactor else _sha256(asked)}
        if call.mode == "full":
            redaction = call.redactor.begin() if call.redactor else None
            try:
                if asked is not None and redaction is not None:
                    asked = dump_json(redaction.value(json.loads(asked)))
                error = record.error if redaction is None else redaction.text(record.error)
                columns |= {"asked": asked, "error": error[:MAX_ERROR].encode("utf-8", "replace").decode() or None}
                return columns, [_full_row(one, redaction) for one in exchanges]
            except RedactionTimeout:
                LOG.warning(
                    "call %s is recorded without texts (as metadata), because the patterns of redact took too long",
                    record.request_id,
                )
        columns |= {"mode": "metadata", "asked": None, "error": None}
        return columns, [_exchange_row(one, None, full=False) for one in exchanges]

    def _remove_old(self, database: sqlite3.Connection, spec: RecordingsSpec) -> None:
        """Remove the recordings that are too old. While the file is too large, also remove the oldest recordings."""
        database.execute("DELETE FROM calls WHERE time < ?", (self._now() - spec.retention,))
        oldest = "DELETE FROM calls WHERE id = (SELECT min(id) FROM calls)"
        while used_bytes(database) > spec.max_size and database.execute(oldest).rowcount:
            pass

    def _release(self) -> None:
        if self._database is not None:
            close_database(self._database)


def insert(database: sqlite3.Connection, table: str, number: str, rows: Sequence[tuple[int, _Row]]) -> None:
    """Insert rows, which all have the same columns in the same order. ``number``: the column of their numbers."""
    if rows:
        columns = [number, *rows[0][1]]
        values = [(one, *row.values()) for one, row in rows]
        marks = ", ".join("?" * len(columns))
        database.executemany(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})", values)


def _call_row(ended: _EndedCall, settings: dict[int, str | None]) -> _Row:
    """Return the columns of a call without its number and its texts.

    ``settings``: by ``id`` of their targets, those known.
    """
    call, record, _, started = ended
    facts = call.facts
    target = next((one for one in facts.targets if one.label == record.target), None)
    if id(target) not in settings:
        settings[id(target)] = _settings(target)
    return {name: getattr(record, name) for name in RECORD_COLUMNS} | {
        "time": started,
        "policy": facts.policy,
        "version": VERSION,
        "run": facts.run,
        "row": call.redactor.log_text(facts.row),
        "template_sha256": facts.template_sha256,
        "policy_sha256": facts.policy_sha256,
        "dataset_prompt": call.dataset_prompt,
        "notices": dump_json(call.notices),
        "failed_attempts": dump_json(record.failed_attempts),
        "answers_cut": dump_json(record.answers_cut),
        "stop_cuts": dump_json(record.stop_cuts),
        "target_settings": settings[id(target)],
    }


def _settings(target: TargetSpec | None) -> str | None:
    """Return the settings of a target that two replicas have in common, as JSON. Options may be secret, so: a hash.

    ``model`` is the name at the target's server. A target with a file or folder has no server, and its ``model`` may
    be the gateway's own name. None for a recording that answers: the settings are those of the recorded target.
    """
    if target is None or target.speaks == "replay":
        return None
    options = {name: str(value) for name, value in sorted(target.options.items())}
    return dump_json(
        {
            "speaks": target.speaks,
            "engine": target.engine,
            "adds_bos": target.adds_bos,
            "prompt": target.prompt,
            "model": target.model if (path := target.local_path) is None else None,
            "file": None if path is None else path.name,
            "options": _sha256(dump_json(options))[:12] if options else None,
        }
    )


def asked_json(call: Call) -> str:
    """Return what a client asks, as JSON: messages, prompts, variables and tools, without parameters and model.

    Keys are sorted: clients write those of a message in another order.
    """
    asked = {
        "messages": None if call.dialogue is None else [one.raw for one in call.dialogue.messages],
        "prompts": call.raw_prompts,
        "input": call.params.get("input"),
        "dataset_prompt": call.dataset_prompt,
        "turns": call.turns,
        "candidates": call.candidates,
        "tools": call.params.get("tools"),
    }
    found = {name: value for name, value in asked.items() if value}
    return json.dumps(found, separators=(",", ":"), default=plain_value, sort_keys=True)


def _redacted(one: RecordedExchange, redaction: Redaction) -> RecordedExchange:
    """Return the exchange with all matches replaced, and without token ids. Raises ``RedactionTimeout``.

    A prompt that was sent as token ids becomes its text.
    """
    exchange, text = one.exchange, text_of_ids(one.exchange)
    clean = replace(
        exchange,
        prompts=tuple(redaction.value(exchange.prompts if text is None else (text,))),
        messages=tuple(redaction.value(exchange.messages)),
        params=redaction.value(exchange.params),
        stops=tuple(redaction.value(exchange.stops)),
    )
    events = redaction.events([event for _, event in one.moments])
    moments = [(at, event) for (at, _), event in zip(one.moments, events, strict=True)]
    return RecordedExchange(clean, one.time, moments, list(redaction.events(one.delivered)))


def _full_row(one: RecordedExchange, redaction: Redaction | None) -> _Row:
    """Return the columns of an exchange with its texts. Raises ``RedactionTimeout``."""
    if redaction is None:
        return _exchange_row(one, None, full=True)
    before, clean = redaction.found, _redacted(one, redaction)
    row = _exchange_row(clean, redaction.found - before, full=True)
    if row["segments"] is not None and redaction.text(row["segments"]) != row["segments"]:  # a role is a client's text
        row["segments"] = None
    return row


def _segments(exchange: Exchange) -> str | None:
    """Return the segments of the prompt as JSON: ``[characters, role, origin, scaffold]`` of each. None: not known.

    They are not known if no template has rendered the prompt, or if the prompt was changed later. To find those of a
    long conversation, a chat template would need the subprocess for which calls wait.
    """
    prompt = exchange.rendered
    if prompt is None or (exchange.prompts != (prompt.text,) and text_of_ids(exchange) is None):
        return None
    if isinstance(prompt.source, DeferredSegments) and not prompt.source.in_process:
        return None
    try:
        found = prompt.segments or ()
    except MetaTemplateError:
        return None
    if "".join([one.text for one in found]) != prompt.text:
        return None
    return dump_json([(len(one.text), one.role, one.origin, one.scaffold) for one in found])


def _exchange_row(one: RecordedExchange, redacted: int | None, *, full: bool) -> _Row:
    """Return the columns of an exchange. ``full``: if False, hashes replace the texts, and sizes replace the events.

    ``redacted``: the number of replaced texts, or None if no pattern was applied.
    """
    exchange = one.exchange
    messages = dump_json(exchange.messages)
    seed = exchange.params.get("seed")
    answer = "".join([event.text for _, event in one.moments if isinstance(event, Delta)])
    delivered, ids = dump_json(delivered_choices(one.delivered)), _prompt_ids(one)
    hashed: Callable[[Any], str] = dump_json if full else lambda value: _sha256(dump_json(value))
    params = (
        exchange.params
        if full
        else {
            name: value if isinstance(value, bool | int | float | None) else f"sha256:{hashed(value)}"
            for name, value in exchange.params.items()
        }
    )
    return {
        "time": one.time,
        "endpoint": exchange.endpoint,
        "prompt_sha256": _sha256(_prompt_text(exchange, messages)),
        "prompts": dump_json(exchange.prompts) if full else None,
        "segments": _segments(exchange) if full else None,
        "messages": messages if full else None,
        "params": dump_json(params),
        "seed": seed if isinstance(seed, int) and -(2**63) <= seed < 2**63 else None,
        "n": exchange.n,
        "stops": hashed(exchange.stops),
        "stop_token_ids": dump_json(exchange.stop_token_ids),
        "bos": exchange.bos,
        "bos_text": exchange.bos_text if full else None,
        "stream": exchange.stream,
        "repeat": exchange.repeat,
        "events": fast_stored_json([(at, type(e).__name__, e if full else _text_size(e)) for at, e in one.moments]),
        "answer_sha256": _sha256(answer),
        "redacted": redacted,
        "answer": delivered if full else None,
        "delivered_sha256": _sha256(delivered),
        "prompt_ids": None if ids is None or not full else dump_json(ids),
        "prompt_text": text_of_ids(exchange) if full else None,
    }


def delivered_choices(events: Sequence[Event]) -> list[dict[str, Any]]:
    """Return the answer that the client received: for each choice its index, text, other fields and finish reason.

    The finish reason is null if the client did not receive the end of the choice.
    """
    if (whole := fast_completion(events)) is not None:
        one = whole.choices[0]
        return [{"index": one.index, "text": one.text, "finish_reason": one.finish.reason}]
    said = [event for event in events if isinstance(event, Delta | Finish)]
    ended = {event.index: event.reason for event in said if isinstance(event, Finish)}
    without_end = {event.index for event in said} - ended.keys()
    builder = CompletionBuilder()
    for event in [*said, *[Finish(index, "stop") for index in without_end]]:
        builder.add(event)
    choices = builder.result().choices if said else ()
    return [
        {
            "index": one.index,
            "text": one.text,
            **({"fields": one.fields} if one.fields else {}),
            "finish_reason": ended.get(one.index),
        }
        for one in choices
    ]


def _looping_answers(exchanges: Sequence[RecordedExchange]) -> int:
    """Return the number of answers that end in a loop. Most answers were ended by the model and need no search."""
    return sum(
        [
            is_looping(choice["text"], choice["finish_reason"])
            for one in exchanges
            if any(isinstance(event, Finish) and event.reason not in ENDED_BY_MODEL for event in one.delivered)
            for choice in delivered_choices(one.delivered)
        ]
    )


def _prompt_ids(one: RecordedExchange) -> Any:
    """Return the token ids of the prompt if the gateway sent them, or if the engine returned them; None otherwise."""
    prompts = one.exchange.prompts
    if prompts and all(isinstance(prompt, tuple) for prompt in prompts):
        return prompts
    for _, event in one.moments:
        if isinstance(event, Delta | Finish) and (found := event.extras.get("prompt_token_ids")) is not None:
            return [found]
    return None


def _text_size(event: Event) -> int | None:
    """Return the number of characters of a ``Delta``; None for another event."""
    return len(event.text) if isinstance(event, Delta) else None


def _prompt_text(exchange: Exchange, messages: str) -> str:
    """Return the text whose hash is recorded: the prompt itself if it is one string, otherwise JSON of the input."""
    single = text_of_ids(exchange) or (exchange.prompts[0] if len(exchange.prompts) == 1 else None)
    if isinstance(single, str):
        return single
    return messages if exchange.messages else dump_json(exchange.prompts or exchange.params.get("input"))


def _sha256(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _size(one: RecordedExchange) -> int:
    exchange = one.exchange
    sizes = [delta_size(event) for _, event in one.moments if isinstance(event, Delta)]
    return sum([*sizes, *map(len, exchange.prompts), *[len(str(message)) for message in exchange.messages]])
