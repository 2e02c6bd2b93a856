"""The report of a run, and the list of its rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from gateway.core.caller import Caller
from gateway.evaluate.analysis.answer_class import CLASSES
from gateway.evaluate.analysis.client_text import beginning
from gateway.viewer.page import PageRequest
from gateway.viewer.runs.findings import (
    HISTOGRAMS,
    ROW_FILTERS,
    RowSummary,
    RunFindings,
    buckets,
    findings_of,
    quantile,
)
from gateway.viewer.runs.links import MOST_ROWS, kept, link_to, listed, required, without
from gateway.viewer.runs.reader import RunReader
from metatemplate.values.words import utc

ALL = 10
"""The colour of bars without classes."""
COLORS = {**{name: at for at, name in enumerate(CLASSES)}, "whole": 11, "right": 9, "wrong": 0}
"""Class or verdict → colour. That of whole answers is neutral: they may be wrong."""


def report_values(reader: RunReader, asked: PageRequest, caller: Caller) -> dict[str, Any]:
    """Return the values of the report."""
    run = required(asked, "run")
    found, notes = reader.read(caller, findings_of, run)
    link = partial(link_to, asked, "rows", run=run)

    def counts(name: str, numbers: Mapping[str, int], **facts: str) -> list[dict[str, Any]]:
        """Return the values of a fact that occur, each with its rows and its colour."""
        return [
            {"name": value, "value": numbers[value], "color": color, "link": link(**facts, **{name: value})}
            for value, color in COLORS.items()
            if numbers.get(value)
        ]

    def bar(group: str, name: str, classes: Counter[str]) -> dict[str, Any]:
        """Return the value of a group with its rows, by class."""
        facts = {group: name}
        parts = counts("class", classes, **facts)
        return {"label": name, "value": classes.total(), "parts": parts, "link": link(**facts)}

    groups = []
    for group, values in found.report.groups.items():
        largest = sorted(values.items(), key=lambda item: (-item[1].total(), item[0]))[:MOST_ROWS]
        bars = [bar(group, name, classes) for name, classes in largest]
        groups.append({"name": group, "values": bars, "left_out": len(values) - len(bars)})
    return {
        "run": run,
        "report": without(found.report.as_json(), "by"),  # a group may have as many values as the run has rows
        "notes": notes,
        "score_name": reader.source.score_name(run),
        "classes": counts("class", found.report.classes),
        "verdicts": counts("verdict", Counter([row.facts["verdict"] for row in found.rows])),
        "groups": groups,
        "histograms": [_histogram(link, name, found) for name in HISTOGRAMS],
        "facts": {
            name: [{"value": beginning(value), "calls": calls} for value, calls in values.items()]
            for name, values in found.facts.items()
            if values
        },
        "totals": dict(found.totals),
        "times": [*map(utc, found.times)],
        "worst": [_shown(asked, run, row) for row in found.worst()],
        "rows": link(),
        "compare": link_to(asked, "", a=run),
    }


def row_list_values(reader: RunReader, asked: PageRequest, caller: Caller) -> dict[str, Any]:
    """Return the values of the list of the rows of a run."""
    run = required(asked, "run")
    found: RunFindings = reader.found(caller, findings_of, run)
    values = {name: sorted({row.facts[name] for row in found.rows} - {""})[:MOST_ROWS] for name in ROW_FILTERS}
    values["class"].sort(key=CLASSES.index)
    return {
        "run": run,
        "score": found.report.all_rows and found.report.all_rows.mean,
        "filters": kept(asked, *ROW_FILTERS, *HISTOGRAMS),
        "choices": {name: known for name, known in values.items() if len(known) > 1},
        **listed(asked, found.selected(asked.query), partial(_shown, asked, run)),
    }


def _shown(asked: PageRequest, run: str, row: RowSummary) -> dict[str, Any]:
    """Return a row as lists show it. Its link keeps the filters, for the next row."""
    query = {**without(asked.query, "start"), "run": run, "row": row.custom_id}
    sizes = {name: row.sizes.get(name) for name in HISTOGRAMS}
    return {"row": row.custom_id, **row.facts, **sizes, "score": row.score, "link": link_to(asked, "row", **query)}


def _histogram(link: Callable[..., str], name: str, found: RunFindings) -> dict[str, Any]:
    """Return the buckets of a histogram. ``link``: returns the address of the rows with a value."""
    ordered, shown = sorted([row.sizes[name] for row in found.rows if name in row.sizes]), list[dict[str, Any]]()
    for low, high, number in buckets(ordered, 1.0 if name == "answer length" else 0.0):
        start, end = f"{low:.10g}", "" if high is None else f"{high:.10g}"
        limits = f"{start} to {end}" if end else f"{start} and more"
        bucket = {"name": limits, "label": start, "value": number, "color": ALL}
        shown.append({**bucket, "link": link(**{name: f"{start}-{end}"})})
    middle = {"median": quantile(ordered, 0.5), "p95": quantile(ordered, 0.95)} if ordered else {}
    return {"name": name, "unit": HISTOGRAMS[name], "buckets": shown, **middle}
