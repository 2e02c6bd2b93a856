"""Where the rows of runs come from."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import closing
from itertools import accumulate
from pathlib import Path
from typing import Any, Protocol

from gateway.calls.service import GatewayState
from gateway.core.caller import Caller
from gateway.core.errors import InvalidValue
from gateway.evaluate.analysis.recordings import note_left_out, read_recording, row_counts
from gateway.evaluate.analysis.rows import OpenRuns, RunRow
from gateway.storage.recordings import RecordingFile, open_recording
from gateway.viewer.recordings.pages import BUSY_SECONDS, READ_SECONDS

NO_RUN = "the recordings have no run of this name"
READ_RUN_SECONDS = 60.0
"""How long a page may read whole runs."""
MOST_CALLS = 500_000
"""The number of calls that a list of runs counts, in about a second. Of the runs after them, the times are shown."""


class RunSource(Protocol):
    """Reads runs. The methods block, so they are called in threads. They raise ``InvalidValue`` and ``OSError``."""

    def runs(self, caller: Caller, start: int, count: int) -> list[dict[str, Any]]:
        """Return the runs of a client, the latest first: ``run``, and what is known without reading its rows."""

    def state(self, run: str, caller: Caller) -> Hashable:
        """Return a value that changes with each change of the run. Raises ``InvalidValue`` for an unknown run."""

    def rows(self, files: OpenRuns, run: str, caller: Caller) -> Iterator[RunRow]:
        """Return the rows of a run. ``files``: closes what is opened, and may need only one row."""

    def score_name(self, run: str) -> str:
        """Return the name of the scores of a run that was read; empty without scores."""


class RecordedRuns:
    """The runs in the recordings of this gateway. A client with a key sees only its own runs.

    The name of a run is ``KEY/RUN``, or ``RUN`` for a run of the caller.
    """

    def __init__(self, state: GatewayState, most_calls: int = MOST_CALLS) -> None:
        self._state, self._most_calls = state, most_calls

    def runs(self, caller: Caller, start: int, count: int) -> list[dict[str, Any]]:
        """See ``RunSource``. There are none before the first call is recorded."""
        if not self._path().exists():
            return []
        with closing(self._open()) as file:
            found = file.runs(caller.key or None, start, count)
            totals = accumulate([one["calls"] for one in found])
            return [
                {
                    "run": one["run"] if one["key"] == caller.key else f"{one['key']}/{one['run']}",
                    "times": (one["first"], one["last"]),
                    **(row_counts(file, one["run"], one["key"]) if total <= self._most_calls else {}),
                }
                for one, total in zip(found, totals, strict=True)
            ]

    def state(self, run: str, caller: Caller) -> Hashable:
        """See ``RunSource``."""
        key, name = _own(run, caller)
        if not self._path().exists():
            raise InvalidValue(NO_RUN)
        with closing(self._open()) as file:
            state = file.state_of(name, key)
        if not state[0]:
            raise InvalidValue(NO_RUN)
        return state

    def rows(self, files: OpenRuns, run: str, caller: Caller) -> Iterator[RunRow]:
        """See ``RunSource``."""
        file = files.enter_context(closing(self._open(READ_RUN_SECONDS if files.only is None else READ_SECONDS)))
        files.callback(note_left_out, files, file)
        return read_recording(file, "/".join(_own(run, caller)), files.only)

    def score_name(self, run: str) -> str:
        """See ``RunSource``."""
        return ""

    def _open(self, read_seconds: float = READ_SECONDS) -> RecordingFile:
        file = open_recording(self._path(), BUSY_SECONDS, read_seconds)
        file.path = Path(file.path.name)  # errors do not show the folders of the server to clients
        return file

    def _path(self) -> Path:
        path = self._state.stack.snapshot.recordings.path
        if path is None:
            raise InvalidValue("this gateway records no calls; set recordings.path and a policy with record: full")
        return path


def _own(run: str, caller: Caller) -> tuple[str, str]:
    """Return the key and the name of a run. Raises ``InvalidValue`` for a run of another client."""
    key, slash, name = run.rpartition("/")
    if not slash:
        key = caller.key
    if caller.key and key != caller.key:
        raise InvalidValue(NO_RUN)
    return key, name
