"""The list of recorded calls, the latest first, each with the beginning of its question and of its answer."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

from gateway.config.remedies import remedies
from gateway.evaluate.analysis.client_text import beginning, plain_question
from gateway.storage.recordings import MAX_VALUES, OWNER, RecordingFile
from gateway.telemetry.metric_definitions import LABEL_VALUES

ROWS = 50
"""The maximum number of calls on a page."""
MAX_ASKED, MAX_ANSWER = 16_384, 2_048
"""The numbers of characters that are read of the JSON of a request and of an answer."""
LIST_FILTERS = ("model", "outcome", "cut", "run", "notice", "key")
CUTS = [one for one in LABEL_VALUES["reason (answers cut)"] if one != "looping"]
"""The reasons that a recording has. Loops are found after the call."""
HIDDEN = "default_parameter"
"""A notice that almost every call has, so that lists do not count it."""
NAMES = (
    *("id", "request_id", "endpoint", "model", "key", "run", "outcome", "status", "duration", "first_token"),
    *("prompt_tokens", "completion_tokens"),
)
COLUMNS = (
    f"{', '.join(NAMES)}, time, notices, answers_cut, error, substr(asked, 1, {MAX_ASKED}) AS asked_begin,"
    f" (SELECT substr(answer, 1, {MAX_ANSWER}) FROM exchanges WHERE call = calls.id AND answer IS NOT NULL"
    " ORDER BY exchanges.id DESC LIMIT 1) AS answer_begin"
)
STRING = r':\[?"((?:[^"\\]|\\u[0-9a-fA-F]{4}|\\[^u])*)'
"""A string in JSON after its name, or the first one of a list. It may be cut."""
QUESTION = re.compile('"(?:content|text|prompts)"' + STRING)
ANSWER = re.compile('"(?:text|reasoning_content|reasoning|name|arguments)"' + STRING)


def list_values(
    file: RecordingFile, chosen: Mapping[str, str], own: Mapping[str, str], before: int | None, models: Iterable[str]
) -> dict[str, Any]:
    """Return the values of one page of the list.

    ``chosen``: the filters. ``own``: the filter for the calls that the visitor may see. ``before``: the last call of
    the page before. ``models``: the configured models of the visitor.
    """
    calls = file.find_calls({**chosen, **own}, last=ROWS + 1, before=before, columns=COLUMNS)
    older = {**chosen, "before": calls[ROWS - 1]["id"]} if len(calls) > ROWS else None
    choices = {name: list(dict.fromkeys(values)) for name, values in _choices(file, own, models).items()}
    return {
        "problem": "",
        "filters": {name: chosen.get(name, "") for name in choices},
        "choices": {
            name: [*values, *[one for one in [chosen.get(name)] if one and one not in values]]
            for name, values in choices.items()
        },
        "calls": [{**listed_call(dict(call)), "link": call_link(call["id"], chosen)} for call in calls[:ROWS]],
        "older": older and "?" + urlencode(older),
        "newest": None if before is None else "?" + urlencode(chosen),
    }


def _choices(file: RecordingFile, own: Mapping[str, str], models: Iterable[str]) -> dict[str, Iterable[str]]:
    """Return the values that each filter may have. Of other clients, none is shown."""
    known = {name: [] if own else file.known_values(name) for name in ("model", "outcome", "key")}
    return {
        "model": [*models, *known["model"]],
        "outcome": [*LABEL_VALUES["outcome"], *(remedies() if own else known["outcome"])],
        "cut": CUTS,
        "run": [one["run"] for one in file.runs(own.get(OWNER), 0, MAX_VALUES)],
        "notice": LABEL_VALUES["rule"],
        **({} if own else {"key": known["key"]}),
    }


def call_link(number: int, chosen: Mapping[str, str]) -> str:
    """Return the address of a call below that of the list, with the filters of the list."""
    return f"/{number}?{urlencode({'id': number, **chosen})}"


def short_id(request_id: str) -> str:
    """Return the first 8 digits of an id of the gateway, or the first 20 characters of an id of the client."""
    return request_id[4:12] if request_id.startswith("req_") else beginning(request_id[:20])


def time_text(seconds: float) -> str:
    """Return a time, given in seconds since the epoch, in UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")


def listed_call(call: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a call in the list. ``call``: the values of ``COLUMNS``."""
    return {
        **{name: call[name] for name in NAMES},
        "short_id": short_id(call["request_id"]),
        "time": time_text(call["time"]),
        "notices": [one for one in call["notices"] or () if not one.startswith(HIDDEN)],
        "cut": call["answers_cut"] or [],
        "question": _question(call["asked_begin"] or "{}"),
        "answer": _answer(call["answer_begin"] or ""),
        "error": beginning(call["error"] or ""),
    }


def _question(asked: str) -> str:
    """Return the beginning of a question. ``asked``: JSON. Of a very long request, the last text that begins in it."""
    if len(asked) < MAX_ASKED:
        return beginning(plain_question(json.loads(asked)))
    return beginning("".join(_strings(QUESTION, asked)[-1:]))


def _answer(answer: str) -> str:
    """Return the beginning of the first choice: of its text, or else of its reasoning and its tool calls."""
    text, *others = _strings(ANSWER, answer) or [""]
    return beginning(text or " ".join(others))


def _strings(pattern: re.Pattern[str], begin: str) -> list[str]:
    return [json.loads(f'"{one}"') for one in pattern.findall(begin)]
