"""The list of runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gateway.core.caller import Caller
from gateway.viewer.page import PageRequest
from gateway.viewer.runs.findings import RunFindings, findings_of
from gateway.viewer.runs.links import MOST_ROWS, link_to, number_of, part_link
from gateway.viewer.runs.reader import RunReader
from metatemplate.values.words import utc

UNKNOWN = {
    **dict.fromkeys(("models", "templates", "times"), ()),
    **dict.fromkeys(("rows", "failed", "cut", "empty", "score")),
}
"""What the list shows of a run that was not read in time."""


def list_values(reader: RunReader, asked: PageRequest, caller: Caller) -> dict[str, Any]:
    """Return the values of the list of runs, the latest first."""
    start = number_of(asked.query.get("start", ""))
    runs = reader.source.runs(caller, start, MOST_ROWS + 1)
    shown = []
    for one in runs[:MOST_ROWS]:
        known = {**UNKNOWN, **(one if len(one) > 1 else _counts(reader.found(caller, findings_of, one["run"]))), **one}
        times = known["times"]
        known |= {"times": [*map(utc, times)], "seconds": times[1] - times[0] if times else None}
        shown.append({**known, "link": link_to(asked, "report", run=one["run"])})
    older = part_link(asked, "", start + MOST_ROWS, len(runs) > MOST_ROWS)
    return {"a": asked.query.get("a", ""), "chosen": comparable(shown), "runs": shown, "next": older}


def comparable(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the latest two runs with equally many rows, the older one first, or else the latest two."""
    later = dict[int, str]()
    for one in runs:
        if one["rows"] in later:
            return [one["run"], later[one["rows"]]]
        if one["rows"]:
            later[one["rows"]] = one["run"]
    return [one["run"] for one in runs[1::-1]]


def _counts(found: RunFindings) -> Mapping[str, Any]:
    """Return what the list shows of a run that was read."""
    report = found.report
    return {
        "models": sorted(report.groups["model"]),
        "templates": sorted({one.partition("@")[0] for one in found.facts.get("template", ())}),
        "rows": report.rows,
        "failed": report.classes["failed"],
        "cut": report.classes["cut by context"] + report.classes["cut by length"],
        "empty": report.classes["empty"],
        "score": report.all_rows and report.all_rows.mean,
        "times": found.times,
    }
