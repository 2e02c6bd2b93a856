"""The report of a run with the rows behind each number, and the facts that its rows share."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby, islice, zip_longest
from sys import intern
from typing import Any

from gateway.core.errors import InvalidValue
from gateway.evaluate.analysis.answer_class import CLASSES
from gateway.evaluate.analysis.client_text import beginning, expected_of, question_of
from gateway.evaluate.analysis.report import GROUPS, RunReport, report_of
from gateway.evaluate.analysis.rows import RunRow
from gateway.wire.json import dump_json
from metatemplate.values.words import quoted

HISTOGRAMS = {"duration": "seconds", "answer length": "characters"}
"""Name of a histogram → its unit."""
MOST_BUCKETS = 12
STEPS = [float(f"{step}e{power}") for power in range(-3, 9) for step in (1, 2, 5)]
"""The widths of buckets."""
MOST_VALUES = 8
"""The number of values of a fact that are counted."""
WORST_ROWS = 10
VERDICTS: Mapping[float | None, str] = {None: "", 1.0: "right", 0.0: "wrong"}
"""Score → verdict. The rows of a run with other scores too have none: 1 may be the lowest mark."""
ROW_FILTERS = ("class", "verdict", *GROUPS)
"""The facts of a row by which a list is filtered."""
FACTS = ("template", "policy", "target", "version")
TOKENS = ("prompt_tokens", "completion_tokens")


@dataclass(frozen=True, slots=True)
class RowSummary:
    """What a list shows of a row."""

    custom_id: str
    facts: dict[str, str]
    """Each of ``ROW_FILTERS`` → the value of the row; ``question``, ``expected`` and ``answer`` → their beginnings.
    ``answer`` is the first one, or the error. ``verdict`` may be empty."""
    sizes: Mapping[str, float]
    """Name of a histogram → the value of the row, if it is known."""
    score: float | None


@dataclass(slots=True)
class RunFindings:
    """The report of a run, its rows by their ids, and what is recorded about its calls."""

    report: RunReport = field(default_factory=RunReport)
    rows: list[RowSummary] = field(default_factory=list)
    facts: dict[str, Counter[str]] = field(default_factory=dict)
    """``FACTS`` and parameters → value → calls; at most ``MOST_VALUES`` values."""
    totals: Counter[str] = field(default_factory=Counter)
    """The number of ``calls``, and the sums of ``TOKENS`` if they are recorded."""
    times: tuple[float, ...] = ()
    """When the first call began, and when the last one ended, as Unix times. Empty: not recorded."""

    def add(self, row: RunRow, name: str, score: float | None) -> None:
        """Add a row with its class and its score."""
        self.rows.append(_summary(row, name, score))
        known = {"template": row.facts.template, "target": row.facts.target, "params": row.facts.params}
        for call in row.read_calls() or [known]:
            self._add_call(call)

    def _add_call(self, call: Mapping[str, Any]) -> None:
        self.totals.update(calls=1, **{name: call[name] for name in TOKENS if call.get(name)})
        if "time" in call:
            times = (*self.times, call["time"], call["time"] + call["duration"])
            self.times = (min(times), max(times))
        facts = {**{name: call.get(name) for name in FACTS}, **(call["params"] or {})}
        for fact, value in facts.items():
            text = value if isinstance(value, str) else dump_json(value)
            counts = self.facts.setdefault(fact, Counter())
            if value not in (None, "", [], {}) and (text in counts or len(counts) < MOST_VALUES):
                counts[text] += 1

    def selected(self, asked: Mapping[str, str]) -> list[RowSummary]:
        """Return the rows with the values in a query: of ``ROW_FILTERS``, and a range of each histogram."""
        rows = self.rows
        for name in ROW_FILTERS:
            if asked.get(name):
                rows = [row for row in rows if row.facts[name] == asked[name]]
        for name in HISTOGRAMS:
            if asked.get(name):
                low, high = _range(asked[name])
                rows = [row for row in rows if name in row.sizes and low <= row.sizes[name] < high]
        return rows

    def worst(self) -> list[RowSummary]:
        """Return the rows to look at first: the first row of each class, the second one, and so on, sorted by class.

        Of the whole rows, these are the ones with the lowest scores below 1, or below the best of larger scores.
        """
        best = max([1.0, *[row.score for row in self.rows if row.score is not None]])
        found = [
            row
            for row in self.rows
            if row.facts["class"] != "whole" or (best if row.score is None else row.score) < best
        ]
        classes = [[*rows] for _, rows in groupby(sorted(found, key=_order), lambda row: row.facts["class"])]
        return sorted(islice(filter(None, chain.from_iterable(zip_longest(*classes))), WORST_ROWS), key=_order)


def findings_of(rows: Iterable[RunRow]) -> RunFindings:
    """Read the rows of a run once."""
    found = RunFindings()
    found.report = report_of(rows, found.add)
    found.rows.sort(key=lambda row: (len(row.custom_id), row.custom_id))  # row-2 before row-10
    is_binary = all(row.score in VERDICTS for row in found.rows)
    for row in found.rows:
        row.facts["verdict"] = VERDICTS[row.score] if is_binary else ""
    return found


def buckets(ordered: Sequence[float], least: float = 0.0) -> list[tuple[float, float | None, int]]:
    """Return the lower limit, the upper limit and the number of values of at most ``MOST_BUCKETS`` equal buckets.

    The last bucket has no upper limit if few values are far above the others. ``least``: the smallest width.
    """
    if not ordered:
        return []
    low, high = ordered[0], min(ordered[-1], 2 * quantile(ordered, 0.95) or ordered[-1])
    step = next((one for one in STEPS if one >= least and high // one - low // one < MOST_BUCKETS), STEPS[-1])
    limits = [float(f"{(low // step + at) * step:.10g}") for at in range(MOST_BUCKETS + 1)]
    last = bisect_right(limits[:-1], high) - 1
    numbers = Counter([min(bisect_right(limits, value) - 1, last) for value in ordered])
    ends = [*limits[1 : last + 1], None if ordered[-1] >= limits[last + 1] else limits[last + 1]]
    return [(limits[at], end, numbers[at]) for at, end in enumerate(ends)]


def quantile(ordered: Sequence[float], share: float) -> float:
    """Return a quantile of values by the nearest rank."""
    return ordered[round(share * (len(ordered) - 1))]


def _order(row: RowSummary) -> tuple[int, float]:
    """Return the place of a row among those to look at first."""
    return CLASSES.index(row.facts["class"]), row.score or 0.0


def _summary(row: RunRow, name: str, score: float | None) -> RowSummary:
    facts = {"class": name, **{group: intern(value_of(row)) for group, value_of in GROUPS.items()}}
    sizes = {} if row.seconds is None else {"duration": row.seconds}
    if row.answers:
        sizes["answer length"] = float(sum([len(answer.text) for answer in row.answers]))
    facts |= {"question": question_of(row), "expected": expected_of(row), "answer": beginning(row.first_text())}
    return RowSummary(row.custom_id, facts, sizes, score)


def _range(text: str) -> tuple[float, float]:
    """Return the limits in a text such as ``0.5-1``; the upper limit may be missing. Raises ``InvalidValue``."""
    low, _, high = text.partition("-")
    try:
        return float(low), float(high or "inf")
    except ValueError:
        raise InvalidValue(f"{quoted(text)} is not a range such as 0.5-1") from None
