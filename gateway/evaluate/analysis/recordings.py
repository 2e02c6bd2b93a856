"""Reads recordings of calls: a file that ``Recorder`` has written, of version 1 or 2 of its tables."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from sys import intern
from typing import Any

from gateway.core.errors import InvalidValue
from gateway.evaluate.analysis.rows import (
    AT_LIMIT,
    ChosenToken,
    RowFacts,
    RunAnswer,
    RunRow,
    is_default_limit,
    reasoning_of,
    route_facts,
    tool_calls_of,
)
from gateway.storage.recordings import RecordedRow, exchanges_of, open_recording, reason_not_replayable
from gateway.wire.stored_events import dump_json

HAS_ANSWER = "calls.endpoint IN ('chat', 'completions', 'responses', 'loglikelihood')"
"""The condition for calls that have answers, in SQL."""
LAST_CALL = (
    "SELECT calls.id, request_sha256, target, params, repeat FROM calls JOIN exchanges ON call = calls.id"
    f" WHERE request_id = ? AND answer IS NOT NULL AND {HAS_ANSWER} ORDER BY exchanges.id DESC LIMIT 1"
)
"""The last exchange of a call, without its answer and its events."""
NO_ANSWER = "recorded without their answers (record: metadata, or by an earlier version)"
CUTS = {"length": "context", "stop": AT_LIMIT}
"""Finish reason → the recorded reason (``answers_cut``) that an answer with this end may have."""


class RecordingFile:
    """An open file of recordings, for ``contextlib.closing``. Its rows read their facts from it while it is open."""

    def __init__(self, path: Path, busy_seconds: float = 5.0, read_seconds: float | None = None) -> None:
        """Raises ``InvalidValue`` if the file has no recordings. The limits are those of ``open_recording``."""
        self.path = path
        self.left_out = 0
        """The number of calls that were left out because their answers are not recorded."""
        self._database = open_recording(path, busy_seconds, read_seconds)

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def check_answers(self) -> None:
        """Raise ``InvalidValue`` if the file has no answers."""
        if self._database.execute("PRAGMA user_version").fetchone()[0] == 1:
            raise InvalidValue(
                f"{self.path}: a gateway of an earlier version has recorded these calls without their answers"
            )

    def keys_of(self, run: str) -> list[str]:
        """Return the names of the client keys that have a run with this name."""
        return [
            one for (one,) in self._database.execute("SELECT DISTINCT key FROM calls WHERE run = ? ORDER BY 1", (run,))
        ]

    def runs(self, key: str | None, start: int, count: int) -> list[RecordedRow]:
        """Return the ``key``, ``run``, ``calls``, and the times ``first`` and ``last`` of runs, the latest run first.

        ``key``: only the runs of the client key with this name. ``start``, ``count``: which of the runs.
        """
        if self._database.execute("PRAGMA user_version").fetchone()[0] == 1:
            return []
        own = "" if key is None else " AND key = ?"
        listed = (  # The index of the runs has all these columns.
            f"SELECT key, run, count(*) AS calls, min(id) AS one, max(id) AS other FROM calls WHERE run > ''{own}"
            " GROUP BY run, key ORDER BY other DESC LIMIT ? OFFSET ?"
        )
        times = "(SELECT time FROM calls WHERE id = one) AS first, (SELECT time FROM calls WHERE id = other) AS last"
        values = (*([] if key is None else [key]), count, start)
        return self._database.execute(f"SELECT key, run, calls, {times} FROM ({listed})", values).fetchall()

    def state_of(self, run: str, key: str) -> tuple[int, ...]:
        """Return values that change whenever the calls of a run change: their number, the first and the last one."""
        query = "SELECT count(*), coalesce(min(id), 0), coalesce(max(id), 0) FROM calls WHERE run = ? AND key = ?"
        return tuple(self._database.execute(query, (run, key)).fetchone())

    def calls(self, condition: str, *values: str) -> Iterator[RecordedRow]:
        """Return the calls that have answers, in the order of their starts. ``condition``: of the statement, in SQL."""
        query = f"SELECT * FROM calls WHERE {HAS_ANSWER} AND {condition} ORDER BY time, id"
        return self._database.execute(query, values)

    def answers(self, call: int) -> list[RecordedRow]:
        """Return the columns of a call's exchanges that every row needs, in order: the events are much longer."""
        query = "SELECT params, repeat, answer FROM exchanges WHERE call = ? ORDER BY id"
        return self._database.execute(query, (call,)).fetchall()

    def of_row(self, row: RunRow) -> RunRow:
        """Return the row of an output with the facts of its call, if the call is recorded."""
        found = self._database.execute(LAST_CALL, (row.request_id,)).fetchone()
        return row if found is None else self.described(row, found, found)

    def described(self, row: RunRow, call: RecordedRow, exchange: RecordedRow) -> RunRow:
        """Return a row with the facts of its recorded call. ``exchange``: the last one."""
        params = exchange["params"]
        return replace(
            row,
            tools=tuple(params["tools"]) if isinstance(params.get("tools"), list) else None,
            facts=RowFacts(request=call["request_sha256"], repeat=exchange["repeat"], target=intern(call["target"])),
            read_facts=partial(self._facts, call["id"]),
        )

    def _facts(self, number: int) -> tuple[RowFacts, tuple[RowFacts, ...]]:
        call = self._database.execute("SELECT * FROM calls WHERE id = ?", (number,)).fetchone()
        if call is None:
            raise InvalidValue(f"{self.path}: a gateway has removed calls while this file was read; read it again")
        exchanges = exchanges_of(self._database, number)
        facts = _facts(call, exchanges[-1], _choices(call, exchanges))
        if len(exchanges) == 1:
            return facts, ()
        return facts, tuple([_facts(call, one, one["answer"]) for one in exchanges if one.text("answer")])


def read_recording(file: RecordingFile, run: str | None = None, row: str | None = None) -> Iterator[RunRow]:
    """Yield the calls of a file as rows, in the order of their starts. Calls without a recorded answer are left out.

    ``run``: only the calls of this run; ``KEY/RUN`` names the run of a client key, and ``/RUN`` that of clients without
    one. ``row``: only the row with this id, or the call with this id. Raises ``InvalidValue`` if no answer is recorded,
    or if several keys have a run with this name.
    """
    file.check_answers()
    where, values = "", tuple[str, ...]()
    if run is not None:
        key, slash, name = run.rpartition("/")
        keys = file.keys_of(name)
        if len(keys) > 1 and not slash:
            named = ", ".join([f"{one}/{name}" for one in keys])
            raise InvalidValue(f"{file.path}: several client keys have a run {name}; name one of them: {named}")
        # The index of the run is shorter than that of the key.
        where, values = "run = ? AND +key = ? AND", (name, key if slash else "".join(keys))
    if row is not None:
        where, values = f"{where} (row = ? OR request_id = ?) AND", (*values, row, row)
    # A row that was sent again has several calls, of which the last one counts.
    same = "later.row = calls.row AND later.run IS calls.run AND later.key IS calls.key AND endpoint = calls.endpoint"
    last = f"coalesce(row, '') = '' OR id = (SELECT max(id) FROM calls AS later WHERE {same})"
    is_empty = True
    for call in file.calls(f"{where} ({last})", *values):
        exchanges = file.answers(call["id"])
        if call["outcome"] != "ok" or any(one.text("answer") is not None for one in exchanges):
            is_empty = False
            yield _row(file, call, exchanges)
        else:
            file.left_out += bool(exchanges)
    if is_empty and file.left_out:
        raise InvalidValue(f"{file.path}: {file.left_out} calls, all {NO_ANSWER}")


def with_recording(rows: Iterable[RunRow], file: RecordingFile) -> Iterator[RunRow]:
    """Yield the rows of an output with the facts of their calls in a file of recordings, where they are recorded."""
    return map(file.of_row, rows)


def _row(file: RecordingFile, call: RecordedRow, exchanges: Sequence[RecordedRow]) -> RunRow:
    failed = call["outcome"] != "ok"
    cuts = call["answers_cut"] if not failed else []
    row = RunRow(
        custom_id=call["row"] or call["request_id"],
        model=intern(call["model"]),
        dataset_prompt=intern(call["dataset_prompt"] or ""),
        error=call["outcome"] if failed else "",
        seconds=call["duration"],
        answers=() if failed else tuple([_answer(choice, cuts) for choice in _choices(call, exchanges)]),
    )
    recorded = exchanges and exchanges[-1].text("answer") is not None
    return file.described(row, call, exchanges[-1]) if recorded else row


def _choices(call: RecordedRow, exchanges: Sequence[RecordedRow]) -> list[Any]:
    """Return the choices that the client received: of a chat those of the last exchange, else those of each prompt."""
    recorded = [one for one in exchanges if one.text("answer") is not None]
    return [choice for one in (recorded[-1:] if call["endpoint"] == "chat" else recorded) for choice in one["answer"]]


def _facts(call: RecordedRow, exchange: RecordedRow, choices: Sequence[Mapping[str, Any]]) -> RowFacts:
    """Return what the recording says about how an exchange of a call was asked and answered."""
    events = [(name, fields) for _, name, fields in exchange["events"]]
    params, notices = exchange["params"], call["notices"]
    deltas = sorted([fields for name, fields in events if name == "Delta"], key=itemgetter("index"))
    tokens = {index: _tokens(group) for index, group in groupby(deltas, itemgetter("index"))}
    messages = exchange.text("messages") if exchange["messages"] else None
    prompts = exchange["prompts"] or ()
    stops, cuts = iter(call["stop_cuts"]), call["answers_cut"]
    return RowFacts(
        request=call["request_sha256"],
        repeat=exchange["repeat"],
        dataset_prompt=call["dataset_prompt"],
        template=f"{call['template']}@sha256:{call['template_sha256']}",
        policy=f"{call['policy']}@sha256:{call['policy_sha256']}",
        prompt=messages or "".join([one for one in prompts if isinstance(one, str)]) or None,
        prompt_sha256=exchange["prompt_sha256"],
        bos=f"{exchange['bos']} {exchange['bos_text'] or ''}".rstrip(),
        prompt_ids=exchange.text("prompt_ids"),
        params={
            **params, "n": exchange["n"], "stop": exchange["stops"],
            "stop_token_ids": exchange["stop_token_ids"],
        },
        default_limit=is_default_limit(notices, choices),
        route=route_facts(
            cache=call["cache"], failed=", ".join(call["failed_attempts"]), notices=notices
        ),
        settings=json.loads(call["target_settings"]) if call["target_settings"] else None,
        target=call["target"],
        exchange=None if reason_not_replayable(exchange) else exchange["id"],
        raw="".join([fields.get("text", "") for fields in deltas]),
        delivered=dump_json([{**choice, "finish_reason": None} for choice in choices]),
        ends=tuple([_end(choice["finish_reason"], stops, cuts) for choice in choices]),
        tokens=tuple([tokens.get(choice["index"], ()) for choice in choices]) if params.get("logprobs") else None,
    )  # fmt: skip


def _tokens(deltas: Iterable[Mapping[str, Any]]) -> tuple[ChosenToken, ...]:
    """Return the tokens in the events of one choice."""
    tokens = [one for fields in deltas for one in fields.get("logprobs") or ()]
    return tuple([
        ChosenToken(
            one["token"], one["logprob"] or 0.0, tuple([(text, value) for text, value, _ in one.get("top") or ()])
        )
        for one in tokens
    ])  # fmt: skip


def _end(reason: str | None, stops: Iterator[str], cuts: Sequence[str]) -> str:
    if reason == "stop":
        return f"stop by {next(stops, 'engine')}"
    return "length (context)" if reason == "length" and "context" in cuts else reason or "none"


def _answer(choice: Mapping[str, Any], cuts: Sequence[str]) -> RunAnswer:
    fields = choice.get("fields") or {}
    finish = choice["finish_reason"] or ""
    return RunAnswer(
        text=choice["text"],
        reasoning=reasoning_of(fields),
        refusal=fields.get("refusal") or "",
        tool_calls=tool_calls_of(fields),
        finish_reason=finish,
        cut=cut if (cut := CUTS.get(finish, "")) in cuts else "",
    )
