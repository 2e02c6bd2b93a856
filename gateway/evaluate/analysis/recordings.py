"""Reads recordings of calls: a file that ``Recorder`` has written."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from functools import partial
from itertools import groupby
from operator import attrgetter
from sys import intern
from typing import Any

from gateway.core.errors import InvalidValue
from gateway.evaluate.analysis.rows import (
    AT_LIMIT,
    UNREAD,
    OpenRuns,
    RowFacts,
    RunAnswer,
    RunRow,
    answer_of,
    chosen_tokens,
    is_default_limit,
    route_facts,
    unread_choices,
)
from gateway.storage.recordings import (
    RecordedRow,
    RecordingFile,
    moments_of,
    readable_prompts,
    reason_not_replayable,
)
from gateway.wire.json import dump_json
from metatemplate.values.events import Delta
from metatemplate.values.words import counted

HAS_ANSWER = "calls.endpoint IN ('chat', 'completions', 'responses', 'loglikelihood')"
"""The condition for calls that have answers, in SQL."""
LAST_CALL = (
    "SELECT calls.id, request_sha256, target, params, repeat FROM calls JOIN exchanges ON call = calls.id"
    f" WHERE request_id = ? AND answer IS NOT NULL AND {HAS_ANSWER} ORDER BY exchanges.id DESC LIMIT 1"
)
"""The last exchange of a call, without its answer and its events."""
LAST_OF_ROW = (
    "(coalesce(row, '') = '' OR id = (SELECT max(id) FROM calls AS later WHERE later.row = calls.row"
    " AND later.run IS calls.run AND later.key IS calls.key AND endpoint = calls.endpoint))"
)
"""The condition for the last call of a row that was sent several times, in SQL."""
CALL = (
    "SELECT time, duration, error, prompt_tokens, completion_tokens, target, version, template || '@sha256:' ||"
    " substr(template_sha256, 1, 12) AS template, policy || '@sha256:' || substr(policy_sha256, 1, 12) AS policy,"
    " (SELECT params FROM exchanges WHERE call = calls.id ORDER BY id DESC LIMIT 1) AS params FROM calls WHERE id = ?"
)
"""What a report says about a call, with the parameters of its last exchange."""
COUNTS = (
    "SELECT count(*) AS rows, sum(outcome != 'ok') AS failed, sum(outcome = 'ok' AND instr(answers_cut, 'empty') > 0)"
    " AS empty, sum(outcome = 'ok' AND (instr(answers_cut, 'length') OR instr(answers_cut, 'context'))) AS cut,"
    " json_group_array(DISTINCT model) AS models, json_group_array(DISTINCT template) AS templates FROM (SELECT"
    f" max(id), outcome, answers_cut, model, template FROM calls WHERE run = ? AND key = ? AND {HAS_ANSWER}"
    " GROUP BY CASE WHEN coalesce(row, '') = '' THEN id ELSE row END, endpoint)"
)
"""The numbers of rows of a run. Of a row that was sent several times, the last call counts."""
SHORT_COLUMNS = "params, repeat, answer"
"""The columns of an exchange that every row needs: the events are much longer."""
NO_ANSWER = "recorded without their answers (record: metadata)"
INDEX = attrgetter("index")
ENDS = {
    "client_gone": "The client closed the connection before the answer was complete.",
    "client_stalled": "The client did not read the answer in time.",
    "cancelled": "The gateway ended before the answer was complete.",
}
"""Outcome of a call that neither an answer nor an error has ended → what happened."""
NO_ERROR = "The message of the error is not recorded (record: metadata); the log may have it under the request id."
CUTS = {"length": "context", "stop": AT_LIMIT}
"""Finish reason → the recorded reason (``answers_cut``) that an answer with this end may have."""


def failure_of(call: Mapping[str, Any]) -> str:
    """Return why a recorded call has no answer. Empty if it has one."""
    if (outcome := call["outcome"]) == "ok":
        return ""
    return call["error"] or ENDS.get(outcome) or (NO_ERROR if call["mode"] != "full" else outcome)


def read_recording(file: RecordingFile, run: str | None = None, row: str | None = None) -> Iterator[RunRow]:
    """Yield the calls of a file as rows, in the order of their starts. Their facts are read while the file is open.

    Calls without a recorded answer are left out, and counted in ``file.left_out``. ``run``: only the calls of this run;
    ``KEY/RUN`` names the run of a client key, and ``/RUN`` that of clients without one. ``row``: only the row with this
    id, or the call with this id. Raises ``InvalidValue`` if no answer is recorded, or if several keys have a run with
    this name.
    """
    conditions, values = [HAS_ANSWER, LAST_OF_ROW], list[str]()
    if run is not None:
        key, slash, name = run.rpartition("/")
        keys = file.keys_of(name)
        if len(keys) > 1 and not slash:
            named = ", ".join([f"{one}/{name}" for one in keys])
            raise InvalidValue(f"{file.path}: several client keys have a run {name}; name one of them: {named}")
        conditions.append("run = ? AND +key = ?")  # the index of the run is shorter than that of the key
        values += [name, key if slash else "".join(keys)]
    if row is not None:
        conditions.append("(row = ? OR request_id = ?)")
        values += [row, row]
    is_empty = True
    for call in file.execute(f"SELECT * FROM calls WHERE {' AND '.join(conditions)} ORDER BY time, id", values):
        exchanges = file.exchanges_of(call["id"], SHORT_COLUMNS)
        if call["outcome"] != "ok" or any(one.text("answer") is not None for one in exchanges):
            is_empty = False
            yield _row(file, call, exchanges)
        else:
            file.left_out += bool(exchanges)
    if is_empty and file.left_out:
        raise InvalidValue(f"{file.path}: {file.left_out} calls, all {NO_ANSWER}")


def note_left_out(files: OpenRuns, file: RecordingFile) -> None:
    """Add a note about the calls of a file that are no rows."""
    if file.left_out:
        verb = "is" if file.left_out == 1 else "are"
        files.notes.append(f"{counted(file.left_out, 'call')} of {file.path} {verb} left out: {NO_ANSWER}")


def row_counts(file: RecordingFile, run: str, key: str) -> dict[str, Any]:
    """Return the ``models`` and ``templates`` of a run, and how many ``rows`` it has, and are failed, cut or empty.

    Answers are not read, so one that ends in a loop at the token limit is cut here.
    """
    found = dict(file.execute(COUNTS, (run, key)).fetchone())
    return found | {name: sorted(filter(None, json.loads(found[name]))) for name in ("models", "templates")}


def with_recording(rows: Iterable[RunRow], file: RecordingFile) -> Iterator[RunRow]:
    """Yield the rows of an output with the facts of their calls in a file of recordings, where they are recorded."""
    for row in rows:
        found = file.execute(LAST_CALL, (row.request_id,)).fetchone()
        yield row if found is None else _described(row, file, found, found)


def _described(row: RunRow, file: RecordingFile, call: RecordedRow, exchange: RecordedRow) -> RunRow:
    """Return a row with the facts of its recorded call. ``exchange``: the last one."""
    params = exchange["params"]
    return replace(
        row,
        tools=tuple(params["tools"]) if isinstance(params.get("tools"), list) else None,
        facts=RowFacts(request=call["request_sha256"], repeat=exchange["repeat"], target=intern(call["target"])),
        read_facts=partial(_read_facts, file, call["id"]),
        read_asked=partial(_read_asked, file, call["id"]),
        read_calls=partial(_read_calls, file, call["id"]),
    )


def _read_calls(file: RecordingFile, number: int) -> list[dict[str, Any]]:
    return [dict(call) for call in file.execute(CALL, (number,))]


def _read_asked(file: RecordingFile, number: int, redacted: bool = False) -> Mapping[str, Any] | None:
    condition = "id = ? AND (request_sha256 IS NOT NULL OR ?)"
    call = file.execute(f"SELECT asked FROM calls WHERE {condition}", (number, redacted)).fetchone()
    return None if call is None else call["asked"]


def _read_facts(file: RecordingFile, number: int) -> tuple[RowFacts, tuple[RowFacts, ...]]:
    call = file.execute("SELECT * FROM calls WHERE id = ?", (number,)).fetchone()
    if call is None:
        raise InvalidValue(f"{file.path}: a gateway has removed calls while this file was read; read it again")
    exchanges = file.exchanges_of(number)
    facts = _facts(call, exchanges[-1], _choices(call, exchanges))
    if len(exchanges) == 1:
        return facts, ()
    return facts, tuple([_facts(call, one, one["answer"]) for one in exchanges if one.text("answer")])


def _row(file: RecordingFile, call: RecordedRow, exchanges: Sequence[RecordedRow]) -> RunRow:
    failed = call["outcome"] != "ok"
    cuts = call["answers_cut"] if not failed else []
    unread = unread_choices(call["notices"]) if UNREAD in (call.text("notices") or "") else set()
    row = RunRow(
        custom_id=call["row"] or call["request_id"],
        model=intern(call["model"]),
        dataset_prompt=intern(call["dataset_prompt"] or ""),
        error=call["outcome"] if failed else "",
        request_id=call["request_id"],
        seconds=call["duration"],
        answers=() if failed else tuple([_answer(choice, cuts, unread) for choice in _choices(call, exchanges)]),
        read_asked=partial(_read_asked, file, call["id"]),
        read_calls=partial(_read_calls, file, call["id"]),
    )
    recorded = exchanges and exchanges[-1].text("answer") is not None
    return _described(row, file, call, exchanges[-1]) if recorded else row


def _choices(call: RecordedRow, exchanges: Sequence[RecordedRow]) -> list[Any]:
    """Return the choices that the client received: of a chat those of the last exchange, else those of each prompt."""
    recorded = [one for one in exchanges if one.text("answer") is not None]
    return [choice for one in (recorded[-1:] if call["endpoint"] == "chat" else recorded) for choice in one["answer"]]


def _facts(call: RecordedRow, exchange: RecordedRow, choices: Sequence[Mapping[str, Any]]) -> RowFacts:
    """Return what the recording says about how an exchange of a call was asked and answered."""
    params, notices = exchange["params"], call["notices"]
    deltas = sorted([event for _, event in moments_of(exchange) if isinstance(event, Delta)], key=INDEX)
    tokens = {
        index: chosen_tokens([token for delta in group for token in delta.logprobs or ()])
        for index, group in groupby(deltas, INDEX)
    }
    messages = exchange.text("messages") if exchange["messages"] else None
    prompts = readable_prompts(exchange)
    stops, cuts = iter(call["stop_cuts"]), call["answers_cut"]
    return RowFacts(
        request=call["request_sha256"],
        asked=call["asked"] if call["request_sha256"] else None,
        repeat=exchange["repeat"],
        dataset_prompt=call["dataset_prompt"],
        template=f"{call['template']}@sha256:{call['template_sha256']}",
        prompt=messages or "".join([one for one in prompts if isinstance(one, str)]) or None,
        prompt_sha256=exchange["prompt_sha256"],
        bos=f"{exchange['bos']} {exchange['bos_text'] or ''}".rstrip(),
        prompt_ids=exchange.text("prompt_ids"),
        params={
            **params,
            "n": exchange["n"],
            "stop": exchange["stops"],
            "stop_token_ids": exchange["stop_token_ids"],
        },
        default_limit=is_default_limit(notices, choices),
        route=route_facts(cache=call["cache"], failed=", ".join(call["failed_attempts"]), notices=notices),
        settings=json.loads(call["target_settings"]) if call["target_settings"] else None,
        target=call["target"],
        exchange=None if reason_not_replayable(exchange) else exchange["id"],
        raw="".join([delta.text for delta in deltas]),
        delivered=dump_json([{**choice, "finish_reason": None} for choice in choices]),
        ends=tuple([_end(choice["finish_reason"], stops, cuts) for choice in choices]),
        tokens=tuple([tokens.get(choice["index"], ()) for choice in choices]) if params.get("logprobs") else None,
    )


def _end(reason: str | None, stops: Iterator[str], cuts: Sequence[str]) -> str:
    if reason == "stop":
        return f"stop by {next(stops, 'engine')}"
    return "length (context)" if reason == "length" and "context" in cuts else reason or "none"


def _answer(choice: Mapping[str, Any], cuts: Sequence[str], unread: Set[str]) -> RunAnswer:
    finish = choice["finish_reason"] or ""
    cut = CUTS.get(finish, "")
    cut = cut if cut in cuts else ""
    return answer_of(choice["text"], choice.get("fields") or {}, finish, cut, str(choice["index"]) in unread)
