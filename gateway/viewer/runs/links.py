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
    """Return the address of a page about runs. A name with a lone surrogate leads to no row."""
    return f"{asked.root}/runs{page and f'/{page}'}?{urlencode(query, errors='replace')}"


def kept(asked: PageRequest, *names: str) -> dict[str, str]:
    """Return the values of the query with these names, without empty ones."""
    return {name: asked.query[name] for name in names if asked.query.get(name)}


def required(asked: PageRequest, name: str) -> str:
    """Return a value of the query. Raises ``InvalidValue``."""
    if not asked.query.get(name):
        raise InvalidValue(f"the address must have a value for {name}")
    return asked.query[name]


def number_of(text: str) -> int:
    """Return the number in a query; 0 for another text."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def part_link(asked: PageRequest, page: str, start: int, exists: bool) -> str:
    """Return the address of the part of a list from the row number ``start`` on; empty if there is none."""
    return link_to(asked, page, **{**asked.query, "start": str(start)}) if exists else ""


def listed(asked: PageRequest, found: Sequence[Listed], shown: Callable[[Listed], dict[str, Any]]) -> dict[str, Any]:
    """Return the rows of one page, and the addresses of the previous and the next one."""
    start = number_of(asked.query.get("start", ""))
    return {
        "total": len(found),
        "start": start,
        "rows": [shown(one) for one in found[start : start + MOST_ROWS]],
        "previous": part_link(asked, "rows", max(0, start - MOST_ROWS), start > 0),
        "next": part_link(asked, "rows", start + MOST_ROWS, len(found) > start + MOST_ROWS),
    }


def place_in_list(
    asked: PageRequest, rows: Sequence[Listed], is_shown: Callable[[Listed], bool], link: Callable[[Listed], str]
) -> dict[str, Any]:
    """Return the number of the shown row in its list, and the addresses of the rows before and after it.

    The number is 0 if the list does not have the row.
    """
    number = next((number for number, one in enumerate(rows, 1) if is_shown(one)), 0)
    start = str(max(0, number - 1) // MOST_ROWS * MOST_ROWS)
    return {
        "number": number,
        "total": len(rows),
        "previous": link(rows[number - 2]) if number > 1 else "",
        "next": link(rows[number]) if 0 < number < len(rows) else "",
        "list": link_to(asked, "rows", **{**without(asked.query, "row", "other"), "start": start}),
    }


def without(values: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Return the values without some names."""
    return {name: value for name, value in values.items() if name not in names}
