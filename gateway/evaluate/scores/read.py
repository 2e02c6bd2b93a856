"""Reads the files of evaluation harnesses. A file is known by its form, not by its name."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gateway.core.errors import InvalidValue
from gateway.evaluate.scores import evalscope, inspect_ai, lm_eval, opencompass, promptfoo
from gateway.evaluate.scores.row import ScoredRow

RowReader = Callable[[Path, Mapping[str, Any]], Iterator[ScoredRow]]
"""Yields the rows of a line, or of a file that is one object. Raises errors of Python for an object of another form."""
FORMATS: Mapping[frozenset[str], RowReader] = {
    frozenset({"doc_id", "resps", "filter", "metrics"}): lm_eval.rows_of,
    frozenset({"index", "sample_score"}): evalscope.rows_of,
    frozenset({"eval", "samples"}): inspect_ai.rows_of,
    frozenset({"evalId", "results"}): promptfoo.rows_of,
    frozenset({"details"}): opencompass.rows_of,
}
"""The keys of the first object of a file → the reader of this form."""
KNOWN = (
    "give lm-eval's samples (--log_samples), EvalScope's reviews, a log of inspect-ai as JSON (--log-format json, or "
    "inspect log dump), the output folder of OpenCompass or AISBench (--dump-eval-details), promptfoo's output as "
    'JSON, a folder with one of these, or lines {"custom_id": "…", "score": 0.5}'
)


@dataclass(slots=True)
class HarnessScores:
    """The rows of a harness."""

    rows: list[ScoredRow] = field(default_factory=list)
    labels: dict[str, None] = field(default_factory=dict)
    """The names of the scores that count, such as ``lm-eval exact_match``."""
    others: dict[str, None] = field(default_factory=dict)
    """The names of the scores that do not count."""
    rows_left_out: int = 0
    """The number of rows of tasks that do not have the score with the chosen name."""

    def has_several(self) -> bool:
        """Return whether tasks have scores of other names, which have no common mean."""
        return len({label.partition(" ")[2] for label in self.labels}) > 1


def read_harness(path: Path, metric: str = "", since: float = 0.0) -> HarnessScores:
    """Read a file, or all files of a known form below a folder. Raises ``InvalidValue``, and ``OSError``.

    ``metric``: the name of the score that counts, and tasks without it do not; by default the first one of each file.
    ``since``: files that were last changed before this time are left out.
    """
    found, places = HarnessScores(), dict[str, Path]()
    files = sorted([one for one in path.rglob("*") if one.is_file()]) if path.is_dir() else [path]
    new = [one for one in files if one.stat().st_mtime >= since]
    for file in new:
        for row in _rows(file, metric, found):
            if row.id in places:
                raise InvalidValue(f"the row {row.id} is in {places[row.id]} and in {file}; give the file of one run")
            places[row.id] = file
            found.rows.append(row)
    if not found.labels and (found.rows or found.rows_left_out):
        raise InvalidValue(f"{path}: no row has a score {metric}; the scores are {', '.join(found.others)}")
    if not found.rows:
        old = f"files that are older than the command do not count: {len(files) - len(new)}"
        raise InvalidValue(f"{path}: no scores of a known harness; {KNOWN if files == new else old}")
    return found


def _rows(file: Path, metric: str, found: HarnessScores) -> Iterator[ScoredRow]:
    """Yield the rows of a file. A row has several lines if each has other scores, as those of lm-eval's filters."""
    scored, others, names = set[str](), dict[str, ScoredRow](), dict[str, None]()
    reader: RowReader | None = None
    for number, value in json_objects(file):
        reader = reader or next((FORMATS[keys] for keys in FORMATS if keys <= value.keys()), None)
        if reader is None:
            return
        try:
            for row in reader(file, value):
                names |= dict.fromkeys(row.scores)
                metric = metric or next(iter(names), "")
                if metric in row.scores:
                    score = row.scores[metric]  # null or NaN: a judge has failed
                    scored.add(row.id)
                    yield replace(row, scores={}, score=None if score is None or score != score else float(score))
                else:
                    others.setdefault(row.id, row)
        except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError):
            what = f"not a row of a harness with a number as its score {metric}"
            raise InvalidValue(f"{file}:{number}: this is {what}; the scores are {', '.join(names)}") from None
    if scored or not names:
        yield from [row for name, row in others.items() if name not in scored]
    else:
        found.rows_left_out += len(others)
    found.labels |= {f"{name.partition(':')[0]} {metric}": None for name in scored}
    found.others |= dict.fromkeys([name for name in names if name != metric])


def json_objects(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the JSON objects on the lines of a file with the numbers of the lines, or the one that the file is.

    A file that does not begin with an object has none.
    """
    with path.open("rb") as file:
        if file.peek(1)[:1] != b"{":
            return
        head = file.readline()
        first = _object(head) or _object(head + file.read())
        if first is None:
            return
        yield 1, first
        for number, line in enumerate(file, 2):
            if line.strip():
                value = _object(line)
                if value is None:
                    raise InvalidValue(f"{path}:{number}: this line is not a JSON object; the file may be cut off")
                yield number, value


def _object(text: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
