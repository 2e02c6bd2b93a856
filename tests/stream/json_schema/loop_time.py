"""Prints how long the event loop waits for reading and limiting each hostile schema, the longest times last.

Usage: ``python -m tests.stream.json_schema.loop_time``. The limit that this is compared with is 50 ms.
"""

from __future__ import annotations

import time
from contextlib import suppress

from gateway.core.errors import InvalidValue
from gateway.stream.json_schema.response_format import read_answer_format
from tests.stream.json_schema.hostile_schemas import HOSTILE


def main() -> None:
    """Measure each schema five times and print the longest time, in milliseconds."""
    times: dict[str, float] = {}
    for name, case in HOSTILE.items():
        for strict in (False, True):
            value = {"type": "json_schema", "json_schema": {"name": "x", "schema": case.schema, "strict": strict}}
            for _ in range(5):
                begun = time.monotonic()
                with suppress(InvalidValue):
                    read_answer_format(value)
                times[name] = max(times.get(name, 0.0), time.monotonic() - begun)
    for name, seconds in sorted(times.items(), key=lambda one: one[1]):
        print(f"{1000 * seconds:8.2f} ms  {name}")


if __name__ == "__main__":
    main()
