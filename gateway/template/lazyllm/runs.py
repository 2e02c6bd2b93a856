"""A text that remembers which of its pieces were filled in: what slots, splits and strips leave of it.

The reference substitutes by searching the whole text, what was filled in before included; so do these,
and every piece keeps its origin.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple


class Run(NamedTuple):
    """A piece of text and where it came from."""

    text: str
    origin: str = ""
    """``""`` for the prompter's own words; else a name that says who gave it (``slot:city``, ``history[2]``)."""
    content: bool = False
    """True: given by the caller. False: written by the prompter."""


Runs = tuple[Run, ...]


def joined(runs: Iterable[Run]) -> str:
    """The text that the runs make."""
    return "".join([run.text for run in runs])


def cut(runs: Runs, start: int, end: int) -> Runs:
    """The part from one place to another."""
    return tuple(_cut(runs, start, end))


def _cut(runs: Runs, start: int, end: int) -> Iterator[Run]:
    at = 0
    for run in runs:
        low, high = max(start - at, 0), min(end - at, len(run.text))
        if low < high:
            yield run._replace(text=run.text[low:high])
        at += len(run.text)


def replaced(runs: Runs, old: str, new: Run) -> Runs:
    """``str.replace`` on the joined text; what is put in keeps its own origin."""
    text = joined(runs)
    if old not in text:
        return runs
    found: list[Run] = []
    at = 0
    while (place := text.find(old, at)) >= 0:
        found += (*cut(runs, at, place), new)
        at = place + len(old)
    return (*found, *cut(runs, at, len(text)))


def without_leading(runs: Runs, letter: str) -> Runs:
    """``str.lstrip`` of one letter."""
    text = joined(runs)
    return cut(runs, len(text) - len(text.lstrip(letter)), len(text)) if text.startswith(letter) else runs
