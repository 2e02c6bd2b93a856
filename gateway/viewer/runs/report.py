"""The report of a run, and the list of its rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from gateway.core.caller import Caller
from gateway.evaluate.analysis.answer_class import CLASSES
from gateway.evaluate.analysis.report import GROUPS
from gateway.viewer.page import PageRequest
from gateway.viewer.runs.findings import HISTOGRAMS, RowSummary, RunFindings, findings_of
from gateway.viewer.runs.links import MOST_ROWS, link_to, listed, required, without
from gateway.viewer.runs.reader import RunReader

ALL = 10
"""The colour of bars without classes."""


def report_values(reader: RunReader, asked: PageRequest, caller: Caller) -> dict[str, Any]:
    """Return the values of the report."""
    run = required(asked, "run")
    found: RunFindings = reader.found(caller, findings_of, run)
    link = partial(link_to, asked, "rows", run=run)

    def counts(classes: Mapping[str, int], **facts: str) -> list[dict[str, Any]]:
        """Return the classes that occur, each with its rows and its colour."""
        return [
            {"name": name, "value": classes[name], "color": at, "link": link(**facts, **{"class": name})}
            for at, name in enumerate(CLASSES)
            if classes.get(name)
        ]

    def bar(group: str, name: str, classes: Counter[str]) -> dict[str, Any]:
        """Return the value of a group with its rows, by class."""
        facts = {group: name}
        return {"label": name, "value": classes.total(), "parts": counts(classes, **facts), "link": link(**facts)}

    groups = []
    for group, values in found.report.groups.items():
        largest = sorted(values.items(), key=lambda item: (-item[1].total(), item[0]))[:MOST_ROWS]
        bars = [bar(group, name, classes) for name, classes in largest]
        groups.append({"name": group, "values": bars, "left_out": len(values) - len(bars)})
    return {
        "run": run,
        "report": without(found.report.as_json(), "by"),  # a group may have as many values as the run has rows
        "classes": counts(found.report.classes),
        "groups": groups,
        "histograms": [_histogram(link, name, found) for name in HISTOGRAMS],
        "rows": link(),
        "compare": link_to(asked, "", a=run) if len(reader.source.runs(caller, 0, 2)) > 1 else "",
    }


def row_list_values(reader: RunReader, asked: PageRequest, caller: Caller) -> dict[str, Any]:
    """Return the values of the list of the rows of a run."""
    run = required(asked, "run")
    found: RunFindings = reader.found(caller, findings_of, run)

    def shown(row: RowSummary) -> dict[str, Any]:
        sizes = {name: row.sizes.get(name) for name in HISTOGRAMS}
        link = link_to(asked, "row", run=run, row=row.custom_id)
        return {"row": row.custom_id, **row.facts, **sizes, "score": row.score, "text": row.preview, "link": link}

    filters = {name: asked.query[name] for name in ("class", *GROUPS, *HISTOGRAMS) if name in asked.query}
    return {"a": "", "b": "", "run": run, "filters": filters, **listed(asked, found.selected(asked.query), shown)}


def _histogram(link: Callable[..., str], name: str, found: RunFindings) -> dict[str, Any]:
    """Return the buckets of a histogram. ``link``: returns the address of the rows with a value."""
    histogram, values = HISTOGRAMS[name], [row.sizes[name] for row in found.rows if name in row.sizes]
    buckets = []
    for low, high, number in histogram.buckets(values):
        limits = f"{low:g}-{'' if high is None else f'{high:g}'}"
        bucket = {"name": limits, "label": f"{low:g}", "value": number, "color": ALL, "link": link(**{name: limits})}
        buckets.append(bucket)
    return {"name": name, "unit": histogram.unit, "buckets": buckets}
