"""Finds the recorded calls of each row of a harness."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from math import nan
from typing import Any

from gateway.evaluate.analysis.client_text import client_text
from gateway.evaluate.analysis.rows import RowFacts, RunRow
from gateway.evaluate.scores.read import HarnessScores
from gateway.evaluate.scores.row import PREFIX, RowRequest, ScoredRow, one_line, text_hash
from metatemplate.values.words import printable

ID, TEXT_AND_ANSWER, TEXT = slice(1), slice(1, 3), slice(1, 2)
"""The parts of a ``RowRequest`` by which a call is found."""
NO_CALL = "no_call"
"""The error of a row without a recorded call."""
LINES = {
    "rows_without_score": "rows that the harness has not scored, which are 0 in the mean of a run",
    "rows_without_call": "rows without a recorded call",
    "rows_with_other_answer": "rows with another answer than the recorded one, as in the scores of another run",
    "rows_left_out": "rows of tasks without this score, which do not count",
    "calls_without_row": "calls that belong to no row",
    "other_scores": "other scores, for --scores PATH:NAME",
}
"""Name of a count → its line."""


def shown(value: int | list[str] | dict[str, int]) -> str:
    """Return a number, names, or the numbers of calls by model as a text."""
    names = [f"{number} of {model}" for model, number in value.items()] if isinstance(value, dict) else value
    return ", ".join(names) if isinstance(names, list) else str(names)


@dataclass(frozen=True, slots=True)
class JoinedRun:
    """The rows of a harness with their calls."""

    rows: list[RunRow]
    scores: HarnessScores
    left: Counter[str]
    """Model → the number of its calls that belong to no row, such as those of a judge."""
    recorded: Counter[bool | None]
    """Whether the answers in the file are recorded → the number of such rows. None: a row has no answers, or no call.
    """

    def as_json(self) -> dict[str, Any]:
        """Return the mean of each task, and what was counted, as a JSON object."""
        tasks = defaultdict[str, list[float]](list)
        for row in self.scores.rows:
            tasks[row.id.rpartition("/")[0]].append(row.score or 0.0)
        return {
            "scores": list(self.scores.labels),
            "tasks": {name: {"rows": len(points), "mean": sum(points) / len(points)} for name, points in tasks.items()},
            "rows_without_score": sum([one.score is None for one in self.scores.rows]),
            "rows_without_call": sum([row.error == NO_CALL for row in self.rows]),
            "rows_with_other_answer": self.recorded[False],
            "rows_left_out": self.scores.rows_left_out,
            "calls_without_row": dict(self.left),
            "other_scores": list(self.scores.others),
        }

    def lines(self) -> Iterator[str]:
        """Yield a line for each of several tasks, for what rows lack, for calls without a row, and for other scores."""
        found = self.as_json()
        if self.scores.has_several():
            yield ""
            yield printable(f"no mean of several scores; --scores PATH:NAME chooses one: {shown(found['scores'])}")
        for name, one in found["tasks"].items() if len(found["tasks"]) > 1 else ():
            yield printable(f"{name}: {one['mean']:.3f} over {one['rows']} rows")
        yield from [printable(f"{text}: {shown(found[key])}") for key, text in LINES.items() if found[key]]


def joined(calls: Iterable[RunRow], scores: HarnessScores) -> JoinedRun:
    """Return a row for each row of the harness, with its calls.

    A call belongs to the row that has the id of its response; else to one with the client's text and the answer; else
    to one with the client's text. Calls and rows are in their order, and calls without an answer come last. Of more
    answers than rows the last ones count, because a harness scores its last attempt.
    """
    known, taken, pools = list(calls), set[int](), defaultdict[tuple[Any, ...], list[int]](list)
    for number in sorted(range(len(known)), key=lambda at: (bool(known[at].error), at)):
        for key in _keys(known[number]):
            pools[key].append(number)

    def free(key: tuple[Any, ...], count: int) -> Iterator[int]:
        """Return at least ``count`` calls with a key that belong to no row yet, if there are so many."""
        pool = [at for at in pools.get(key, ()) if at not in taken]
        answered = sum([not known[at].error for at in pool])
        return iter(pool[max(0, answered - count) :])

    requests = [request for row in scores.rows for request in row.requests]
    found: list[RunRow | None] = [None] * len(requests)
    for part in (ID, TEXT_AND_ANSWER, TEXT):
        wanted = Counter([request[part] for request, call in zip(requests, found, strict=True) if call is None])
        queues = {key: free(key, count) for key, count in wanted.items()}
        for place in [at for at, call in enumerate(found) if call is None]:
            for number in islice(queues[requests[place][part]], 1):
                taken.add(number)
                found[place] = known[number]
    each = iter(found)
    groups = [[next(each) for _ in row.requests] for row in scores.rows]
    rows = [_row(row, [call for call in own if call]) for row, own in zip(scores.rows, groups, strict=True)]
    left = Counter([call.model for at, call in enumerate(known) if at not in taken])
    recorded = Counter([_is_recorded(row.requests, own) for row, own in zip(scores.rows, groups, strict=True)])
    return JoinedRun(rows, scores, left, recorded)


def _keys(call: RunRow) -> Iterator[tuple[Any, ...]]:
    """Yield the id of a call, its text with its answer, and its text."""
    yield (PREFIX.sub("", call.request_id),)
    asked = call.read_asked() or {}
    text = client_text(asked)
    if not text and asked.get("prompts"):  # token ids: with ``echo``, lm-eval receives their texts and one token
        tokens = call.with_facts().facts.tokens or ((),)
        text = "".join([token.text for token in tokens[0][:-1]])
    if known := text_hash(text):
        yield known, text_hash(_answer_text(call))
        yield (known,)


def _answer_text(call: RunRow) -> str:
    return one_line(" ".join([answer.text for answer in call.answers]))


def _is_recorded(requests: Sequence[RowRequest], calls: Sequence[RunRow | None]) -> bool | None:
    """Return whether the answers of a row are those of its calls. None: it has no answers, or no call.

    Without ids of responses, the texts are compared: a harness may keep only a part of an answer, or write the
    reasoning before it.
    """
    found = []
    for (name, *_, end), call in zip(requests, calls, strict=True):
        if end and call and call.answers:
            text, kept = _answer_text(call), str(end)
            is_part = kept in text or (bool(text) and kept.endswith(text))
            found.append(name == PREFIX.sub("", call.request_id) if name else is_part)
    return all(found) if found else None


def _row(scored: ScoredRow, calls: Sequence[RunRow]) -> RunRow:
    """Return the row of a run. A row whose harness received no text, as of log-likelihoods, has no answers."""
    points = nan if scored.score is None else scored.score
    if not calls:
        return RunRow(custom_id=scored.id, model="unknown", error=NO_CALL, points=points)
    has_answers = any(answer is not None for _, _, answer, _ in scored.requests)
    return replace(
        calls[-1],
        custom_id=scored.id,
        points=points,
        error=next((call.error for call in calls if call.error), ""),
        answers=tuple([answer for call in calls for answer in call.answers]) if has_answers else (),
        seconds=sum([call.seconds or 0.0 for call in calls]),
        read_facts=calls[-1].read_facts if len(calls) == 1 else partial(_facts, calls),
        read_calls=lambda: [one for call in calls for one in call.read_calls()],
    )


def _facts(calls: Sequence[RunRow]) -> tuple[RowFacts, tuple[RowFacts, ...]]:
    """Return the facts of the last call, and of every request of all calls."""
    read = [call.with_facts() for call in calls]
    return read[-1].facts, tuple([step for call in read for step in call.steps or (call.facts,)])
