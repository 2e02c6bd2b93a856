"""Why two runs of one dataset differ: the first difference of each row whose answer or score differs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from gateway.core.errors import InvalidValue
from gateway.evaluate.analysis.client_text import client_text, question_text
from gateway.evaluate.analysis.differences import DIFFERENCES, KINDS, NOT_RECORDED, SAMPLED, differences_of, kinds_of
from gateway.evaluate.analysis.pairing import RunTexts, pairs_of
from gateway.evaluate.analysis.rows import RunRow
from gateway.evaluate.analysis.sampling import DEFAULT_FLOOR, REMARKS, largest_shift, remark_of
from gateway.evaluate.analysis.scores import Mean, RowScore, bootstrap, mcnemar

LINE_ID = re.compile(r"line-\d+")
"""The id that ``gateway run`` gives to a row without an id."""
FAILED = "failed in one run"
PROMPT = ("prompt", "prompt ids")
ROW_CAUSES = (FAILED, *DIFFERENCES, NOT_RECORDED)
"""The causes, in their order."""
REMARKS_OF: Mapping[str, tuple[str, ...]] = {**KINDS, SAMPLED: REMARKS}
"""Cause → the kinds of its rows."""


@dataclass(frozen=True, slots=True)
class RowDifference:
    """A row whose answer or score differs."""

    custom_id: str
    cause: str
    """The first difference, one of ``ROW_CAUSES``."""
    differences: dict[str, str]
    """All differences, the first one first, each with a text about it."""
    change: float
    """The score in the second run minus the score in the first run; 0 without a score."""
    remark: str = ""
    """The kind of the remark about the first different token, one of ``REMARKS``; empty if no token was compared."""
    kind: str = ""
    """The kind of the first difference, one of ``REMARKS_OF`` its cause. Empty: it has none."""
    recorded: bool = True
    """False: one of the runs has no recording of the row, so only the facts of its output were compared."""


@dataclass(frozen=True, slots=True)
class RowComparison:
    """A row of both runs."""

    change: float
    """The score in the second run minus the score in the first run; 0 without a score."""
    targets: str
    """The labels of the targets, if they differ."""
    binary: bool
    """Whether both scores are 0 or 1."""
    difference: RowDifference | None = None
    """None: both runs have the same answer and score."""


@dataclass(slots=True)
class Explanation:
    """The comparison of two runs."""

    rows: int = 0
    """The number of rows that both runs have."""
    only_a: int = 0
    only_b: int = 0
    ambiguous: int = 0
    """The number of ids that several rows of a run have. These rows are not compared."""
    uncertain: int = 0
    """The number of rows of the first run whose partner by the text of the question is not certain."""
    again: int = 0
    """The number of rows that were left out because a later row of the run has the same text."""
    unmatched: dict[str, list[str]] = field(default_factory=dict)
    """``a``, ``b`` → the ids of the rows of this run without a partner."""
    scored: bool = False
    binary: bool = True
    """Whether all scores are 0 or 1."""
    floor: float = DEFAULT_FLOOR
    """A gap of at most twice this is a near tie. See ``DEFAULT_FLOOR``."""
    changes: list[float] = field(default_factory=list)
    """The change of the score of each row that both runs have."""
    found: list[RowDifference] = field(default_factory=list)
    targets: Counter[str] = field(default_factory=Counter)
    """``A → B`` for rows whose targets have other labels, and their number. A label is never a cause."""

    def add(self, row: RowComparison) -> None:
        """Count a row of both runs."""
        self.rows += 1
        self.changes.append(row.change)
        self.binary &= row.binary
        if row.targets:
            self.targets[row.targets] += 1
        if row.difference is not None:
            self.found.append(row.difference)

    def by_cause(self) -> dict[str, tuple[int, float]]:
        """Return for each cause the number of rows and their part of the difference of the score, in the order."""
        rows, parts = Counter[str](), Counter[str]()
        for one in self.found:
            rows[one.cause] += 1
            parts[one.cause] += one.change  # type: ignore[assignment]  # a Counter of floats
        return {cause: (rows[cause], parts[cause] / max(self.rows, 1)) for cause in ROW_CAUSES if rows[cause]}

    def remarks(self, *causes: str) -> dict[str, int]:
        """Return the number of rows of each kind. ``causes``: only the kinds of these first differences."""
        found = Counter([(one.cause, one.kind) for one in self.found])
        kinds = [(cause, kind) for cause in causes or REMARKS_OF for kind in REMARKS_OF[cause]]
        return {kind: found[cause, kind] for cause, kind in kinds if found[cause, kind]}

    def mcnemar(self) -> dict[str, float] | None:
        """Return how many rows fell and rose, and the p of the exact test; None if a score is neither 0 nor 1."""
        fell, rose = sum([one < 0 for one in self.changes]), sum([one > 0 for one in self.changes])
        return {"fell": fell, "rose": rose, "p": mcnemar(fell, rose)} if self.scored and self.binary else None

    def difference(self) -> Mean:
        """Return the mean change of the score of a row, with its interval (a paired bootstrap)."""
        return bootstrap(self.changes)

    def as_json(self) -> dict[str, Any]:
        """Return the comparison as a JSON object."""
        causes = {cause: {"rows": rows, "score": part} for cause, (rows, part) in self.by_cause().items()}
        return {
            "rows": self.rows,
            "only_a": self.only_a,
            "only_b": self.only_b,
            "ambiguous": self.ambiguous,
            "uncertain": self.uncertain,
            "again": self.again,
            "unmatched": self.unmatched,
            "differing": len(self.found),
            "causes": causes,
            "remarks": self.remarks(),
            "floor": self.floor,
            "difference": asdict(self.difference()) if self.scored else None,
            "mcnemar": self.mcnemar(),
            "targets": dict(self.targets),
            "found": [asdict(one) for one in self.found],
        }


Match = Callable[[Iterable[RunRow], Iterable[RunRow], Explanation, Callable[[RunRow, RunRow], None]], Set[str]]
"""Calls the function with each pair of rows, and counts the others in the explanation.

Returns the ids whose pairs do not count, because a later row has the same id.
"""


def explain(
    a: Iterable[RunRow],
    b: Iterable[RunRow],
    score: RowScore | None = None,
    floor: float = DEFAULT_FLOOR,
    visit: Callable[[RunRow, RunRow], None] = lambda a, b: None,
    match: Match | None = None,
) -> Explanation:
    """Match the rows of two runs and find the first difference of each row whose answer or score differs.

    ``floor``: see ``DEFAULT_FLOOR``. ``visit``: called for each row that both runs have. ``match``: by default
    ``match_ids``.
    """
    result = Explanation(scored=score is not None, floor=floor)
    compared: list[tuple[str, RowComparison]] = []

    def compare(row: RunRow, other: RunRow) -> None:
        visit(row, other)
        compared.append((row.custom_id, _compare(row, other, score, floor)))

    repeated = (match or match_ids)(a, b, result, compare)
    for name, row in sorted(compared, key=lambda one: (len(one[0]), one[0])):  # row-2 before row-10
        if name not in repeated:
            result.add(row)
    return result


def match_ids(
    a: Iterable[RunRow], b: Iterable[RunRow], result: Explanation, compare: Callable[[RunRow, RunRow], None]
) -> Set[str]:
    """Match rows by their id, else by the hash of the client's request with ``gateway.repeat``: see ``Match``.

    Of several equal requests, the first of one run matches the first of the other. The number of a line is an id only
    for other requests. The second run is read row by row; the first is kept in memory, without the facts that are read
    only for rows that differ.
    """
    first, repeated = _by_id(a)
    compared, seen, later = set[str](), Counter[str](), list[RunRow]()
    for other in b:
        name = other.custom_id
        seen[name] += 1
        if seen[name] == 1 and name in first and not _is_another_line(first[name], other):
            compared.add(name)
            compare(first[name], other)
        else:
            later.append(other)
    repeated |= {name for name, count in seen.items() if count > 1}
    left = {name: row for name, row in first.items() if name not in compared and name not in repeated}
    rest = [row for row in later if row.custom_id not in repeated]
    for find in (_by_request(left.values(), rest), _by_line(left)):
        unmatched = []
        for other in rest:
            row = left.pop(find(other), None)
            if row is None:
                unmatched.append(other)
            else:
                compare(row, other)
        rest = unmatched
    result.only_a, result.only_b, result.ambiguous = len(left), len(rest), len(repeated)
    result.unmatched = {"a": [*left], "b": [row.custom_id for row in rest]}
    return repeated


def match_questions(
    a: Iterable[RunRow], b: Iterable[RunRow], result: Explanation, compare: Callable[[RunRow, RunRow], None]
) -> Set[str]:
    """Match rows by the texts of their questions: see ``Match``. Of equal texts in a run, the last row counts.

    Raises ``InvalidValue`` if a run has no recorded text.
    """
    runs, texts, left = list[list[RunRow]](), list[RunTexts](), list[dict[str, RunRow]]()
    for name, rows in (("first", a), ("second", b)):
        asked, unknown = dict[str, tuple[str, RunRow]](), dict[str, RunRow]()
        for row in rows:
            if (one := row.read_asked()) is None:
                unknown[row.custom_id] = row
            else:
                result.again += (text := client_text(one)) in asked
                asked[text] = question_text(one), row
        if not asked:
            raise InvalidValue(f"no row of the {name} run has the recorded text of its client; record both runs")
        texts.append(RunTexts(text for text, _ in asked.values()))
        runs.append([row for _, row in asked.values()])
        left.append(unknown | {row.custom_id: row for row in runs[-1]})
    pairs, result.uncertain = pairs_of(*texts)
    for at, to in pairs:
        row, partner = runs[0][at], runs[1][to]
        left[0].pop(row.custom_id, None)
        left[1].pop(partner.custom_id, None)
        compare(row, partner)
    result.only_a, result.only_b = len(left[0]) - result.uncertain, len(left[1])
    result.unmatched = {"a": [*left[0]], "b": [*left[1]]}
    return frozenset()


def measured_floor(a: Iterable[RunRow], again: Iterable[RunRow]) -> float | None:
    """Return the floor of two runs with equal settings: see ``DEFAULT_FLOOR``. None: they have no log probabilities."""
    shifts: list[float] = []

    def visit(one: RunRow, other: RunRow) -> None:
        one, other = one.with_facts(), other.with_facts()
        if one.facts.prompt_sha256 == other.facts.prompt_sha256:
            shifts.extend(shift for shift in [largest_shift(one, other)] if shift is not None)

    explain(a, again, visit=visit)
    return max(shifts, default=None)


def _by_id(rows: Iterable[RunRow]) -> tuple[dict[str, RunRow], set[str]]:
    """Return the rows by their id, and the ids that several rows have. Of such rows, none is returned."""
    found, repeated = dict[str, RunRow](), set[str]()
    for row in rows:
        if row.custom_id in found:
            repeated.add(row.custom_id)
        found[row.custom_id] = row
    for name in repeated:
        del found[name]
    return found, repeated


def _is_another_line(row: RunRow, other: RunRow) -> bool:
    """Return whether two rows only have the number of their line in common, and not the request."""
    one, two = row.facts.request, other.facts.request
    return bool(LINE_ID.fullmatch(row.custom_id)) and one is not None and two is not None and one != two


def _by_request(left: Iterable[RunRow], rest: Iterable[RunRow]) -> Callable[[RunRow], str]:
    """Return a function that finds the id of the row with the same request. ``rest``: the rows it is called with."""
    counts, names = Counter[tuple[str | None, int]](), {}
    for row in left:
        names[_request(row, counts)] = row.custom_id
    counts.clear()
    found = {id(row): names.get(_request(row, counts), "") for row in rest if row.facts.request is not None}
    return lambda row: found.get(id(row), "")


def _by_line(left: Mapping[str, RunRow]) -> Callable[[RunRow], str]:
    return lambda row: row.custom_id if row.custom_id in left else ""


def _request(row: RunRow, counts: Counter[tuple[str | None, int]]) -> tuple[str | None, int, int]:
    """Return the request of a row, its repeat, and how many rows up to this one have both."""
    key = (row.facts.request, row.facts.repeat)
    counts[key] += 1
    return (*key, counts[key])


def first_different_step(a: RunRow, b: RunRow) -> tuple[tuple[RunRow, RunRow], dict[str, str]]:
    """Return two rows with the facts of the first request to the model that differs, and the differences.

    A later turn contains the earlier answers, so its prompt would differ because of them.
    """
    steps = list(zip(a.steps, b.steps, strict=True)) if len(a.steps) == len(b.steps) else []
    for number, (one, other) in enumerate(steps, 1):
        rows = replace(a, facts=one), replace(b, facts=other)
        if found := differences_of(*rows):
            return rows, {name: f"request {number} of {len(steps)}: {text}" for name, text in found.items()}
    return (a, b), differences_of(a, b)


def _compare(a: RunRow, b: RunRow, score: RowScore | None, floor: float) -> RowComparison:
    scores = (score(a), score(b)) if score is not None else (0.0, 0.0)
    change, binary = scores[1] - scores[0], {0, 1}.issuperset(scores)
    labels = (a.facts.target, b.facts.target)
    targets = f"{labels[0]} → {labels[1]}" if all(labels) and labels[0] != labels[1] else ""
    if a.answers == b.answers and a.error == b.error and not change:
        return RowComparison(change, targets, binary)
    (a, b), differences, remark = *first_different_step(a.with_facts(), b.with_facts()), ""
    same = differences.keys().isdisjoint(PROMPT)
    if SAMPLED in differences and (found := remark_of(a, b, floor, same_prompt=same)) is not None:
        differences[SAMPLED] += f", {found.text}"
        remark = found.kind
    if a.error != b.error:
        differences = {FAILED: f"{a.error or 'answered'} → {b.error or 'answered'}", **differences}
    cause = next(iter(differences), NOT_RECORDED)
    kind = remark if cause == SAMPLED else next(iter(kinds_of(cause, a, b)), "")
    recorded = a.facts.raw is not None and b.facts.raw is not None
    return RowComparison(
        change, targets, binary, RowDifference(a.custom_id, cause, differences, change, remark, kind, recorded)
    )
