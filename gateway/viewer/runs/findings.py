"""The report of a run, and the comparison of two, with the rows behind each number."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from sys import intern

from gateway.core.errors import InvalidValue
from gateway.evaluate.analysis.report import GROUPS, RunReport, report_of
from gateway.evaluate.analysis.rows import RunRow
from metatemplate.values.words import printable, quoted

PREVIEW = 80
"""The number of characters of an answer that a list of rows shows."""
STEPS = (1, 2, 5)
SECONDS = (0.0, *[step * 10.0**power for power in range(-3, 4) for step in STEPS])
CHARACTERS = (0.0, *[step * 10.0**power for power in range(6) for step in STEPS])


@dataclass(frozen=True, slots=True)
class RowSummary:
    """What a list shows of a row."""

    custom_id: str
    facts: Mapping[str, str]
    """``class`` and each name of ``GROUPS`` → the value of the row."""
    sizes: Mapping[str, float]
    """Name of a histogram → the value of the row, if it is known."""
    score: float | None
    preview: str
    """The beginning of the first answer, or the error."""


@dataclass(frozen=True, slots=True)
class Histogram:
    """A histogram over the rows of a run. The limits of its buckets are the same for all runs."""

    unit: str
    limits: Sequence[float]
    """The lower limit of each bucket."""

    def buckets(self, values: Iterable[float]) -> list[tuple[float, float | None, int]]:
        """Return the lower limit, the upper limit and the number of values of each bucket, without empty ones outside.

        The last of all buckets has no upper limit.
        """
        limits = [*pairwise(self.limits), (self.limits[-1], None)]
        numbers = [0] * len(limits)
        for value in values:
            numbers[bisect_right(self.limits, value) - 1] += 1
        filled = [at for at, number in enumerate(numbers) if number]
        kept = range(filled[0], filled[-1] + 1) if filled else ()
        return [(*limits[at], numbers[at]) for at in kept]


HISTOGRAMS: Mapping[str, Histogram] = {
    "duration": Histogram("seconds", SECONDS),
    "answer length": Histogram("characters", CHARACTERS),
}


@dataclass(frozen=True, slots=True)
class RunFindings:
    """The report of a run, and its rows."""

    report: RunReport
    rows: Sequence[RowSummary]

    def selected(self, asked: Mapping[str, str]) -> list[RowSummary]:
        """Return the rows with the values in a query: of ``class`` and of groups, and a range of each histogram."""
        rows = list(self.rows)
        for name in ("class", *GROUPS):
            if name in asked:
                rows = [row for row in rows if row.facts[name] == asked[name]]
        for name in HISTOGRAMS:
            if name in asked:
                low, high = _range(asked[name])
                rows = [row for row in rows if name in row.sizes and low <= row.sizes[name] < high]
        return rows


def findings_of(rows: Iterable[RunRow]) -> RunFindings:
    """Read the rows of a run once."""
    found: list[RowSummary] = []
    report = report_of(rows, lambda row, name, value: found.append(_summary(row, name, value)))
    return RunFindings(report, found)


def _summary(row: RunRow, name: str, score: float | None) -> RowSummary:
    facts = {"class": name, **{group: intern(value_of(row)) for group, value_of in GROUPS.items()}}
    sizes = {} if row.seconds is None else {"duration": row.seconds}
    if row.answers:
        sizes["answer length"] = float(sum([len(answer.text) for answer in row.answers]))
    text = row.error or next((one.text or one.reasoning or one.refusal for one in row.answers), "")
    return RowSummary(row.custom_id, facts, sizes, score, printable(text[:PREVIEW]))


def _range(text: str) -> tuple[float, float]:
    """Return the limits in a text such as ``0.5-1``; the upper limit may be missing. Raises ``InvalidValue``."""
    low, _, high = text.partition("-")
    try:
        return float(low), float(high or "inf")
    except ValueError:
        raise InvalidValue(f"{quoted(text)} is not a range such as 0.5-1") from None
