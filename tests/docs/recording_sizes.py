"""Writes the table of docs/maintenance.md with the bytes of a recorded call: ``python -m tests.docs.recording_sizes``.

A gateway records calls to a target that sends one word in each event. tests/docs/test_recording_sizes.py measures them
again.
"""

from __future__ import annotations

import re
import sqlite3
import tempfile
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from gateway.storage.sqlite_file import used_bytes
from tests.support.serving import ROOT, gateway

PAGE = ROOT / "docs/maintenance.md"
TABLE = re.compile(
    r"(?<=^\| Call \| `record: metadata` \| `record: full` \|\n\|---\|---\|---\|\n)(?:\|.*\n)*", re.MULTILINE
)
CALLS = 40
"""The number of calls that are measured."""
MODES = ("metadata", "full")


@dataclass(frozen=True, slots=True)
class Shape:
    """A kind of call."""

    characters: int
    tokens: int
    stream: bool

    def __str__(self) -> str:
        how = "streamed" if self.stream else "whole"
        return f"a question of {self.characters:,} characters, an answer of {self.tokens:,} tokens, {how}"


SHAPES = (Shape(100, 20, False), Shape(4_000, 300, False), Shape(4_000, 300, True), Shape(30_000, 1_000, True))


def measured(shape: Shape, mode: str, folder: Path) -> int:
    """Return the bytes of a call in a file that a gateway writes in the folder."""
    words = ", ".join(["' word'"] * shape.tokens)
    events = words if shape.stream else f"'{' word' * shape.tokens}'"
    target = "{speaks: scripted, script: answer.yaml}"
    config = (
        f"recordings: {{path: calls.sqlite}}\nmodels: {{m: {{template: chatml, policy: p, targets: [{target}]}}}}\n"
    )
    files = {"policies/p.yaml": f"record: {mode}\n", "answer.yaml": f"[{events}, {{finish: stop}}]\n"}
    with gateway(folder, config, files=files) as served:
        for _ in range(CALLS):
            assert served.chat("m", "word " * (shape.characters // 5), stream=shape.stream).status_code == 200
    with closing(sqlite3.connect(folder / "calls.sqlite")) as file:
        assert file.execute("SELECT count(*), min(mode) FROM calls").fetchone() == (CALLS, mode)
        return round(used_bytes(file) / CALLS)


def sizes() -> Mapping[Shape, Mapping[str, int]]:
    """Return the bytes of each kind of call in each mode."""
    found = {}
    for shape in SHAPES:
        found[shape] = dict.fromkeys(MODES, 0)
        for mode in MODES:
            with tempfile.TemporaryDirectory() as folder:
                found[shape][mode] = measured(shape, mode, Path(folder))
    return found


if __name__ == "__main__":
    lines = [f"| {shape} | {' | '.join(f'{one[mode]:,}' for mode in MODES)} |\n" for shape, one in sizes().items()]
    PAGE.write_text(TABLE.sub("".join(lines), PAGE.read_text(encoding="utf-8")), encoding="utf-8")
