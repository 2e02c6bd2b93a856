"""Sends rows from several machines, with Ray Data (``--engine ray``).

Ray distributes blocks of rows to actors, one on each machine. Each actor sends its rows to the gateway of its machine,
and records the calls of a block in a temporary file there. They are returned with the lines of the block, and recorded
beside the output before the lines are written: what an actor that was killed has not returned is sent again.
Ray repeats nothing: ``ask`` repeats rows, and a run that ended early is continued like any other run. Only this module
imports Ray.
"""

from __future__ import annotations

import asyncio
import pickle
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, closing
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import uvloop

from gateway.cli.options import CommandError
from gateway.evaluate.running.ask import RetryLimits, ask_all
from gateway.evaluate.running.gateways import GatewaySource, LocalSource
from gateway.evaluate.running.rows import DataRow
from gateway.storage.merging import StoredCall, add_calls, open_to_add, stored_calls
from gateway.storage.recordings import open_recording

ROWS_PER_BLOCK = 256
"""The number of rows whose lines an actor returns together. If the run is killed before, these rows are sent again."""
NO_RETRIES = {"max_restarts": 0, "max_task_retries": 0}
"""Options of the actors. By default Ray restarts an actor that ended, and repeats its block of rows."""


class RayAsker:
    """One actor, which sends blocks of rows to the gateway of its machine."""

    def __init__(self, source: GatewaySource, limits: RetryLimits, concurrency: int) -> None:
        self._folder = TemporaryDirectory(prefix="gateway-run-")  # removed when the actor ends
        if isinstance(source, LocalSource) and source.recording is not None:
            source = replace(source, recording=Path(self._folder.name, "calls.sqlite"))
        self._recording = source.recording
        self._limits = limits
        self._concurrency = concurrency
        self._runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        self._opened = AsyncExitStack()  # kept: the gateway is closed when it is freed
        self._gateway = self._runner.run(self._opened.enter_async_context(source.open(concurrency)))

    def __call__(self, batch: Mapping[str, Sequence[bytes]]) -> dict[str, list[Any]]:
        """Send a block of pickled rows. Return the output lines, and with the first one all recorded calls, pickled."""
        rows: list[DataRow] = [pickle.loads(row) for row in batch["row"]]
        found: list[tuple[bytes, bool]] = []
        self._runner.run(
            ask_all(
                self._gateway,
                iter(rows),
                self._limits,
                self._concurrency,
                lambda line, answered: found.append((line, answered)),
            )
        )
        calls = [pickle.dumps(self._take_calls()), *[b""] * (len(found) - 1)]
        return {"line": [line for line, _ in found], "answered": [answered for _, answered in found], "calls": calls}

    def _take_calls(self) -> list[StoredCall]:
        """Return the recorded calls, and remove them from the file of this machine."""
        if self._recording is None:
            return []
        with closing(open_recording(self._recording)) as file:
            calls = list(stored_calls(file))
        with closing(sqlite3.connect(self._recording)) as database, database:
            database.execute("DELETE FROM calls")
        return calls


def ask_with_ray(
    source: GatewaySource,
    rows: Iterator[DataRow],
    limits: RetryLimits,
    concurrency: int,
    write: Callable[[bytes, bool], None],
) -> None:
    """Send all rows from the machines of the Ray cluster, or from this machine if there is no cluster.

    ``concurrency``: the number of concurrent requests on each machine. Raises ``CommandError`` if Ray fails or is not
    installed, or if a recording cannot be written, and the errors of ``write``.
    """
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise CommandError(f'--engine ray needs Ray: pip install "ray[data]" ({_first_line(error)})') from None
    items = [{"row": pickle.dumps(row)} for row in rows]
    if not items:
        return
    try:
        ray.init(ignore_reinit_error=True, log_to_driver=False, include_dashboard=False)
    except Exception as error:  # Ray raises plain ``Exception`` too
        raise CommandError(f"Ray did not start ({_first_line(error)}); no row was sent", 1) from error
    ray.data.DataContext.get_current().enable_progress_bars = False
    machines = sum(bool(node["Alive"]) for node in ray.nodes())
    try:
        lines = ray.data.from_items(items, override_num_blocks=-(-len(items) // ROWS_PER_BLOCK)).map_batches(
            RayAsker,
            fn_constructor_args=(source, limits, concurrency),
            batch_size=ROWS_PER_BLOCK,
            batch_format="numpy",
            compute=ray.data.ActorPoolStrategy(size=machines),
            **NO_RETRIES,
        )
        for row in lines.iter_rows():
            if source.recording is not None and row["calls"]:
                with closing(open_to_add(source.recording)) as database:
                    add_calls(database, pickle.loads(row["calls"]))
            write(bytes(row["line"]), bool(row["answered"]))
    except (ray.exceptions.RayError, ray.data.exceptions.UserCodeException) as error:
        reason = str(error).strip().splitlines()[-1].partition(". ")[0]
        raise CommandError(f"the run on Ray ended early ({reason}); the same command continues it", 1) from None
    except sqlite3.Error as error:
        raise CommandError(f"{source.recording}: {error}; the same command continues the run", 1) from None


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
