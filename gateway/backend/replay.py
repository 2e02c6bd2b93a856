"""Backend that answers from a recording: it plays the events that were recorded for the same request.

A call that is a row of a run gets the answer of the row with the same id. Any other call gets the answer to the same
request. In both cases the requests must be equal: prompt, parameters, stops, ``n`` and ``repeat``. The file is read
once when the backend is made, except for the events, and each call reads its events in a thread.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import sqlite3
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from threading import Lock
from typing import Any

from gateway.backend.engines import declared_capabilities
from gateway.config.snapshot import TargetSpec
from gateway.core.caller import Caller
from gateway.core.errors import ConfigError, InvalidValue, NotRecorded, Problem, UpstreamInvalidResponse
from gateway.core.exchange import Events, Exchange, is_answer
from gateway.storage.recorder import delivered_choices
from gateway.storage.recordings import (
    RecordedRow,
    RecordingFile,
    exchange_of,
    moments_of,
    open_recording,
    reason_not_replayable,
    request_facts,
)
from gateway.wire.inlined_file import without_files
from gateway.wire.json import dump_json
from metatemplate.templates.registry import first_difference
from metatemplate.values.events import Begun, Document, Event
from metatemplate.values.words import changes, excerpts, printable

MOST_NEIGHBOURS = 100
"""The maximum number of recorded requests with similar prompts that are compared with a request without an answer."""
INPUT_SQL = "prompts || messages || params"
"""The model's input of an exchange, in SQL; ``_input_json`` is the same text."""
Moments = Sequence[tuple[float, Event]]


class RecordedRequests:
    """The requests in a file of recordings: which exchanges may answer a request, and which requests are similar."""

    def __init__(self, path: Path) -> None:
        """Read the file. Raises ``InvalidValue``, ``sqlite3.Error``, ``ValueError`` or ``TypeError``."""
        self.path = path
        self.by_request: dict[bytes, list[int]] = {}
        """The hash of a request → its exchanges that can be played, by their ids."""
        self._by_row: dict[str, dict[tuple[str, str], dict[int, list[int]]]] = {}
        """The id of a row → the run and its client key → the row's calls, in their order → their exchanges."""
        self._by_input: list[int] | None = None
        """All exchanges with texts, by their ids, in the order of their inputs. None: not sorted yet."""
        self._sorting = Lock()
        refused = Counter[str]()
        with closing(open_recording(path)) as file:
            self.columns = _columns(file)
            self._read(file, refused)
        self.left_out = ", ".join([f"{number} {reason}" for reason, number in refused.items()])
        """The exchanges that cannot be played: their numbers and the reasons. Empty if all can be played."""

    def _read(self, file: RecordingFile, refused: Counter[str]) -> None:
        for row in file.execute(f"SELECT {self.columns} ORDER BY exchanges.id"):
            if row["row"]:
                calls = self._by_row.setdefault(row["row"], {}).setdefault((row["run"], row["key"]), {})
                calls.setdefault(row["call"], []).append(row["id"])
            if reason := reason_not_replayable(row):
                refused[reason] += 1
            else:
                self.by_request.setdefault(_request_hash(exchange_of(row)), []).append(row["id"])

    def of_row(self, caller: Caller) -> list[int]:
        """Return the exchanges of the caller's row: of the run of its key, else of that run of all keys, else of all.

        Empty: the call is no row, or the row is not recorded.
        """
        runs = {run: list(calls.values())[-1] for run, calls in self._by_row.get(caller.row, {}).items()}
        same_name = {run: ids for run, ids in runs.items() if run[0] == caller.run}
        return runs.get((caller.run, caller.key)) or [one for ids in (same_name or runs).values() for one in ids]

    def neighbours(self, file: RecordingFile, exchange: Exchange) -> list[int]:
        """Return the exchanges whose inputs come before and after this one's in the order of the alphabet.

        One of them has the longest common prefix of all. The first call sorts the inputs of the file.
        """
        with self._sorting:
            if self._by_input is None:
                query = f"SELECT id FROM exchanges WHERE prompts IS NOT NULL AND redacted IS NULL ORDER BY {INPUT_SQL}"
                self._by_input = [one for (one,) in file.execute(query)]

        def input_of(number: int) -> str:
            row = file.execute(f"SELECT {INPUT_SQL} FROM exchanges WHERE id = ?", (number,)).fetchone()
            return row[0] if row is not None else ""  # removed since

        at = bisect_left(self._by_input, _input_json(exchange), key=input_of)
        return self._by_input[max(at - MOST_NEIGHBOURS // 2, 0) : at + MOST_NEIGHBOURS // 2]


class ReplayBackend:
    """Plays recorded answers. No request leaves this process."""

    def __init__(self, target: TargetSpec) -> None:
        """Read the requests of the file. Raises ``ConfigError`` if no recorded answer can be played."""
        assert target.file is not None, "config requires file"
        self._path, self._label, self._paced = target.file, target.label, target.pace == "recorded"
        self.capabilities = replace(declared_capabilities(target), choices=True, lists=True, streamed_choices=True)
        try:
            self._requests = RecordedRequests(self._path)
        except (InvalidValue, sqlite3.Error, ValueError, TypeError) as error:
            raise ConfigError((Problem(self._label, 0, "file", str(error)),)) from error
        if not self._requests.by_request:
            reason = f"no recorded answer can be replayed ({self._requests.left_out or 'the file has no call'})"
            problem = f"{self._path}: {reason}; record with record: full and without redact"
            raise ConfigError((Problem(self._label, 0, "file", problem),))

    @asynccontextmanager
    async def open(self, exchange: Exchange) -> AsyncIterator[Events]:
        """Play the recorded answer. Raises ``NotRecorded`` if there is none. See ``Backend.open``."""
        try:
            moments = await asyncio.to_thread(self._find, exchange)
        except (InvalidValue, sqlite3.Error, ValueError, TypeError, KeyError) as error:
            failed = UpstreamInvalidResponse(f"the recording {self._path.name} cannot be read; the log has the cause")
            failed.reason = printable(str(error))
            raise failed from error
        yield ReplayedEvents([(at, self._named(event)) for at, event in moments], paced=self._paced)

    def _named(self, event: Event) -> Event:
        """Return an event. The first one names this target, not the recorded one, whose label may be unknown here."""
        return replace(event, target=self._label) if isinstance(event, Begun) and event.target else event

    def _find(self, exchange: Exchange) -> Moments:
        """Return the events of the recorded answer. Raises ``NotRecorded``."""
        of_row = self._requests.of_row(exchange.caller)
        found = self._requests.by_request.get(_request_hash(exchange), [])
        if of_row:
            found = [one for one in found if one in of_row]
        with closing(open_recording(self._path)) as file:
            if not found:
                raise self._not_recorded(file, exchange, of_row)
            rows = self._rows(file, found)
            answers = {}
            for row in rows:
                query = "SELECT events FROM exchanges WHERE id = ?"
                moments = moments_of(file.execute(query, (row["id"],)).fetchone())
                if is_answer([event for _, event in moments], exchange):
                    answers[_answer_text(moments)] = (row, moments)
                if len(answers) > 1:
                    break
        if not answers:
            ends = ", ".join(dict.fromkeys([f"{_call_name(row)} ended with {row['outcome']}" for row in rows]))
            raise NotRecorded(
                f"{self._path.name} has no complete answer to this request: {ends or 'it was removed'}; the rest of a "
                "very long answer is not recorded, nor are answers of failed calls"
            )
        if len(answers) > 1:
            calls = " and ".join([_call_name(row) for row, _ in answers.values()])
            raise NotRecorded(
                f"{self._path.name} has different answers to this request, such as {calls}; send it as a row of the "
                "run (the headers x-gateway-run and x-gateway-row), with the run's client key if there are several"
            )
        ((_, moments),) = answers.values()
        return moments

    def _rows(self, file: RecordingFile, ids: Sequence[int]) -> list[RecordedRow]:
        query = f"SELECT {self._requests.columns} WHERE exchanges.id IN (SELECT value FROM json_each(?))"
        return file.execute(query, (dump_json(ids),)).fetchall()

    def _not_recorded(self, file: RecordingFile, exchange: Exchange, of_row: list[int]) -> NotRecorded:
        """Return the error for a request without an answer. It names the closest recorded request.

        That is the request of the same row, or else the one whose prompt has the longest common prefix.
        """
        rows = self._rows(file, of_row or self._requests.neighbours(file, exchange))
        asked = _facts_as_json(exchange)
        compared = [(row, _facts_as_json(exchange_of(row))) for row in rows if not reason_not_replayable(row)]
        left_out = f" (not replayable are {self._requests.left_out})" if self._requests.left_out else ""
        begin = f"{self._path.name} has no answer to this request{left_out}"
        if not compared:
            reasons = ", ".join(dict.fromkeys(map(reason_not_replayable, rows)))
            return NotRecorded(f"{begin}: the recording of its row is {reasons}" if rows else begin)
        row, recorded = max(compared, key=lambda one: _closeness(one[1], asked))
        names = [name for name in dict.fromkeys([*recorded, *asked]) if recorded.get(name) != asked.get(name)]
        changed = ", ".join(changes(*[_without_input(facts) for facts in (recorded, asked)]))
        begin += f"; the closest recorded request is that of {_call_name(row)}"
        error = NotRecorded(f"{begin}, which differs: {changed}" if changed else begin)
        error.log_message = f"{begin}, which differs: {', '.join(names)}"
        one, other = _input_text(recorded), _input_text(asked)
        if one != other:
            lines = excerpts(one, other, first_difference(one, other))
            error.message = "\n".join([error.message, "--- recorded", "+++ request", *lines])
        return error


INPUT_FACTS = ("prompt", "messages")
"""The facts of a request that are the model's input. They are shown with their first difference."""


class ReplayedEvents:
    """Recorded events, in the batches in which they arrived."""

    __slots__ = ("_batches", "_opened", "_paced")

    def __init__(self, moments: Iterable[tuple[float, Event]], *, paced: bool) -> None:
        """``paced``: whether each batch arrives after the recorded time."""
        batches = groupby(moments, key=lambda moment: moment[0])
        self._batches = deque([(at, [event for _, event in batch]) for at, batch in batches])
        self._paced = paced
        self._opened = asyncio.get_running_loop().time()

    @property
    def exhausted(self) -> bool:
        """Return whether all batches have been returned. See ``Events.exhausted``."""
        return not self._batches

    async def next_batch(self) -> Sequence[Event]:
        """Return the next batch. See ``Events.next_batch``."""
        if not self._batches:
            return ()
        if self._paced:
            await asyncio.sleep(self._opened + self._batches[0][0] - asyncio.get_running_loop().time())
        return self._batches.popleft()[1]


def _columns(file: RecordingFile) -> str:
    """Return the columns and tables of all queries, without the long columns."""
    rows = "coalesce(run, '') AS run, coalesce(row, '') AS row"
    short = ", ".join([f"exchanges.{name}" for name in file.columns("exchanges") if name not in ("events", "answer")])
    return f"{short}, request_id, key, outcome, {rows} FROM exchanges JOIN calls ON calls.id = exchanges.call"


def _request_hash(exchange: Exchange) -> bytes:
    """Return the hash of a request. Nested objects are not sorted: their order can change a prompt."""
    return hashlib.sha256(dump_json(sorted(request_facts(exchange).items())).encode("ascii")).digest()


def _input_json(exchange: Exchange) -> str:
    return "".join(map(dump_json, (exchange.prompts, without_files(exchange.messages), exchange.params)))


def _answer_text(moments: Moments) -> str:
    """Return the answer as text: what its choices say and how they end, without times, token counts and chunks."""
    events = [event for _, event in moments]
    return dump_json([delivered_choices(events), [event.body for event in events if isinstance(event, Document)]])


def _call_name(row: RecordedRow) -> str:
    places = ", ".join([f"{name} {printable(row[name])}" for name in ("row", "key") if row[name]])
    return f"call {row['request_id']}" + (f" ({places})" if places else "")


def _facts_as_json(exchange: Exchange) -> dict[str, Any]:
    """Return the facts of a request, with the values of JSON."""
    return dict(json.loads(dump_json(request_facts(exchange))))


def _input_text(facts: dict[str, Any]) -> str:
    """Return the model's input: the prompt if it is one string, else the JSON of the prompts or messages."""
    prompts = facts["prompt"]
    return prompts[0] if len(prompts) == 1 and isinstance(prompts[0], str) else dump_json(prompts or facts["messages"])


def _closeness(recorded: dict[str, Any], asked: dict[str, Any]) -> tuple[int, int]:
    """Return the length of the common prefix of two inputs, and minus the number of other facts that differ."""
    names = recorded.keys() | asked.keys()
    return (
        first_difference(_input_text(recorded), _input_text(asked)),
        -sum([recorded.get(name) != asked.get(name) for name in names]),
    )


def _without_input(facts: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in facts.items() if name not in INPUT_FACTS}
