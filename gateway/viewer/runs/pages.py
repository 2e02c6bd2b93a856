"""The pages about runs. The values of each page are made by one function, in a thread."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from typing import Any

from gateway.calls.service import GatewayState
from gateway.core.caller import Caller
from gateway.core.errors import InvalidValue
from gateway.storage.recordings import is_interrupted
from gateway.viewer import charts
from gateway.viewer.page import Page, PageRequest, redirect
from gateway.viewer.page_threads import PageThreads
from gateway.viewer.runs.links import link_to
from gateway.viewer.runs.pair_list import pair_list_values
from gateway.viewer.runs.reader import RunReader
from gateway.viewer.runs.report import report_values, row_list_values
from gateway.viewer.runs.row import pair_row_values, row_values
from gateway.viewer.runs.run_list import list_values
from gateway.viewer.runs.source import RecordedRuns, RunSource
from gateway.viewer.runs.why import why_values
from gateway.viewer.templating import provide

TOO_LONG = "reading took too long; gateway report and gateway why read runs of any length"
PageValues = Callable[[RunReader, PageRequest, Caller], dict[str, Any]]
"""Returns the values of a page."""
RUN_PAGES: Mapping[str, PageValues] = {
    "": list_values,
    "report": report_values,
    "rows": row_list_values,
    "row": row_values,
}
"""The last part of a path → the values of a page about one run."""
PAIR_PAGES: Mapping[str, PageValues] = {
    "": list_values,
    "why": why_values,
    "rows": pair_list_values,
    "row": pair_row_values,
}
"""The last part of a path → the values of a page about two runs."""


class RunPages:
    """The pages about the runs of a source."""

    def __init__(self, source: RunSource, threads: PageThreads) -> None:
        provide(charts=charts)
        self._reader = RunReader(source)
        self._threads = threads

    async def page(self, asked: PageRequest) -> Page:
        """Return the page for a path below ``/runs``."""
        name = asked.path.removeprefix("/runs").strip("/")
        if name not in (*RUN_PAGES, "why"):
            return _problem("unknown page; /runs lists the runs", 404)
        if not asked.visitor.may_read or asked.visitor.caller is None:
            return _problem(asked.visitor.problem)
        is_pair = bool(asked.query.get("b"))
        if name == "why" and asked.query.get("b", "") in ("", asked.query.get("a")):
            return redirect(link_to(asked, "report", run=asked.query.get("a", "")))
        make = PAIR_PAGES.get(name, report_values) if is_pair else RUN_PAGES[name]
        try:
            values = await self._threads.run(asked.visitor.key, make, self._reader, asked, asked.visitor.caller)
        except InvalidValue as error:
            return _problem(error.message, 404 if name else 200)
        except (OSError, sqlite3.Error) as error:
            reason = TOO_LONG if is_interrupted(error) else getattr(error, "strerror", error)
            return _problem(f"the runs cannot be read: {reason}", 500)
        template = "pair_rows" if is_pair and name == "rows" else name or "list"
        return Page(f"runs/{template}.html", {"problem": "", **values})


class RecordedRunPages(RunPages):
    """The pages about the runs in the recordings of this gateway."""

    def __init__(self, state: GatewayState, threads: PageThreads) -> None:
        super().__init__(RecordedRuns(state), threads)


def _problem(text: str, status: int = 200) -> Page:
    return Page("runs/problem.html", {"problem": text}, status)
