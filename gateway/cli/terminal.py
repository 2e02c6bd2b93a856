"""Formats output for a terminal: progress, tables, colours, escaped text and differences between texts."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from difflib import unified_diff
from typing import TYPE_CHECKING, TypeVar

import click

from metatemplate.values.words import escape, excerpts

if TYPE_CHECKING:
    from click._termui_impl import ProgressBar

T = TypeVar("T")
CONTEXT = 2
"""The number of equal lines shown before and after different lines."""


def progress(
    label: str, items: Iterable[T], describe: Callable[[T | None], str | None] | None = None, *, steps: int = 1
) -> AbstractContextManager[ProgressBar[T]]:
    """Return a progress bar over ``items`` on standard error. Nothing is shown if standard error is not a terminal.

    ``describe``: a function that returns a text about the current item. ``steps``: the number of items between updates.
    """
    return click.progressbar(
        items,
        label=label,
        show_pos=True,
        item_show_func=describe,
        file=sys.stderr,
        hidden=not sys.stderr.isatty(),
        update_min_steps=steps,
    )


def format_table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return one line for each row, with aligned columns. All rows must have the same number of cells."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join([cell.ljust(width) for cell, width in zip(row, widths, strict=True)]).rstrip() for row in rows]


def escape_line(text: str) -> str:
    """Return a line escaped like ``escape`` does. Spaces at the end of the line are shown as dots."""
    escaped = escape(text)
    stripped = escaped.rstrip(" ")
    return stripped + "·" * (len(escaped) - len(stripped))


def diff_lines(a: str, b: str, name_a: str, name_b: str) -> Iterator[str]:
    """Yield the first difference of two different texts, and a unified diff of their escaped lines."""
    from metatemplate.templates.registry import first_difference  # loads every renderer, which a table does not need

    yield f"--- {name_a}"
    yield f"+++ {name_b}"
    yield from excerpts(a, b, first_difference(a, b))
    # With this value of newline, StringIO ends a line only at \n, as engines and chat templates do.
    lines_a, lines_b = list(io.StringIO(a, newline="\n")), list(io.StringIO(b, newline="\n"))
    for row in list(unified_diff(lines_a, lines_b, n=CONTEXT, lineterm=""))[2:]:  # the first two lines name the texts
        yield row[0] + escape_line(row[1:])


def color_difference(line: str) -> str:
    """Return a line of ``diff_lines`` in red if removed, in green if added, and unchanged otherwise."""
    return click.style(line, fg={"-": "red", "+": "green"}.get(line[0]))
