"""The progress bar."""

from __future__ import annotations

import io
import time
from contextlib import redirect_stderr

import pytest

from gateway.cli.running.progress import ProgressBar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_rows_rate_and_failures() -> None:
    with redirect_stderr(Terminal()) as terminal:
        bar = ProgressBar(total=60, done=20)
        started = time.monotonic()
        bar.row(True)
        for answered in [True] * 8 + [False]:
            bar.row(answered)
        bar.end()
    assert "21/60" in terminal.getvalue()
    assert terminal.getvalue().endswith("\r\x1b[K")
    text = bar.text(started + 2.0)
    assert text.startswith("█" * 15 + "·" * 15 + " 30/60  ")
    assert text.endswith("  5 rows/s  0:06 left  1 failed")


def test_a_file_gets_no_bar(capsys: pytest.CaptureFixture[str]) -> None:
    bar = ProgressBar(total=2, done=0)
    bar.row(True)
    bar.end()
    assert capsys.readouterr().err == ""
