"""The list of the rows that differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from gateway.core.caller import Caller
from gateway.core.errors import InvalidValue
from gateway.evaluate.analysis.why import MATCHES, Explanation, RowDifference, explain
from gateway.viewer.page import PageRequest
from gateway.viewer.runs.links import MOST_ROWS, kept, link_to, listed, required
from gateway.viewer.runs.reader import RunReader

PAIR = ("a", "b", "match")
"""What the address of every page about two runs has."""
FILTERS = ("cause", "kind", "where", "moved")
"""The attributes of a row by which the list is filtered."""


def compared(read: Callable[..., Any], asked: PageRequest, caller: Caller) -> Any:
    """Return what a method of ``RunReader`` returns for the comparison of the two runs. Raises ``InvalidValue``."""
    match = asked.query.get("match") or "id"
    if match not in MATCHES:
        raise InvalidValue(f"match={match}: use {' or '.join(MATCHES)}")
    return read(caller, explain, required(asked, "a"), required(asked, "b"), match=MATCHES[match])


def selected(found: Explanation, asked: PageRequest) -> list[RowDifference]:
    """Return the rows with the values of the filters in the query."""
    wanted = kept(asked, *FILTERS)
    return [one for one in found.found if all(getattr(one, name) == value for name, value in wanted.items())]


def row_link(asked: PageRequest, one: RowDifference, **filters: str) -> str:
    """Return the address of a row, with ``filters``, or else those of its list."""
    other = {"other": one.other_id} if one.other_id != one.custom_id else {}
    return link_to(asked, "row", **kept(asked, *PAIR), **(filters or kept(asked, *FILTERS)), row=one.custom_id, **other)


def pair_list_values(reader: RunReader, asked: PageRequest, caller: Caller) -> dict[str, Any]:
    """Return the values of the list of the rows that differ."""
    found: Explanation = compared(reader.found, asked, caller)
    rows = selected(found, asked)
    counts = {name: Counter([value for one in found.found if (value := getattr(one, name))]) for name in FILTERS}
    return {
        **kept(asked, "a", "b"),
        "scored": found.scored,
        "is_binary": found.binary,
        "pair": kept(asked, *PAIR),
        "filters": kept(asked, *FILTERS),
        "choices": {name: dict(values.most_common(MOST_ROWS)) for name, values in counts.items()},
        "is_same_place": len({(one.cause, one.where) for one in rows}) == 1,
        "why": link_to(asked, "why", **kept(asked, *PAIR)),
        **listed(asked, rows, lambda one: {"row": one.custom_id, "link": row_link(asked, one), **asdict(one)}),
    }
