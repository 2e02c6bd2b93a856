"""Merge files of recordings into one file, with each call once.

OUT may exist: then it keeps its calls. The other files are not changed. Calls of runs with the same name and the same
client key become one run.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from gateway.cli.options import FILE_PATH, argument, takes, verb

EXAMPLES = """Examples:
  gateway recordings merge all.sqlite node-1.sqlite node-2.sqlite
  gateway recordings merge all.sqlite */calls.sqlite && gateway report all.sqlite
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeOptions:
    """The options of ``gateway recordings merge``."""

    out: Path = argument(metavar="OUT", type=FILE_PATH)
    """the file to write"""
    sources: tuple[Path, ...] = argument(metavar="IN…", type=FILE_PATH, nargs=-1, required=True)
    """the files of recordings to add"""


@verb(__doc__, EXAMPLES)
@takes(MergeOptions)
def command(options: MergeOptions) -> int:
    """Write the merged file."""
    from gateway.cli.terminal import progress
    from gateway.evaluate.reporting.source import reading
    from gateway.storage.merging import merge_recordings

    with reading():
        sources = [*([options.out] if options.out.exists() else []), *options.sources]
        number = merge_recordings(options.out, sources, partial(progress, "calls", steps=1000))
    print(f"{options.out} has {number} calls")
    return 0
