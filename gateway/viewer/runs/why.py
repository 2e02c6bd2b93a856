"""Why two runs differ."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import Any

from gateway.core.caller import Caller
from gateway.evaluate.analysis.client_text import plain_question
from gateway.evaluate.analysis.rows import RunRow
from gateway.evaluate.analysis.why import RowDifference, first_different_step
from gateway.evaluate.reporting.lines import (
    count_lines,
    difference_lines,
    headline,
    kind_lines,
    target_lines,
    why_lines,
)
from gateway.viewer.page import PageRequest
from gateway.viewer.runs.links import kept, link_to, without
from gateway.viewer.runs.pair_list import PAIR, compared, row_link
from gateway.viewer.runs.reader import RunReader
from gateway.viewer.runs.row import marked

LOWER, HIGHER, ROWS = 0, 9, 6
"""The colours of the picture: of a lower score, a higher score, and rows."""
MOST_PLACES = 10
"""The maximum number of places of differences on the page."""
BEFORE, AFTER = 60, 140
"""The number of characters of a text that an example shows before and after the first difference."""


def why_values(reader: RunReader, asked: PageRequest, caller: Caller) -> dict[str, Any]:
    """Return the values of the comparison of two runs."""
    found, notes = compared(reader.read, asked, caller)
    runs = kept(asked, "a", "b")
    link = partial(link_to, asked, "rows", **kept(asked, *PAIR))

    def step(rows: int, part: float, **filters: str) -> dict[str, Any]:
        """Return rows with the same first difference, as a step of the picture."""
        color = ROWS if not found.scored else LOWER if part < 0 else HIGHER
        shown = {"rows": rows, "score": part, "value": part if found.scored else rows, "color": color}
        return {**filters, **shown, "link": link(**filters)}

    causes = found.grouped(lambda one: one.cause)
    places = list(found.grouped(lambda one: (one.cause, one.where)).items())
    return {
        **runs,
        "headline": headline(found),
        "counts": list(count_lines(found, **runs))[1:],
        "notes": notes,
        "details": [*kind_lines(found), *target_lines(found)],
        "lines": list(why_lines(found, **runs)),
        "why": without(found.summary(), "causes"),
        "causes": [{"name": cause, **step(*value, cause=cause)} for cause, value in causes.items()],
        "rows": link(),
        "moved": {moved: link(moved=moved) for moved in ("fell", "rose")},
        "by_question": link_to(asked, "why", **runs, match="question"),
        "places": [
            {**step(*value, cause=name[0], where=name[1]), "example": _example(asked, found.examples.get(name))}
            for name, value in places[:MOST_PLACES]
        ],
        "further_places": len(places[MOST_PLACES:]),
        "reports": [link_to(asked, "report", run=one) for one in runs.values()],
    }


def _example(asked: PageRequest, example: tuple[RowDifference, RunRow, RunRow] | None) -> dict[str, Any] | None:
    """Return what the page shows of the first row of a place."""
    if example is None:
        return None
    one, *rows = example
    (a, b), _ = first_different_step(*rows)
    return {
        **asdict(one),
        "link": row_link(asked, one, cause=one.cause, where=one.where),
        "lines": [line.strip() for line in difference_lines(one)],
        "questions": _around(*[plain_question(row.facts.asked or {}) for row in (a, b)]),
        "prompts": _around(a.facts.prompt, b.facts.prompt),
        "answers": _around(a.first_text(), b.first_text()),
    }


def _around(a: str | None, b: str | None) -> list[dict[str, Any]]:
    """Return two texts around their first difference, each as ``marked``; empty if one is not known."""
    if a is None or b is None:
        return []
    return [
        {**one, "same": one["same"][-BEFORE:], "rest": one["rest"][:AFTER]}
        | {"is_cut": [len(one["same"]) > BEFORE, len(one["rest"]) > AFTER]}
        for one in (marked(a, b), marked(b, a))
    ]
