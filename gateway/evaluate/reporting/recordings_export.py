"""Print recorded calls as JSON, one object a line, the earliest first.

An object has the columns of the tables calls and exchanges. What is not in the file, such as redacted texts, is not
exported. A gateway may write the file meanwhile.
"""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import dataclass

from gateway.cli.options import option, takes, verb
from gateway.evaluate.reporting.selection import CallSelection, read_as

EXAMPLES = """Examples:
  gateway recordings export --run nightly-7 > nightly-7.jsonl
  gateway recordings export --since 24h --model demo | gzip > calls.jsonl.gz
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOptions(CallSelection):
    """The options of ``gateway recordings export``."""

    since: float | None = option("DURATION", callback=read_as("duration"))
    """only calls that began at most this long ago, such as 24h"""


@verb(__doc__, EXAMPLES)
@takes(ExportOptions)
def command(options: ExportOptions) -> int:
    """Print the calls."""
    from gateway.evaluate.reporting.source import reading
    from gateway.storage.recordings import open_recording

    which, values = options.condition(">=", options.since)
    with reading(), closing(open_recording(options.path)) as file:
        for call in file.execute(f"SELECT * FROM calls WHERE {which} ORDER BY id", values):
            print(json.dumps({**dict(call), "exchanges": [dict(one) for one in file.exchanges_of(call["id"])]}))
    return 0
