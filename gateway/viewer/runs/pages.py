"""The pages about runs. Each page is a method, which makes the values of its template in a thread."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from itertools import chain, repeat
from threading import Lock
from typing import Any, TypeVar
from urllib.parse import urlencode

from gateway.calls.service import GatewayState
from gateway.core.caller import Caller
from gateway.core.errors import InvalidValue
from gateway.evaluate.analysis.answer_class import CLASSES
from gateway.evaluate.analysis.report import GROUPS
from gateway.evaluate.analysis.rows import RunRow
from gateway.evaluate.analysis.why import Explanation, RowDifference, explain, first_different_step
from gateway.storage.recordings import is_interrupted
from gateway.viewer import charts
from gateway.viewer.page import Page, PageRequest, redirect
from gateway.viewer.page_threads import PageThreads
from gateway.viewer.runs.findings import HISTOGRAMS, RowSummary, RunFindings, findings_of
from gateway.viewer.runs.source import RecordedRuns, RunSource
from gateway.viewer.templating import provide
from metatemplate.templates.registry import first_difference
from metatemplate.values.words import excerpts, printable, utc

MOST_ROWS = 50
"""The maximum number of rows, runs, or values of a group on a page."""
LOWER, HIGHER, ROWS, ALL = 0, 9, 6, 10
"""The colours of pictures without classes: of a lower score, a higher score, rows, and all."""
TOO_LONG = "reading took too long; gateway report and gateway why read runs of any length"
Listed = TypeVar("Listed")
KEPT = 4
"""The number of reports and comparisons that are kept in memory."""


class RunPages:
    """The pages about the runs of a source."""

    def __init__(self, source: RunSource, threads: PageThreads) -> None:
        provide(charts=charts)
        self._source = source
        self._threads = threads
        self._kept: dict[tuple[Any, ...], Any] = {}
        """The key of the client, the runs and their states → what was found, the latest last. The pages of a key are
        made one after another, so equal requests read the runs once, also if a browser does not wait."""
        self._changing = Lock()
        """Held while a thread changes ``_kept``."""
        self._pages = {"": self._list, "report": self._report, "rows": self._rows, "row": self._row}
        self._pair_pages = {"": self._list, "why": self._why, "rows": self._pair_rows, "row": self._pair_row}

    async def page(self, asked: PageRequest) -> Page:
        """Return the page for a path below ``/runs``."""
        name = asked.path.removeprefix("/runs").strip("/")
        if name not in (*self._pages, "why"):
            return _problem("unknown page; /runs lists the runs", 404)
        if not asked.visitor.may_read or asked.visitor.caller is None:
            return _problem(asked.visitor.problem)
        is_pair = bool(asked.query.get("b"))
        if name == "why" and not is_pair:
            return redirect(_link(asked, "report", run=asked.query.get("a", "")))
        make = self._pair_pages.get(name, self._report) if is_pair else self._pages[name]
        try:
            values = await self._threads.run(asked.visitor.key, make, asked, asked.visitor.caller)
        except InvalidValue as error:
            return _problem(error.message, 404 if name else 200)
        except (OSError, sqlite3.Error) as error:
            reason = TOO_LONG if is_interrupted(error) else getattr(error, "strerror", error)
            return _problem(f"the runs cannot be read: {reason}", 500)
        return Page(f"runs/{name or 'list'}.html", {"problem": "", **values})

    def _list(self, asked: PageRequest, caller: Caller) -> dict[str, Any]:
        start = _number(asked.query.get("start", ""))
        runs = self._source.runs(caller, start, MOST_ROWS + 1)
        shown = [
            {
                **one,
                **{name: one[name] and utc(one[name]) for name in ("first", "last")},
                "link": _link(asked, "report", run=one["run"]),
            }
            for one in runs[:MOST_ROWS]
        ]
        return {"a": asked.query.get("a", ""), "runs": shown, "next": _next(asked, "", start, len(runs) > MOST_ROWS)}

    def _report(self, asked: PageRequest, caller: Caller) -> dict[str, Any]:
        run = _required(asked, "run")
        found: RunFindings = self._found(caller, findings_of, run)
        link = partial(_link, asked, "rows", run=run)

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
            "report": _without(found.report.as_json(), "by"),  # a group may have as many values as the run has rows
            "classes": counts(found.report.classes),
            "groups": groups,
            "histograms": [_histogram(link, name, found) for name in HISTOGRAMS],
            "rows": link(),
            "compare": _link(asked, "", a=run) if len(self._source.runs(caller, 0, 2)) > 1 else "",
        }

    def _rows(self, asked: PageRequest, caller: Caller) -> dict[str, Any]:
        run = _required(asked, "run")
        found: RunFindings = self._found(caller, findings_of, run)

        def shown(row: RowSummary) -> dict[str, Any]:
            sizes = {name: row.sizes.get(name) for name in HISTOGRAMS}
            link = _link(asked, "row", run=run, row=row.custom_id)
            return {"row": row.custom_id, **row.facts, **sizes, "score": row.score, "text": row.preview, "link": link}

        filters = {name: asked.query[name] for name in ("class", *GROUPS, *HISTOGRAMS) if name in asked.query}
        return {"a": "", "b": "", "run": run, "filters": filters, **_listed(asked, found.selected(asked.query), shown)}

    def _pair_rows(self, asked: PageRequest, caller: Caller) -> dict[str, Any]:
        a, b, cause = _required(asked, "a"), asked.query["b"], asked.query.get("cause")
        found: Explanation = self._found(caller, explain, a, b)

        def shown(one: RowDifference) -> dict[str, Any]:
            other = {"other": one.other_id} if one.other_id != one.custom_id else {}
            return {
                "row": one.custom_id,
                "cause": one.cause,
                "change": one.change,
                "remark": one.kind or one.remark,
                "text": one.differences.get(one.cause, ""),
                "link": _link(asked, "row", a=a, b=b, row=one.custom_id, **other),
            }

        differing = [one for one in found.found if cause in (None, one.cause)]
        filters = {} if cause is None else {"cause": cause}
        return {"a": a, "b": b, "run": "", "filters": filters, **_listed(asked, differing, shown)}

    def _why(self, asked: PageRequest, caller: Caller) -> dict[str, Any]:
        a, b = _required(asked, "a"), asked.query["b"]
        found: Explanation = self._found(caller, explain, a, b)
        link = partial(_link, asked, "rows", a=a, b=b)
        causes = [
            {"name": cause, "rows": rows, "score": part, "link": link(cause=cause)}
            for cause, (rows, part) in found.by_cause().items()
        ]
        return {
            "a": a,
            "b": b,
            "why": _without(found.as_json(), "found", "causes"),
            "causes": causes,
            "scored": found.scored,
            "rows": link(),
            "partly": sum([not one.recorded for one in found.found]),
            "waterfall": _waterfall(causes, link(), scored=found.scored),
            "reports": [_link(asked, "report", run=one) for one in (a, b)],
        }

    def _row(self, asked: PageRequest, caller: Caller) -> dict[str, Any]:
        name, run = _required(asked, "row"), _required(asked, "run")
        row = self._one(run, caller, name)
        return {"row": name, "place": "", "differences": {}, "change": None, "columns": [_column(run, row, None)]}

    def _pair_row(self, asked: PageRequest, caller: Caller) -> dict[str, Any]:
        name, a, b = _required(asked, "row"), _required(asked, "a"), asked.query["b"]
        one = self._one(a, caller, name)
        other = self._one(b, caller, asked.query.get("other", name))
        found = explain([one], [other])
        (one, other), _ = first_different_step(one, other)
        return {
            "row": name,
            "place": _place(one.facts.prompt, other.facts.prompt),
            "differences": found.found[0].differences if found.found else {},
            "change": found.changes[0] if found.scored and found.changes else None,
            "columns": [_column(a, one, other), _column(b, other, one)],
        }

    def _one(self, run: str, caller: Caller, name: str) -> RunRow:
        """Return the row of a run with all its facts. Raises ``InvalidValue``."""
        with ExitStack() as files:
            for row in self._source.rows(files, run, caller, name):
                if row.custom_id == name:
                    return row.with_facts()
        raise InvalidValue("the run has no such row")

    def _found(self, caller: Caller, find: Callable[..., Any], *runs: str) -> Any:
        """Return what was found before about unchanged runs, or read them. ``find``: gets their rows."""
        name = (caller.key, *runs, *[self._source.state(run, caller) for run in runs])
        with self._changing:
            found = self._kept.pop(name, None)
        if found is None:
            with ExitStack() as files:
                rows = [self._source.rows(files, run, caller) for run in runs]
                found = find(*rows)
        with self._changing:
            self._kept[name] = found
            while len(self._kept) > KEPT:
                del self._kept[next(iter(self._kept))]
        return found


class RecordedRunPages(RunPages):
    """The pages about the runs in the recordings of this gateway."""

    def __init__(self, state: GatewayState, threads: PageThreads) -> None:
        super().__init__(RecordedRuns(state), threads)


def _problem(text: str, status: int = 200) -> Page:
    return Page("runs/problem.html", {"problem": text}, status)


def _required(asked: PageRequest, name: str) -> str:
    """Return a value of the query. Raises ``InvalidValue``."""
    if not asked.query.get(name):
        raise InvalidValue(f"the address must have a value for {name}")
    return asked.query[name]


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def _link(asked: PageRequest, page: str, **query: str) -> str:
    return f"{asked.root}/runs{page and f'/{page}'}?{urlencode(query)}"


def _next(asked: PageRequest, page: str, start: int, more: bool) -> str:
    """Return the address of the next rows; empty if there are no more."""
    return _link(asked, page, **{**asked.query, "start": str(start + MOST_ROWS)}) if more else ""


def _listed(asked: PageRequest, found: Sequence[Listed], shown: Callable[[Listed], dict[str, Any]]) -> dict[str, Any]:
    """Return the rows of one page, and the address of the next one."""
    start = _number(asked.query.get("start", ""))
    return {
        "total": len(found),
        "start": start,
        "rows": [shown(one) for one in found[start : start + MOST_ROWS]],
        "next": _next(asked, "rows", start, len(found) > start + MOST_ROWS),
    }


def _without(values: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in names}


def _histogram(link: Callable[..., str], name: str, found: RunFindings) -> dict[str, Any]:
    """Return the buckets of a histogram. ``link``: returns the address of the rows with a value."""
    histogram, values = HISTOGRAMS[name], [row.sizes[name] for row in found.rows if name in row.sizes]
    buckets = []
    for low, high, number in histogram.buckets(values):
        limits = f"{low:g}-{'' if high is None else f'{high:g}'}"
        bucket = {"name": limits, "label": f"{low:g}", "value": number, "color": ALL, "link": link(**{name: limits})}
        buckets.append(bucket)
    return {"name": name, "unit": histogram.unit, "buckets": buckets}


def _waterfall(causes: Sequence[Mapping[str, Any]], link: str, *, scored: bool) -> list[dict[str, Any]]:
    """Return the steps of the picture, which are the parts of the score, or else the rows; and their sum."""
    values = [cause["score" if scored else "rows"] for cause in causes]
    colors = [LOWER if value < 0 else HIGHER if scored else ROWS for value in values]
    steps = [
        {"name": cause["name"], "link": cause["link"], "value": value, "color": color}
        for cause, value, color in zip(causes, values, colors, strict=True)
    ]
    return [*steps, {"name": "all", "link": link, "value": sum(values), "color": ALL, "total": True}]


def _place(one: str | None, other: str | None) -> str:
    """Return the place of the first difference of two prompts; empty if they are equal or not known."""
    if one is None or other is None or one == other:
        return ""
    return excerpts(one, other, first_difference(one, other))[0]


def _marked(text: str | None, other: str | None) -> dict[str, str] | None:
    """Return a text in three parts: up to the first difference from ``other``, the different character, and the rest.

    If one of the texts is not known, or both are equal, the first part is the whole text.
    """
    if text is None:
        return None
    if other is None or text == other:
        return {"same": text, "different": "", "rest": ""}
    at = first_difference(text, other)
    return {"same": text[:at], "different": printable(text[at : at + 1]) or "end of the text", "rest": text[at + 1 :]}


def _column(run: str, row: RunRow, other: RunRow | None) -> dict[str, Any]:
    """Return what a page shows of a row. ``other``: the row of the other run, to mark the differences."""
    facts = row.facts
    other_prompt, texts = (None, []) if other is None else (other.facts.prompt, [one.text for one in other.answers])
    return {
        "run": run,
        "row": row.custom_id,
        "model": row.model,
        "template": facts.template,
        "target": facts.target,
        "error": row.error,
        "prompt": _marked(facts.prompt, other_prompt),
        "params": facts.params,
        "answers": [
            {**asdict(answer), "text": _marked(answer.text, text)}
            for answer, text in zip(row.answers, chain(texts, repeat(None)), strict=False)
        ],
    }
