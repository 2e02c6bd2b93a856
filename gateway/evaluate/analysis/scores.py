"""Scores of answers against a kept column, and bootstrap intervals of their mean."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson

from gateway.core.errors import InvalidValue
from gateway.evaluate.analysis.rows import RunRow
from metatemplate.values.json_values import JSON_TYPES

RESAMPLES = 1000
GROUPS = 1000
"""The maximum number of units that are resampled. Of more values, random groups of equal size are resampled: their mean
has the same expected variance, and 100 000 values need one second instead of a minute."""
LEVEL = 0.95
CHOICE = re.compile(r"(?<![A-Za-z0-9])([A-Z])(?![A-Za-z0-9])")
"""A capital letter that is a word of its own: the option that an answer names."""


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean with its bootstrap interval."""

    rows: int
    mean: float
    low: float
    high: float
    """The limits of the interval that contains ``LEVEL`` of the means of ``RESAMPLES`` samples."""


RowScore = Callable[[RunRow], float]
"""Returns the score of a row, from 0 to 1 for the scores of this module. NaN: a harness has not scored the row."""
Judge = Callable[[str, str], bool]
"""Returns whether the text of an answer is right. Arguments: the text, and the expected text.

Raises ``InvalidValue`` for an expected text that cannot be compared."""


def judge_of(score: str) -> Judge:
    """Return the judge for the value of ``--score``. Raises ``InvalidValue``."""
    kind, _, pattern = score.partition(":")
    if kind == "regex" and pattern:
        try:
            compiled = re.compile(pattern, re.MULTILINE)
        except re.error as error:
            raise InvalidValue(f"--score {score}: {error}") from None
        return lambda text, expected: _first(compiled, text) == expected.strip()
    if score not in JUDGES:
        raise InvalidValue(f"--score {score}: use {', '.join(JUDGES)} or regex:PATTERN")
    return JUDGES[score]


def _first(pattern: re.Pattern[str], text: str) -> str | None:
    found = pattern.search(text)
    return None if found is None else found[found.re.groups and 1]


def _contains(text: str, expected: str) -> bool:
    if not expected.strip():
        raise InvalidValue("is empty, and every answer contains an empty text")
    return expected.strip() in text


JUDGES: Mapping[str, Judge] = {
    "exact": lambda text, expected: text.strip() == expected.strip(),
    "contains": _contains,
    "choice": lambda text, expected: _first(CHOICE, text) == expected.strip(),
}
"""Value of ``--score`` → its judge."""


def score_of(row: RunRow, judge: Judge, column: str) -> float:
    """Return the share of a row's answers that are right; 0 for a failed row. Raises ``InvalidValue``.

    ``column``: the kept column with the expected value, a text or a number.
    """
    if column not in row.columns:
        raise InvalidValue(
            f'row {row.custom_id} has no column "{column}"; add it to the data and run with --keep {column}, or name '
            "another with --answer"
        )
    expected = row.columns[column]
    try:
        if type(expected) not in (str, int, float):
            raise InvalidValue(f"is {JSON_TYPES[type(expected)]}, not a text or a number")
        right = [judge(answer.text, str(expected)) for answer in row.answers]
    except InvalidValue as error:
        raise InvalidValue(
            f'row {row.custom_id}: the column "{column}" {error.message}; write the expected text, name another column '
            "with --answer, or score with another program (gateway report --scores)"
        ) from None
    return sum(right) / len(right) if right else 0.0


def read_scores(path: Path) -> dict[str, float]:
    """Return the scores in a file by the ids of their rows. Each line is ``{"custom_id": …, "score": …}``."""
    scores: dict[str, float] = {}
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                value = orjson.loads(line)
                scores[value["custom_id"]] = float(value["score"])
            except (ValueError, TypeError, KeyError):
                raise InvalidValue(f'{path}:{number}: write {{"custom_id": "…", "score": 0.5}}') from None
    return scores


def bootstrap(values: Sequence[float], seed: int = 0) -> Mean:
    """Return the mean of the values and its interval. The same values give the same interval in any order."""
    count = len(values)
    if not count:
        return Mean(0, 0.0, 0.0, 0.0)
    rng = random.Random(seed)
    shuffled = rng.sample(sorted(values), count)
    groups = [(sum(group), len(group)) for group in (shuffled[at::GROUPS] for at in range(min(GROUPS, count)))]
    means = sorted(_mean(rng.choices(groups, k=len(groups))) for _ in range(RESAMPLES))
    outside = round((1 - LEVEL) / 2 * RESAMPLES)
    return Mean(count, sum(values) / count, means[outside], means[-1 - outside])


def _mean(groups: Sequence[tuple[float, int]]) -> float:
    return sum([total for total, _ in groups]) / sum([size for _, size in groups])


def mcnemar(fell: int, rose: int) -> float:
    """Return the exact two-sided p of McNemar's test, from the numbers of rows whose score fell and rose.

    It is the probability of at least so unequal numbers if each of these rows had fallen or risen by chance.
    """
    count, ways, total = fell + rose, 1, 1
    for at in range(min(fell, rose)):
        ways = ways * (count - at) // (at + 1)
        total += ways
    return min(1.0, 2 * total / (1 << count))
