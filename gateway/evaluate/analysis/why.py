"""Why two runs of one dataset differ: the first difference of each row whose answer or score differs."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from math import isnan
from typing import Any, TypeVar

from gateway.core.errors import InvalidValue
from gateway.evaluate.analysis.client_text import beginning, client_text, expected_of, question_of, question_text
from gateway.evaluate.analysis.differences import DIFFERENCES, KINDS, NOT_RECORDED, SAMPLED, differences_of, kinds_of
from gateway.evaluate.analysis.pairing import pairs_of
from gateway.evaluate.analysis.rows import RunRow
from gateway.evaluate.analysis.sampling import DEFAULT_FLOOR, REMARKS, largest_shift, remark_of
from gateway.evaluate.analysis.scores import Mean, bootstrap, mcnemar

LINE_ID = re.compile(r"line-\d+")
"""The id that ``gateway run`` gives to a row without an id."""
FAILED, SCORING = "failed in one run", "scoring"
LIMIT = re.compile(r"\bmax_tokens (\d+) → (\d+)")
PROMPT = ("prompt", "prompt ids")
MOST_EXAMPLES = 10
ROW_CAUSES = (FAILED, SCORING, *DIFFERENCES, NOT_RECORDED)
"""The causes, in their order."""
REMARKS_OF: Mapping[str, tuple[str, ...]] = {**KINDS, SAMPLED: REMARKS}
"""Cause → the kinds of its rows."""
RowGroup = TypeVar("RowGroup")


@dataclass(frozen=True, slots=True)
class RowDifference:
    """A row whose answer or score differs."""

    custom_id: str
    other_id: str
    """The id of the row in the second run."""
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
    question: str = ""
    """The beginning of the question; empty if it is not recorded."""
    expected: str = ""
    """The beginning of the expected answer; empty if it is not known."""
    answers: tuple[str, str] = ("", "")
    """The beginnings of the answers in both runs, or the errors."""
    points: tuple[float | None, float | None] = (None, None)
    """The scores in both runs. None: not scored."""
    where: str = ""
    """The text about the first difference, with ``default`` for a ``max_tokens`` that the gateway has set from the
    length of the prompt: other rows have other numbers. Empty: no recorded fact differs."""

    @property
    def moved(self) -> str:
        """``fell`` or ``rose``; empty for the same score."""
        return "fell" if self.change < 0 else "rose" if self.change > 0 else ""


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
    duplicates: int = 0
    """The number of rows that were left out because a later row of the run has the same text."""
    unmatched: dict[str, list[str]] = field(default_factory=dict)
    """``a``, ``b`` → the ids of the rows of this run without a partner."""
    scored: bool = False
    binary: bool = True
    """Whether all scores are 0 or 1."""
    floor: float = DEFAULT_FLOOR
    """A gap of at most twice this is a near tie. See ``DEFAULT_FLOOR``."""
    changes: list[float] = field(default_factory=list)
    """The change of the score of each row that both runs have, and that both harnesses have scored."""
    totals: tuple[float, float] = (0.0, 0.0)
    """The sum of the scores of these rows in each run."""
    found: list[RowDifference] = field(default_factory=list)
    examples: dict[tuple[str, str], tuple[RowDifference, RunRow, RunRow]] = field(default_factory=dict)
    """Cause and ``where`` → their first row, which has all facts in both runs: ``MOST_EXAMPLES`` of each cause."""
    same: list[str] = field(default_factory=list)
    """The ids of the rows with the same answer and score in both runs."""
    targets: Counter[str] = field(default_factory=Counter)
    """``A → B`` for rows whose targets have other labels, and their number. A label is never a cause."""

    def add(self, a: RunRow, b: RunRow) -> None:
        """Compare a row of both runs."""
        self.scored |= a.points is not None
        scores = (a.points or 0.0, b.points or 0.0)
        change, labels = scores[1] - scores[0], (a.facts.target, b.facts.target)
        self.rows += 1
        if isnan(change):
            change = 0.0
        else:
            self.changes.append(change)
            self.totals = (self.totals[0] + scores[0], self.totals[1] + scores[1])
            self.binary &= {0, 1}.issuperset(scores)
        if all(labels) and labels[0] != labels[1]:
            self.targets[f"{labels[0]} → {labels[1]}"] += 1
        if a.answers != b.answers or a.error != b.error or change:
            a, b = a.with_facts(), b.with_facts()
            self.found.append(one := _difference(a, b, change, self.floor))
            if [cause for cause, _ in self.examples].count(one.cause) < MOST_EXAMPLES:
                self.examples.setdefault((one.cause, one.where), (one, a, b))
        else:
            self.same.append(a.custom_id)

    def grouped(self, group_of: Callable[[RowDifference], RowGroup]) -> dict[RowGroup, tuple[int, float]]:
        """Return for each group the number of rows and their part of the difference of the score, the largest first."""
        changes = defaultdict[RowGroup, list[float]](list)
        for one in self.found:
            changes[group_of(one)].append(one.change)
        found = {group: (len(own), sum(own) / max(len(self.changes), 1)) for group, own in changes.items()}
        return dict(sorted(found.items(), key=lambda item: (-abs(item[1][1]), -item[1][0])))

    def by_cause(self) -> dict[str, tuple[int, float]]:
        """Return ``grouped`` for the causes, in their order."""
        found = self.grouped(lambda one: one.cause)
        return {cause: found[cause] for cause in ROW_CAUSES if cause in found}

    def remarks(self, *causes: str) -> dict[str, int]:
        """Return the number of rows of each kind. ``causes``: only the kinds of these first differences."""
        found = Counter([(one.cause, one.kind) for one in self.found])
        kinds = [(cause, kind) for cause in causes or REMARKS_OF for kind in REMARKS_OF[cause]]
        return {kind: found[cause, kind] for cause, kind in kinds if found[cause, kind]}

    def mcnemar(self) -> dict[str, float] | None:
        """Return how many rows fell and rose, and the p of the exact test; None if a score is neither 0 nor 1."""
        fell, rose = sum([one < 0 for one in self.changes]), sum([one > 0 for one in self.changes])
        return {"fell": fell, "rose": rose, "p": mcnemar(fell, rose)} if self.scored and self.binary else None

    def scores(self) -> tuple[float, float] | None:
        """Return the mean score of each run, over the rows in ``changes``; None without a score."""
        count = max(len(self.changes), 1)
        return (self.totals[0] / count, self.totals[1] / count) if self.scored else None

    def difference(self) -> Mean:
        """Return the mean change of the score of a row, with its interval (a paired bootstrap)."""
        return bootstrap(self.changes)

    def as_json(self) -> dict[str, Any]:
        """Return the comparison as a JSON object."""
        return {**self.summary(), "found": [asdict(one) for one in self.found]}

    def summary(self) -> dict[str, Any]:
        """Return the comparison as a JSON object, without its rows."""
        causes = {cause: {"rows": rows, "score": part} for cause, (rows, part) in self.by_cause().items()}
        counts = ("rows", "only_a", "only_b", "ambiguous", "uncertain", "duplicates", "unmatched")
        return {
            **{name: getattr(self, name) for name in counts},
            "unscored": self.rows - len(self.changes),
            "differing": len(self.found),
            "causes": causes,
            "remarks": self.remarks(),
            "floor": self.floor,
            "scores": self.scores(),
            "difference": asdict(self.difference()) if self.scored else None,
            "mcnemar": self.mcnemar(),
            "targets": dict(self.targets),
        }


Match = Callable[[Iterable[RunRow], Iterable[RunRow], Explanation], list[tuple[RunRow, RunRow]]]
"""Returns the rows that both runs have, in pairs, and counts the others in the explanation."""


def explain(
    a: Iterable[RunRow],
    b: Iterable[RunRow],
    floor: float = DEFAULT_FLOOR,
    visit: Callable[[RunRow, RunRow], None] = lambda a, b: None,
    match: Match | None = None,
) -> Explanation:
    """Match the rows of two runs and find the first difference of each row whose answer or score differs.

    ``floor``: see ``DEFAULT_FLOOR``. ``visit``: called for each row that both runs have. ``match``: by default
    ``match_ids``.
    """
    result = Explanation(floor=floor)
    pairs = (match or match_ids)(a, b, result)
    # row-2 before row-10
    for row, other in sorted(pairs, key=lambda pair: (len(pair[0].custom_id), pair[0].custom_id)):
        visit(row, other)
        result.add(row, other)
    return result


def match_ids(a: Iterable[RunRow], b: Iterable[RunRow], result: Explanation) -> list[tuple[RunRow, RunRow]]:
    """Match rows by their id, else by the hash of the client's request with ``gateway.repeat``: see ``Match``.

    Of several equal requests, the first of one run matches the first of the other. The number of a line is an id only
    for other requests.
    """
    runs, repeated, pairs = (dict[str, RunRow](), dict[str, RunRow]()), set[str](), list[tuple[RunRow, RunRow]]()
    for rows, left in zip((a, b), runs, strict=True):
        for row in rows:
            if row.custom_id in left:
                repeated.add(row.custom_id)
            left[row.custom_id] = row
    for left in runs:
        for name in repeated & left.keys():
            del left[name]
    for keys_of in (_by_id, _by_request, _by_line):
        names, others = [keys_of(left) for left in runs]
        pairs += [(runs[0].pop(name), runs[1].pop(others[key])) for key, name in names.items() if key in others]
    result.only_a, result.only_b, result.ambiguous = len(runs[0]), len(runs[1]), len(repeated)
    result.unmatched = {"a": [*runs[0]], "b": [*runs[1]]}
    return pairs


def match_questions(a: Iterable[RunRow], b: Iterable[RunRow], result: Explanation) -> list[tuple[RunRow, RunRow]]:
    """Match rows by the texts of their questions: see ``Match``. Of equal texts in a run, the last row counts.

    Raises ``InvalidValue`` if a run has no recorded text.
    """
    runs, texts, left = list[list[RunRow]](), list[list[str]](), list[dict[str, RunRow]]()
    for name, rows in (("first", a), ("second", b)):
        asked, unknown = dict[str, tuple[str, RunRow]](), dict[str, RunRow]()
        for row in rows:
            if (one := row.read_asked()) is None:
                unknown[row.custom_id] = row
            else:
                result.duplicates += (text := client_text(one)) in asked
                asked[text] = question_text(one), row
        if not asked:
            raise InvalidValue(
                f"no row of the {name} run has the recorded text of its client; record both runs, without `redact`"
            )
        texts.append([text for text, _ in asked.values()])
        runs.append([row for _, row in asked.values()])
        left.append(unknown | {row.custom_id: row for row in runs[-1]})
    numbers, result.uncertain = pairs_of(*texts)
    pairs = [(runs[0][at], runs[1][to]) for at, to in numbers]
    for pair in pairs:
        for run, row in zip(left, pair, strict=True):
            run.pop(row.custom_id, None)
    result.only_a, result.only_b = len(left[0]) - result.uncertain, len(left[1])
    result.unmatched = {"a": [*left[0]], "b": [*left[1]]}
    return pairs


MATCHES: Mapping[str, Match] = {"id": match_ids, "question": match_questions}
"""Value of ``--match`` → how the rows of two runs match."""


def measured_floor(a: Iterable[RunRow], again: Iterable[RunRow]) -> float | None:
    """Return the floor of two runs with equal settings: see ``DEFAULT_FLOOR``. None: they have no log probabilities."""
    pairs = ((one.with_facts(), other.with_facts()) for one, other in match_ids(a, again, Explanation()))
    same = (pair for pair in pairs if pair[0].facts.prompt_sha256 == pair[1].facts.prompt_sha256)
    return max((shift for pair in same if (shift := largest_shift(*pair)) is not None), default=None)


def _by_id(rows: Mapping[str, RunRow]) -> Mapping[Hashable, str]:
    """Return the ids of the rows. The number of a line needs the same request."""
    return {(name, row.facts.request if LINE_ID.fullmatch(name) else None): name for name, row in rows.items()}


def _by_request(rows: Mapping[str, RunRow]) -> Mapping[Hashable, str]:
    """Return the ids of the rows, each by its request, its repeat, and how many rows up to this one have both."""
    counts, found = Counter[tuple[str, int]](), dict[Hashable, str]()
    for name, row in rows.items():
        if row.facts.request is not None:
            key = (row.facts.request, row.facts.repeat)
            counts[key] += 1
            found[*key, counts[key]] = name
    return found


def _by_line(rows: Mapping[str, RunRow]) -> Mapping[Hashable, str]:
    return {name: name for name in rows}


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


def _difference(a: RunRow, b: RunRow, change: float, floor: float) -> RowDifference:
    (a, b), differences, remark = *first_different_step(a, b), ""
    same = differences.keys().isdisjoint(PROMPT)
    if SAMPLED in differences and (found := remark_of(a, b, floor, same_prompt=same)) is not None:
        differences[SAMPLED] += f", {found.text}"
        remark = found.kind
    if change and a.answers and a.answers == b.answers:
        differences = {SCORING: "the same answer has another score", **differences}
    if a.error != b.error:
        differences = {FAILED: f"{a.error or 'answered'} → {b.error or 'answered'}", **differences}
    cause = next(iter(differences), NOT_RECORDED)
    kind = remark if cause == SAMPLED else next(iter(kinds_of(cause, a, b)), "")
    recorded = a.facts.raw is not None and b.facts.raw is not None
    limits = ["default" if row.facts.default_limit else rf"\{number}" for number, row in enumerate((a, b), 1)]
    return RowDifference(
        *(a.custom_id, b.custom_id, cause, differences, change, remark, kind, recorded),
        question=question_of(a) or question_of(b),
        expected=expected_of(a) or expected_of(b),
        answers=(beginning(a.first_text()), beginning(b.first_text())),
        points=(a.known_points(), b.known_points()),
        where=LIMIT.sub(f"max_tokens {limits[0]} → {limits[1]}", differences.get(cause, "")),
    )
