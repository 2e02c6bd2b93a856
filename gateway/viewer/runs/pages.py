"""The pages about runs. Each page is a method, which makes the values of its template in a thread."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from threading import Lock
from typing import Any
from urllib.parse import urlencode

from gateway.calls.service import GatewayState
from gateway.core.caller import Caller
from gateway.core.errors import InvalidValue
from gateway.evaluate.analysis.answer_class import CLASSES
from gateway.evaluate.analysis.report import GROUPS
from gateway.evaluate.analysis.rows import RunAnswer, RunRow
from gateway.evaluate.analysis.why import explain, first_different_step
from gateway.storage.recordings import is_interrupted
from gateway.viewer import charts
from gateway.viewer.page import Page, PageRequest, redirect
from gateway.viewer.page_threads import PageThreads
from gateway.viewer.runs.findings import HISTOGRAMS, PairFindings, RunFindings, findings_of, pair_findings
from gateway.viewer.runs.source import RecordedRuns, RunSource
from gateway.viewer.templating import provide
from metatemplate.templates.registry import first_difference
from metatemplate.values.words import excerpts, printable, utc

MOST_ROWS = 50
"""The maximum number of rows, runs, or values of a group on a page."""
LOWER, HIGHER, ROWS, ALL = 0, 9, 6, 10
"""The colours of pictures without classes: of a lower score, a higher score, rows, and all."""
TOO_LONG = "reading took too long; gateway report and gateway why read runs of any length"
KEPT = 4
"""The number of reports and comparisons that are kept in memory."""


class RunPages:
    """The pages about the runs of a source."""

    def __init__(self, source: RunSource, threads: PageThreads) -> None:
        provide(charts=charts)
        self._source = source
        self._threads = threads
        self._found: dict[tuple[Any, ...], Any] = {}
        """The key of the client, the runs and their states → what was found, the latest last. The pages of a key are
        made one after another, so equal requests read the runs once, also if a browser does not wait."""
        self._changing = Lock()
        """Held while a thread changes ``_found``."""
        self._pages: Mapping[str, Callable[[PageRequest, Caller], dict[str, Any]]] = {
            "": self._list, "report": self._report, "rows": self._rows, "why": self._why, "row": self._row,
        }  # fmt: skip

    async def page(self, asked: PageRequest) -> Page:
        """Return the page for a path below ``/runs``."""
        name = asked.path.removeprefix("/runs").strip("/")
        if name not in self._pages:
            return _problem("unknown page; /runs lists the runs", 404)
        if not asked.visitor.may_read or asked.visitor.caller is None:
            return _problem(asked.visitor.problem)
        if name == "why" and not asked.query.get("b"):
            return redirect(_link(asked, "report", run=asked.query.get("a", "")))
        try:
            values = await self._threads.run(asked.visitor.key, self._pages[name], asked, asked.visitor.caller)
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
        found = self._run(run, caller)
        report = found.report

        def counts(classes: Mapping[str, int], **facts: str) -> list[dict[str, Any]]:
            """Return the classes that occur, each with its rows and its colour."""
            return [
                {
                    "name": name, "value": classes[name], "color": at,
                    "link": _link(asked, "rows", run=run, **facts, **{"class": name}),
                }
                for at, name in enumerate(CLASSES) if classes.get(name)
            ]  # fmt: skip

        groups = []
        for group, values in report.groups.items():
            largest = sorted(values.items(), key=lambda item: (-item[1].total(), item[0]))
            rows = [
                {
                    "label": name, "value": classes.total(), "parts": counts(classes, **{group: name}),
                    "link": _link(asked, "rows", run=run, **{group: name}),
                }
                for name, classes in largest[:MOST_ROWS]
            ]  # fmt: skip
            groups.append({"name": group, "values": rows, "left_out": max(len(values) - MOST_ROWS, 0)})
        return {
            "run": run, "report": _without_groups(report.as_json()), "classes": counts(report.classes),
            "groups": groups,
            "histograms": [_histogram(asked, run, name, found) for name in HISTOGRAMS],
            "rows": _link(asked, "rows", run=run),
            "compare": _link(asked, "", a=run) if len(self._source.runs(caller, 0, 2)) > 1 else "",
        }  # fmt: skip

    def _rows(self, asked: PageRequest, caller: Caller) -> dict[str, Any]:
        start = _number(asked.query.get("start", ""))
        if asked.query.get("b"):
            a, b = _required(asked, "a"), asked.query["b"]
            pair = self._pair(a, b, caller)
            cause = asked.query.get("cause")
            differing = [one for one in pair.explanation.found if cause in (None, one.cause)]
            total, shown = len(differing), [
                {
                    "row": one.custom_id, "cause": one.cause, "change": one.change, "remark": one.remark,
                    "text": one.differences.get(one.cause, ""),
                    "link": self._pair_link(asked, pair, a, b, one.custom_id),
                }
                for one in differing[start : start + MOST_ROWS]
            ]  # fmt: skip
            about: dict[str, Any] = {"a": a, "b": b, "run": "", "filters": {} if cause is None else {"cause": cause}}
        else:
            run = _required(asked, "run")
            rows = self._run(run, caller).selected(asked.query)
            total, shown = len(rows), [
                {
                    "row": row.custom_id, **row.facts, **{name: row.sizes.get(name) for name in HISTOGRAMS},
                    "score": row.score, "text": row.preview, "link": _link(asked, "row", run=run, row=row.custom_id),
                }
                for row in rows[start : start + MOST_ROWS]
            ]  # fmt: skip
            names = [name for name in ("class", *GROUPS, *HISTOGRAMS) if name in asked.query]
            about = {"a": "", "b": "", "run": run, "filters": {name: asked.query[name] for name in names}}
        following = _next(asked, "rows", start, total > start + MOST_ROWS)
        return {**about, "total": total, "start": start, "rows": shown, "next": following}

    def _why(self, asked: PageRequest, caller: Caller) -> dict[str, Any]:
        a, b = _required(asked, "a"), asked.query["b"]
        pair = self._pair(a, b, caller)
        found = pair.explanation
        causes = [
            {"name": cause, "rows": rows, "score": part, "link": _link(asked, "rows", a=a, b=b, cause=cause)}
            for cause, (rows, part) in found.by_cause().items()
        ]
        return {
            "a": a, "b": b,
            "why": {name: value for name, value in found.as_json().items() if name not in ("found", "causes")},
            "causes": causes, "scored": found.scored, "rows": _link(asked, "rows", a=a, b=b),
            "partly": sum([not one.recorded for one in found.found]),
            "waterfall": _waterfall(causes, _link(asked, "rows", a=a, b=b), scored=found.scored),
            "reports": [_link(asked, "report", run=one) for one in (a, b)],
        }  # fmt: skip

    def _row(self, asked: PageRequest, caller: Caller) -> dict[str, Any]:
        name = _required(asked, "row")
        if not asked.query.get("b"):
            run = _required(asked, "run")
            with ExitStack() as files:
                row = self._one(files, run, caller, name).with_facts()
            return {
                "row": name, "place": "", "differences": {}, "change": None,
                "columns": [_column(run, row, _marked(row.facts.prompt, None), [None] * len(row.answers))],
            }  # fmt: skip
        a, b = _required(asked, "a"), asked.query["b"]
        with ExitStack() as files:
            one = self._one(files, a, caller, name).with_facts()
            other = self._one(files, b, caller, asked.query.get("other", name)).with_facts()
        found = explain([one], [other], self._source.score)
        (one, other), _ = first_different_step(one, other)
        text, other_text, difference = one.facts.prompt, other.facts.prompt, next(iter(found.found), None)
        return {
            "row": name, "place": _place(text, other_text),
            "differences": dict(difference.differences) if difference else {},
            "change": found.changes[0] if found.scored and found.changes else None,
            "columns": [
                _column(a, one, _marked(text, other_text), [answer.text for answer in other.answers]),
                _column(b, other, _marked(other_text, text), [answer.text for answer in one.answers]),
            ],
        }  # fmt: skip

    def _one(self, files: ExitStack, run: str, caller: Caller, name: str) -> RunRow:
        """Return the row of a run. Raises ``InvalidValue``."""
        rows = self._source.rows(files, run, caller, name)
        row = next((row for row in rows if row.custom_id == name), None)
        if row is None:
            raise InvalidValue("the run has no such row")
        return row

    def _run(self, run: str, caller: Caller) -> RunFindings:
        def read() -> RunFindings:
            with ExitStack() as files:
                return findings_of(self._source.rows(files, run, caller), self._source.score)

        found: RunFindings = self._kept((caller.key, run, self._source.state(run, caller)), read)
        return found

    def _pair(self, a: str, b: str, caller: Caller) -> PairFindings:
        def read() -> PairFindings:
            with ExitStack() as files:
                one, other = [self._source.rows(files, run, caller) for run in (a, b)]
                return pair_findings(one, other, self._source.score)

        states = [self._source.state(run, caller) for run in (a, b)]
        found: PairFindings = self._kept((caller.key, a, b, *states), read)
        return found

    def _kept(self, name: tuple[Any, ...], read: Callable[[], Any]) -> Any:
        """Return what was found before about unchanged runs, or read them."""
        with self._changing:
            found = self._found.pop(name, None)
        found = found or read()
        with self._changing:
            self._found[name] = found
            while len(self._found) > KEPT:
                del self._found[next(iter(self._found))]
        return found

    @staticmethod
    def _pair_link(asked: PageRequest, pair: PairFindings, a: str, b: str, row: str) -> str:
        other = {"other": pair.other_ids[row]} if row in pair.other_ids else {}
        return _link(asked, "row", a=a, b=b, row=row, **other)


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


def _without_groups(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return a report in JSON without the groups, which may have as many values as the run has rows."""
    return {name: value for name, value in report.items() if name != "by"}


def _histogram(asked: PageRequest, run: str, name: str, found: RunFindings) -> dict[str, Any]:
    histogram, values = HISTOGRAMS[name], [row.sizes[name] for row in found.rows if name in row.sizes]
    buckets = []
    for low, high, number in histogram.buckets(values):
        limits = f"{low:g}-{'' if high is None else f'{high:g}'}"
        link = _link(asked, "rows", run=run, **{name: limits})
        buckets.append({"name": limits, "label": f"{low:g}", "value": number, "color": ALL, "link": link})
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


def _column(run: str, row: RunRow, prompt: dict[str, str] | None, others: Sequence[str | None]) -> dict[str, Any]:
    """Return what a page shows of a row. ``others``: the texts of the other run's answers, to mark the difference."""
    facts, others = row.facts, [*others, *[None] * len(row.answers)]
    return {
        "run": run, "row": row.custom_id, "model": row.model, "template": facts.template, "target": facts.target,
        "error": row.error, "prompt": prompt, "params": None if facts.params is None else dict(facts.params),
        "answers": [_answer(answer, other) for answer, other in zip(row.answers, others, strict=False)],
    }  # fmt: skip


def _answer(answer: RunAnswer, other: str | None) -> dict[str, Any]:
    return {
        "text": _marked(answer.text, other), "reasoning": answer.reasoning, "refusal": answer.refusal,
        "tool_calls": [{"name": call.name, "arguments": call.arguments} for call in answer.tool_calls],
        "finish_reason": answer.finish_reason, "cut": answer.cut,
    }  # fmt: skip
