"""The report of a run: how many answers are of each class, and the score over all and over whole answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from math import isnan
from typing import Any

from gateway.evaluate.analysis.answer_class import CLASSES, class_of, has_unchecked_call
from gateway.evaluate.analysis.rows import RunRow
from gateway.evaluate.analysis.scores import Mean, bootstrap
from gateway.evaluate.analysis.tool_check import ToolChecker

GROUPS: Mapping[str, Callable[[RunRow], str]] = {
    "model": lambda row: row.model,
    "dataset prompt": lambda row: row.dataset_prompt or "none",
    "finish reason": lambda row: ",".join(dict.fromkeys([one.finish_reason for one in row.answers])) or "none",
}
"""What a report counts the classes by → the value of a row."""


@dataclass(slots=True)
class RunReport:
    """The counts of a run."""

    rows: int = 0
    classes: Counter[str] = field(default_factory=Counter)
    groups: dict[str, dict[str, Counter[str]]] = field(default_factory=lambda: {name: {} for name in GROUPS})
    """Group → value → class → rows."""
    unchecked_calls: int = 0
    """The number of rows with a tool call of which only the form was checked: the tools are not recorded, or the schema
    of the tool cannot be checked."""
    all_rows: Mean | None = None
    """The score over all rows; a failed row counts as 0. None: no score was requested."""
    whole_rows: Mean | None = None
    """The score over the rows of the class ``whole``. This is a selection: easy rows are more often whole."""

    def as_json(self) -> dict[str, Any]:
        """Return the report as a JSON object."""
        value: dict[str, Any] = {
            "rows": self.rows,
            "classes": {name: self.classes[name] for name in CLASSES},
            "by": {name: {key: dict(counts) for key, counts in values.items()} for name, values in self.groups.items()},
            "unchecked_tool_calls": self.unchecked_calls,
        }
        if self.all_rows is not None and self.whole_rows is not None:
            value["score"] = {"all_rows": asdict(self.all_rows), "whole_rows": asdict(self.whole_rows)}
        return value


def report_of(
    rows: Iterable[RunRow],
    visit: Callable[[RunRow, str, float | None], None] = lambda row, found, value: None,
) -> RunReport:
    """Read the rows once and return their report.

    ``visit``: called for each row with its class, and with its score if there is one.
    """
    report, values, whole, checker = RunReport(), list[float](), list[float](), ToolChecker()
    for row in rows:
        found = class_of(row, checker)
        report.rows += 1
        report.classes[found] += 1
        for name, value_of in GROUPS.items():
            report.groups[name].setdefault(value_of(row), Counter())[found] += 1
        report.unchecked_calls += has_unchecked_call(row, checker)
        value = row.points
        if value is not None:
            value = 0.0 if isnan(value) else value
            values.append(value)
            if found == "whole":
                whole.append(value)
        visit(row, found, value)
    if values:
        report.all_rows, report.whole_rows = bootstrap(values), bootstrap(whole)
    return report
