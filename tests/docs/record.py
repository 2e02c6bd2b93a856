"""Writes the outputs of the console examples that changed into the pages: ``python -m tests.docs.record``.

An output that still agrees with its page stays, ``…`` included. A changed one is written whole; shorten it by hand.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.docs.console import PAGES, Done, Example, agrees, prepare, run_page
from tests.support.serving import gateway


def main() -> None:
    """Execute the examples of every page, and correct the page."""
    with tempfile.TemporaryDirectory() as base:
        served = Path(base, "served").resolve()
        served.mkdir()
        prepare(served)
        with gateway(served, (served / "gateway.yaml").read_text(encoding="utf-8")) as running:
            for number, page in enumerate(PAGES):
                folder = Path(base, str(number)).resolve()
                folder.mkdir()
                _correct(page, folder, running.port)


def _correct(page: Path, folder: Path, port: int) -> None:
    changes: list[tuple[Example, str]] = []

    def report(example: Example, done: Done) -> None:
        if example.output and not agrees(example.output, done.output):
            changes.append((example, done.output if done.output.endswith("\n") else f"{done.output}\n"))

    run_page(page, folder, port, report)
    text = page.read_text(encoding="utf-8")
    for example, output in reversed(changes):
        print(f"--- {example.page}: $ {example.command}")
        text = text[: example.start] + output + text[example.start + len(example.output) :]
    if changes:
        page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
