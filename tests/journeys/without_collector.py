"""``gateway serve`` with the cyclic collector off. At SIGUSR1 it writes which large texts are still referenced.

Run as ``python -m tests.journeys.without_collector`` in the folder of a ``gateway.yaml``; with ``asgi``, uvicorn runs
the file that ``GATEWAY_CONFIG`` names. After SIGUSR1 there is a
file ``memory.json``, for unreachable objects (``garbage``: only the collector could free them) and for all others
(``live``): the name that ``marked`` gave to a text of ``LARGE`` characters or more → the types of what refers to it.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import re
import signal
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import uvicorn

from gateway.cli import main

LARGE = 100_000
"""Characters or bytes; only requests of the tests are larger."""
REPORT = "memory.json"
MARK = re.compile(r"<<([^<>]*)>>")


def marked(name: str) -> str:
    """A large text that contains its name."""
    return f"<<{name}>>" + "many words " * (LARGE // 5)


def holders(objects: Iterable[object]) -> dict[str, list[str]]:
    """Name of a large text → types of the objects that refer to it, also through untracked containers."""
    found: dict[str, set[str]] = {}
    for one in objects:
        for name in {name for value in gc.get_referents(one) for name in _names(value)}:
            found.setdefault(name, set()).add(_type(one))
    return {name: sorted(types) for name, types in found.items()}


def _names(value: object) -> Iterator[str]:
    if isinstance(value, str | bytes | bytearray):
        if len(value) >= LARGE:
            mark = MARK.search(value[:1000] if isinstance(value, str) else value[:1000].decode("latin-1"))
            yield mark[1] if mark else "?"
    elif not gc.is_tracked(value):
        for below in gc.get_referents(value):
            yield from _names(below)


def _type(value: object) -> str:
    code = getattr(value, "f_code", None) or getattr(value, "cr_code", None)
    return type(value).__qualname__ + (f" {code.co_name}" if code else "")


def report(number: int, frame: object) -> None:
    """The handler of SIGUSR1."""
    gc.set_debug(gc.DEBUG_SAVEALL)
    gc.collect()
    gc.set_debug(0)
    garbage = holders(gc.garbage)
    gc.garbage.clear()
    gc.collect()
    draft = Path(REPORT + ".tmp")
    draft.write_text(json.dumps({"garbage": garbage, "live": holders(gc.get_objects())}), encoding="utf-8")
    draft.replace(REPORT)


if __name__ == "__main__":
    gc.disable()
    signal.signal(signal.SIGUSR1, report)
    if sys.argv[1:] == ["asgi"]:
        logging.basicConfig(level="INFO")
        uvicorn.run("gateway.asgi:app", port=int(os.environ["UVICORN_PORT"]), log_config=None)
    else:
        sys.exit(main(["serve"]))
