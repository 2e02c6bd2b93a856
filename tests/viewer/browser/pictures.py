"""Take a picture of every page of the viewer: ``python -m tests.viewer.browser.pictures FOLDER [--only NAME,…]``.

Writes ``NAME-WIDTH-SCHEME.png``, the first screen, and ``NAME-WIDTH-SCHEME-full.png``, the whole page; prints a table
with the sizes of each page and its errors. Exit code 1: a page is wider than the window, or has an error.
"""

from __future__ import annotations

import argparse
import json
import logging
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from gateway.server.greeting import viewer_address
from tests.support.serving import ROOT, Gateway, gateway
from tests.viewer.browser.world import (
    EMPTY,
    FILES,
    KEYED,
    MODEL_OPTIONS,
    call_all,
    fallen_row,
    open_config,
    viewing,
    write_runs,
)

VIEWS = {"view": "tuesday.jsonl", "view-cut": "wednesday.jsonl", "view-same": "friday.jsonl"}
"""The name of a ``gateway view`` of two runs → its second run."""
CODE = Path(__file__).with_name("photograph.py")


def entrance(served: Gateway) -> str:
    """The address that ``gateway serve`` prints."""
    return viewer_address(served.runtime.state.stack.snapshot, served.port, served.runtime.state.viewer_secret)


def visited(
    folder: str, only: Sequence[str] = (), *, axe: bool = False, docs: bool = False
) -> Iterator[dict[str, Any]]:
    """Serve the pages; yield what was found on each. ``folder``: for the pictures; empty: none are taken."""
    with ExitStack() as stack:
        folders = [Path(stack.enter_context(tempfile.TemporaryDirectory())) for _ in range(3)]
        served, keyed, empty = [
            stack.enter_context(gateway(folder, config, files=FILES))
            for folder, config in zip(folders, (open_config(), KEYED, EMPTY), strict=True)
        ]
        write_runs(served.folder, *MODEL_OPTIONS, options=["--base-url", served.url])
        call_all(served)
        servers = {"open": entrance(served), "keyed": keyed.root, "empty": entrance(empty)}
        for name, other in VIEWS.items():
            arguments = ("monday.jsonl", other, "--score", "exact")
            servers[name] = stack.enter_context(viewing(folders[0], *arguments))
        given = {
            "chromium": shutil.which("chromium"),
            "folder": folder,
            "only": only,
            "axe": axe,
            "docs": docs,
            "row": fallen_row(served.folder),
            "servers": servers,
        }
        command = [ROOT / ".venv-browser/bin/python", CODE, json.dumps(given)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            yield from map(json.loads, process.stdout)


def main() -> int:
    """Take the pictures, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", help="names of pages, or their beginnings, separated by commas")
    parser.add_argument("--axe", action="store_true", help="look for violations of accessibility rules, too")
    parser.add_argument("--docs", action="store_true", help="take the pictures of the documentation")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)  # the failed calls are wanted
    options.folder.mkdir(parents=True, exist_ok=True)
    failed = 0
    print(f"{'page':<20} {'status':>6} {'width':>6} {'height':>7} {'width':>6} {'height':>7}  errors")
    only = [name for name in options.only.split(",") if name]
    for one in visited(str(options.folder.resolve()), only, axe=options.axe, docs=options.docs):
        sizes = " ".join(f"{width:>6} {height:>7}" for width, height in one["sizes"])
        print(f"{one['page']:<20} {one['status']:>6} {sizes}  {'; '.join(one['errors'])}", flush=True)
        failed += bool(one["errors"])
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
