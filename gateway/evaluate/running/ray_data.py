"""Sends rows from several machines, with Ray Data (``--engine ray``).

Ray distributes blocks of rows to actors, one on each machine. Each actor sends its rows to the gateway of its machine.
Ray repeats nothing: ``ask`` repeats rows, and a run that ended early is continued like any other run. Only this module
imports Ray.
"""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any

import uvloop

from gateway.cli.options import CommandError
from gateway.evaluate.running.ask import RetryLimits, ask_all
from gateway.evaluate.running.gateways import GatewaySource
from gateway.evaluate.running.rows import DataRow

ROWS_PER_BLOCK = 256
"""The number of rows whose lines an actor returns together. If the run is killed before, these rows are sent again."""
NO_RETRIES = {"max_restarts": 0, "max_task_retries": 0}
"""Options of the actors. By default Ray restarts an actor that ended, and repeats its block of rows."""


class RayAsker:
    """One actor, which sends blocks of rows to the gateway of its machine."""

    def __init__(self, source: GatewaySource, limits: RetryLimits, concurrency: int) -> None:
        self._limits = limits
        self._concurrency = concurrency
        self._runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        self._gateway = self._runner.run(AsyncExitStack().enter_async_context(source.open(concurrency)))

    def __call__(self, batch: Mapping[str, Sequence[bytes]]) -> dict[str, list[Any]]:
        """Send a block of pickled rows, and return the output lines."""
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
        return {"line": [line for line, _ in found], "answered": [answered for _, answered in found]}


def ask_with_ray(
    source: GatewaySource,
    rows: Iterator[DataRow],
    limits: RetryLimits,
    concurrency: int,
    write: Callable[[bytes, bool], None],
) -> None:
    """Send all rows from the machines of the Ray cluster, or from this machine if there is no cluster.

    ``concurrency``: the number of concurrent requests on each machine. Raises ``CommandError`` if Ray fails or is not
    installed, and the errors of ``write``.
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
            write(bytes(row["line"]), bool(row["answered"]))
    except (ray.exceptions.RayError, ray.data.exceptions.UserCodeException) as error:
        reason = str(error).strip().splitlines()[-1].partition(". ")[0]
        raise CommandError(f"the run on Ray ended early ({reason}); the same command continues it", 1) from None


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
