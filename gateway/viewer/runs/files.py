"""The runs of ``gateway view``: those that its command line names."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from gateway.cli.options import CommandError
from gateway.core.caller import Caller
from gateway.core.errors import InvalidValue
from gateway.evaluate.analysis.rows import RunRow
from gateway.evaluate.analysis.scores import RowScore
from gateway.evaluate.reporting.source import read_run, run_files


class RunFiles:
    """The runs that the command line names, as a ``RunSource``."""

    def __init__(self, names: Sequence[str], config: Path, score: RowScore | None) -> None:
        self.score = score
        self.names = names
        self._config = config

    def runs(self, caller: Caller, start: int, count: int) -> list[dict[str, Any]]:
        """See ``RunSource``."""
        unknown = {"calls": None, "first": None, "last": None}
        return [{"run": name, **unknown} for name in self.names[start : start + count]]

    def state(self, run: str, caller: Caller) -> Hashable:
        """See ``RunSource``: the size of each file and the time of its last change."""
        self._check(run)
        found = [path.stat() for path in run_files(run, self._config) if path.exists()]
        return tuple([(one.st_size, one.st_mtime_ns) for one in found])

    def rows(self, files: ExitStack, run: str, caller: Caller, row: str | None = None) -> Iterator[RunRow]:
        """See ``RunSource``."""
        self._check(run)
        try:
            rows = read_run(files, run, self._config)
        except CommandError as error:
            raise InvalidValue(error.message) from None
        return rows if row is None else (one for one in rows if one.custom_id == row)

    def _check(self, run: str) -> None:
        if run not in self.names:
            raise InvalidValue("gateway view shows only the runs that its command line names")
