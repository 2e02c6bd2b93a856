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
from contextlib import ExitStack
from pathlib import Path

from gateway.server.greeting import viewer_address
from tests.support.serving import ROOT, Gateway, gateway
from tests.viewer.browser.world import EMPTY, FILES, KEYED, call_all, fallen_row, open_config, run_all, viewing

CODE = Path(__file__).with_name("photograph.py")


def entrance(served: Gateway) -> str:
    """The address that ``gateway serve`` prints."""
    return viewer_address(served.runtime.state.stack.snapshot, served.port, served.runtime.state.viewer_secret)


def main() -> int:
    """Serve the pages, and photograph them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", help="names of pages, or their beginnings, separated by commas")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)  # the failed calls are wanted
    options.folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        folders = [Path(stack.enter_context(tempfile.TemporaryDirectory())) for _ in range(3)]
        served, keyed, empty = [
            stack.enter_context(gateway(folder, config, files=FILES))
            for folder, config in zip(folders, (open_config(), KEYED, EMPTY), strict=True)
        ]
        run_all(served)
        call_all(served)
        given = {
            "chromium": shutil.which("chromium"),
            "folder": str(options.folder.resolve()),
            "only": [name for name in options.only.split(",") if name],
            "row": fallen_row(served.folder),
            "servers": {
                "open": entrance(served),
                "keyed": keyed.root,
                "empty": entrance(empty),
                "view": stack.enter_context(viewing(folders[0], "monday.jsonl", "tuesday.jsonl", "--score", "exact")),
                "view-cut": stack.enter_context(
                    viewing(folders[0], "monday.jsonl", "wednesday.jsonl", "--score", "exact")
                ),
                "view-same": stack.enter_context(
                    viewing(folders[0], "monday.jsonl", "friday.jsonl", "--score", "exact")
                ),
            },
        }
        python = ROOT / ".venv-browser/bin/python"
        return subprocess.run([python, CODE, json.dumps(given)], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
