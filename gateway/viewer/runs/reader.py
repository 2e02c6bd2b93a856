"""Reads the runs of a source, and keeps what was found about them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from threading import Lock
from typing import Any

from gateway.core.caller import Caller
from gateway.core.errors import InvalidValue
from gateway.evaluate.analysis.rows import OpenRuns, RunRow
from gateway.viewer.runs.source import RunSource

KEPT = 4
"""The number of reports and comparisons that are kept in memory."""


class RunReader:
    """Reads the runs of a source. Its methods block, so they are called in threads."""

    def __init__(self, source: RunSource) -> None:
        self.source = source
        self._kept: dict[tuple[Any, ...], Any] = {}
        """The key of the client, the runs and their states → what was found, the latest last. The pages of a key are
        made one after another, so equal requests read the runs once, also if a browser does not wait."""
        self._changing = Lock()
        """Held while a thread changes ``_kept``."""

    def one(self, run: str, caller: Caller, name: str) -> RunRow:
        """Return the row of a run with all its facts, which are read already. Raises ``InvalidValue``."""
        with OpenRuns(name) as files:
            row = next((row for row in self.source.rows(files, run, caller) if row.custom_id == name), None)
            if row is None:
                raise InvalidValue("the run has no such row")
            asked, calls = row.read_asked(redacted=True), row.read_calls()
            return replace(row.with_facts(), read_asked=lambda **_: asked, read_calls=lambda: calls)

    def found(self, caller: Caller, find: Callable[..., Any], *runs: str, **options: Any) -> Any:
        """Return the result of ``read`` without its notes."""
        return self.read(caller, find, *runs, **options)[0]

    def read(self, caller: Caller, find: Callable[..., Any], *runs: str, **options: Any) -> tuple[Any, list[str]]:
        """Return what was found before about unchanged runs, or read them; and notes about what their rows lack.

        ``find``: gets their rows, and ``options``, which must be hashable.
        """
        name = self._name(caller, find, *runs, **options)
        with self._changing:
            found: tuple[Any, list[str]] | None = self._kept.pop(name, None)
        if found is None:
            with OpenRuns() as files:
                rows = [self.source.rows(files, run, caller) for run in runs]
                result = find(*rows, **options)
            found = result, files.notes
        with self._changing:
            self._kept[name] = found
            while len(self._kept) > KEPT:
                del self._kept[next(iter(self._kept))]
        return found

    def kept(self, caller: Caller, find: Callable[..., Any], *runs: str, **options: Any) -> Any:
        """Return what ``read`` has found about unchanged runs, without reading them; None if it is not kept."""
        with self._changing:
            return self._kept.get(self._name(caller, find, *runs, **options), (None,))[0]

    def _name(self, caller: Caller, find: Callable[..., Any], *runs: str, **options: Any) -> tuple[Any, ...]:
        return (find, caller.key, *runs, *[self.source.state(run, caller) for run in runs], *options.items())
