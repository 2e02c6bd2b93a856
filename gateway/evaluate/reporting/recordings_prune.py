"""Remove recorded calls, the oldest first. A call is removed if it matches all options.

A gateway may write the file meanwhile; calls that it adds are kept. The file becomes smaller if no other process has it
open; otherwise its free space takes the next calls.
"""

from __future__ import annotations

import math
import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import click

from gateway.cli.options import CommandError, flag, option, print_note, takes, verb
from gateway.evaluate.reporting.selection import CallSelection, read_as
from metatemplate.values.words import counted

EXAMPLES = """Examples:
  gateway recordings prune --older-than 720h --dry-run
  gateway recordings prune --run nightly-7
  gateway recordings prune --max-size 500MiB
"""
BATCH, PAUSE_SECONDS = 100, 0.02
"""The number of ids of one transaction, and the time after it in which a gateway can write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneOptions(CallSelection):
    """The options of ``gateway recordings prune``."""

    older_than: float | None = option("DURATION", callback=read_as("duration"))
    """only calls that began longer ago, such as 720h"""
    max_size: int | None = option("SIZE", callback=read_as("size"))
    """only as many calls as are too many for this size of the data, such as 500MiB"""
    dry_run: bool = flag()
    """remove nothing, and print how many calls would be removed; with --max-size about how many"""


@verb(__doc__, EXAMPLES)
@takes(PruneOptions)
def command(options: PruneOptions) -> int:
    """Remove the calls, or count them."""
    from gateway.evaluate.reporting.source import reading
    from gateway.storage.recordings import open_recording
    from gateway.storage.sqlite_file import used_bytes

    which, values = options.condition("<", options.older_than)
    if which == "TRUE" and options.max_size is None:
        what = "name the calls to remove: --older-than, --run, --model, --key or --max-size"
        raise click.UsageError(what, click.get_current_context())
    path, most = options.path, options.max_size or 0
    with reading(), closing(open_recording(path)) as file:
        numbers = "coalesce(min(id), 1), coalesce(max(id), 0)"
        counts = f"SELECT count(*), count(*) FILTER (WHERE {which}), {numbers} FROM calls"
        calls, found, first, last = file.execute(counts, values).fetchone()
        found = min(found, max(math.ceil(calls * (1 - most / used_bytes(file))), 0))
    if not options.dry_run:
        found = _remove(path, which, values, range(first, last + 1), most)
    print(f"{path}: {found} of {counted(calls, 'call')} {'would be removed' if options.dry_run else 'removed'}")
    return 0


def _remove(path: Path, which: str, values: Sequence[str | float], ids: range, most: int) -> int:
    """Remove matching calls with these ids, until the data have at most ``most`` bytes. Return their number."""
    from gateway.cli.terminal import progress
    from gateway.storage.merging import open_to_add
    from gateway.storage.sqlite_file import close_database, used_bytes

    removed = 0
    try:
        database = open_to_add(path)
        with progress("calls", ids, steps=BATCH) as watched:
            for first in islice(watched, None, None, BATCH):
                if used_bytes(database) <= most:
                    break
                batch = f"id BETWEEN {first} AND {min(first + BATCH - 1, ids[-1])}"
                with database:
                    delete = f"DELETE FROM calls NOT INDEXED WHERE {batch} AND {which}"  # an index would find all calls
                    found = database.execute(delete, values).rowcount
                removed += found
                time.sleep(PAUSE_SECONDS if found else 0)
        if not close_database(database, vacuum=True):
            print_note(f"{path} is open in another process, so its free space takes the next calls; it keeps its size")
    except (sqlite3.Error, OSError) as error:
        raise CommandError(f"{path} cannot be written: {getattr(error, 'strerror', None) or error}") from None
    return removed
