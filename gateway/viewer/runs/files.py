"""The runs of ``gateway view``: those that its command line names."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gateway.cli.options import CommandError
from gateway.cli.score_options import ScoreOptions
from gateway.core.caller import Caller
from gateway.core.errors import InvalidValue
from gateway.evaluate.analysis.rows import OpenRuns, RunRow
from gateway.evaluate.reporting.source import place_and_name, read_scored, row_score, run_files


class RunFiles:
    """The runs that the command line names, as a ``RunSource``."""

    def __init__(self, runs: Sequence[str], scores: Sequence[Path | None], config: Path, options: ScoreOptions) -> None:
        """``runs``, ``scores``: the runs, and where the scores of each are: see ``read_scored``.

        If both are the same run, the names on the pages have its scores.
        """
        self._runs = {
            run if runs.count(run) == 1 or path is None else f"{run} ({path})": (run, path)
            for run, path in zip(runs, scores, strict=True)
        }
        self.names = list(self._runs)
        self._config, self._options, self._score = config, options, row_score(options.score, options.answer)
        self._score_names: dict[str, str] = {}

    def runs(self, caller: Caller, start: int, count: int) -> list[dict[str, Any]]:
        """See ``RunSource``. A is the older run."""
        return [{"run": name} for name in self.names[::-1][start : start + count]]

    def state(self, run: str, caller: Caller) -> Hashable:
        """See ``RunSource``: the size of each file and the time of its last change."""
        name, scores = self._named(run)
        place = [] if scores is None else [place_and_name(scores)[0]]
        files = [*run_files(name, self._config), *place, *[file for one in place for file in one.rglob("*")]]
        found = [path.stat() for path in files if path.exists()]
        return tuple([(one.st_size, one.st_mtime_ns) for one in found])

    def rows(self, files: OpenRuns, run: str, caller: Caller) -> Iterator[RunRow]:
        """See ``RunSource``."""
        name, scores = self._named(run)
        try:
            rows, found = read_scored(files, name, self._config, scores, self._score)
        except CommandError as error:
            raise InvalidValue(error.message) from None
        files.notes += [f"{run}: {line}" for line in (found.lines() if found else ()) if line]
        labels = ", ".join(found.scores.labels) if found else str(scores or "")
        self._score_names[run] = self._options.score or labels
        if (column := self._options.answer) != "answer":  # the pages show the column ``answer`` as the expected text
            rows = (replace(one, columns={"answer": one.columns.get(column)}) for one in rows)
        return (one for one in rows if files.only in (None, one.custom_id))

    def score_name(self, run: str) -> str:
        """See ``RunSource``."""
        return self._score_names[run]

    def _named(self, run: str) -> tuple[str, Path | None]:
        if run not in self._runs:
            raise InvalidValue("gateway view shows only the runs that its command line names")
        return self._runs[run]
