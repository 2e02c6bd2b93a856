"""Why two runs differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from gateway.core.caller import Caller
from gateway.evaluate.analysis.why import Explanation, explain
from gateway.viewer.page import PageRequest
from gateway.viewer.runs.links import link_to, required, without
from gateway.viewer.runs.reader import RunReader

LOWER, HIGHER, ROWS, ALL_CAUSES = 0, 9, 6, 10
"""The colours of the picture: of a lower score, a higher score, rows, and all."""


def why_values(reader: RunReader, asked: PageRequest, caller: Caller) -> dict[str, Any]:
    """Return the values of the comparison of two runs."""
    a, b = required(asked, "a"), asked.query["b"]
    found: Explanation = reader.found(caller, explain, a, b)
    link = partial(link_to, asked, "rows", a=a, b=b)
    causes = [
        {"name": cause, "rows": rows, "score": part, "link": link(cause=cause)}
        for cause, (rows, part) in found.by_cause().items()
    ]
    return {
        "a": a,
        "b": b,
        "why": without(found.as_json(), "found", "causes"),
        "causes": causes,
        "scored": found.scored,
        "rows": link(),
        "partly": sum([not one.recorded for one in found.found]),
        "waterfall": _waterfall(causes, link(), scored=found.scored),
        "reports": [link_to(asked, "report", run=one) for one in (a, b)],
    }


def _waterfall(causes: Sequence[Mapping[str, Any]], link: str, *, scored: bool) -> list[dict[str, Any]]:
    """Return the steps of the picture, which are the parts of the score, or else the rows; and their sum."""
    values = [cause["score" if scored else "rows"] for cause in causes]
    colors = [LOWER if value < 0 else HIGHER if scored else ROWS for value in values]
    steps = [
        {"name": cause["name"], "link": cause["link"], "value": value, "color": color}
        for cause, value, color in zip(causes, values, colors, strict=True)
    ]
    return [*steps, {"name": "all", "link": link, "value": sum(values), "color": ALL_CAUSES, "total": True}]
