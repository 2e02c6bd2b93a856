"""The runs of ``gateway view``: those that its command line names."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from gateway.cli.options import CommandError
from gateway.core.caller import Caller
from gateway.core.errors import InvalidValue
from gateway.evaluate.analysis.rows import RunRow
from gateway.evaluate.analysis.scores import RowScore
from gateway.evaluate.reporting.source import read_scored, run_files


class RunFiles:
    """The runs that the command line names, as a ``RunSource``."""

    def __init__(self, runs: Mapping[str, Path | None], config: Path, score: RowScore | None) -> None:
        """``runs``: the name of each run, and where its scores are: see ``read_scored``."""
        self.score = score
        self.names = list(runs)
        self._scores = runs
        self._config = config

    def runs(self, caller: Caller, start: int, count: int) -> list[dict[str, Any]]:
        """See ``RunSource``."""
        unknown = {"calls": None, "first": None, "last": None}
        return [{"run": name, **unknown} for name in self.names[start : start + count]]

    def state(self, run: str, caller: Caller) -> Hashable:
        """See ``RunSource``: the size of each file and the time of its last change."""
        self._check(run)
        files = [*run_files(run, self._config), self._scores[run]]
        found = [path.stat() for path in files if path is not None and path.exists()]
        return tuple([(one.st_size, one.st_mtime_ns) for one in found])

    def rows(self, files: ExitStack, run: str, caller: Caller, row: str | None = None) -> Iterator[RunRow]:
        """See ``RunSource``."""
        self._check(run)
        try:
            rows, _ = read_scored(files, run, self._config, self._scores[run])
        except CommandError as error:
            raise InvalidValue(error.message) from None
        return (one for one in rows if row in (None, one.custom_id))

    def _check(self, run: str) -> None:
        if run not in self.names:
            raise InvalidValue("gateway view shows only the runs that its command line names")
