"""The list of the rows that differ."""

from __future__ import annotations

from typing import Any

from gateway.core.caller import Caller
from gateway.evaluate.analysis.why import Explanation, RowDifference, explain
from gateway.viewer.page import PageRequest
from gateway.viewer.runs.links import link_to, listed, required
from gateway.viewer.runs.reader import RunReader


def pair_list_values(reader: RunReader, asked: PageRequest, caller: Caller) -> dict[str, Any]:
    """Return the values of the list of the rows that differ."""
    a, b, cause = required(asked, "a"), asked.query["b"], asked.query.get("cause")
    found: Explanation = reader.found(caller, explain, a, b)

    def shown(one: RowDifference) -> dict[str, Any]:
        other = {"other": one.other_id} if one.other_id != one.custom_id else {}
        return {
            "row": one.custom_id,
            "cause": one.cause,
            "change": one.change,
            "remark": one.kind or one.remark,
            "text": one.differences.get(one.cause, ""),
            "link": link_to(asked, "row", a=a, b=b, row=one.custom_id, **other),
        }

    differing = [one for one in found.found if cause in (None, one.cause)]
    filters = {} if cause is None else {"cause": cause}
    return {"a": a, "b": b, "run": "", "filters": filters, **listed(asked, differing, shown)}
