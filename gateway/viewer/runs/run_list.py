"""The list of runs."""

from __future__ import annotations

from typing import Any

from gateway.core.caller import Caller
from gateway.viewer.page import PageRequest
from gateway.viewer.runs.links import MOST_ROWS, link_to, next_link, number_of
from gateway.viewer.runs.reader import RunReader
from metatemplate.values.words import utc


def list_values(reader: RunReader, asked: PageRequest, caller: Caller) -> dict[str, Any]:
    """Return the values of the list of runs, the latest first."""
    start = number_of(asked.query.get("start", ""))
    runs = reader.source.runs(caller, start, MOST_ROWS + 1)
    shown = [
        {
            **one,
            **{name: one[name] and utc(one[name]) for name in ("first", "last")},
            "link": link_to(asked, "report", run=one["run"]),
        }
        for one in runs[:MOST_ROWS]
    ]
    return {"a": asked.query.get("a", ""), "runs": shown, "next": next_link(asked, "", start, len(runs) > MOST_ROWS)}
