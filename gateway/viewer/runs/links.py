"""The addresses of the pages about runs, the values of their queries, and the rows of one page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import urlencode

from gateway.core.errors import InvalidValue
from gateway.viewer.page import PageRequest

MOST_ROWS = 50
"""The maximum number of rows, runs, or values of a group on a page."""
Listed = TypeVar("Listed")


def link_to(asked: PageRequest, page: str, **query: str) -> str:
    """Return the address of a page about runs."""
    return f"{asked.root}/runs{page and f'/{page}'}?{urlencode(query)}"


def required(asked: PageRequest, name: str) -> str:
    """Return a value of the query. Raises ``InvalidValue``."""
    if not asked.query.get(name):
        raise InvalidValue(f"the address must have a value for {name}")
    return asked.query[name]


def number_of(text: str) -> int:
    """Return the number in a query; 0 for another text."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def next_link(asked: PageRequest, page: str, start: int, more: bool) -> str:
    """Return the address of the next rows; empty if there are no more."""
    return link_to(asked, page, **{**asked.query, "start": str(start + MOST_ROWS)}) if more else ""


def listed(asked: PageRequest, found: Sequence[Listed], shown: Callable[[Listed], dict[str, Any]]) -> dict[str, Any]:
    """Return the rows of one page, and the address of the next one."""
    start = number_of(asked.query.get("start", ""))
    return {
        "total": len(found),
        "start": start,
        "rows": [shown(one) for one in found[start : start + MOST_ROWS]],
        "next": next_link(asked, "rows", start, len(found) > start + MOST_ROWS),
    }


def without(values: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Return the values without some names."""
    return {name: value for name, value in values.items() if name not in names}
