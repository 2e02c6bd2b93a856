"""The progress bar, on standard error."""

from __future__ import annotations

import sys
import time

WIDTH = 30
"""Characters of the bar."""
INTERVAL = 0.1
"""The least seconds between two changes of the bar."""


class ProgressBar:
    """One line on a terminal; nothing if standard error is not a terminal."""

    def __init__(self, total: int, done: int) -> None:
        """``total``: all rows. ``done``: the rows of earlier runs."""
        self._total = total
        self._before = self._done = done
        self._failed = 0
        self._started = time.monotonic()
        self._next = 0.0 if sys.stderr.isatty() else float("inf")

    def row(self, answered: bool) -> None:
        """Count a row, and show it if the bar is due."""
        self._done += 1
        self._failed += not answered
        now = time.monotonic()
        if now >= self._next:
            self._next = now + INTERVAL
            sys.stderr.write(f"\r{self.text(now)}\x1b[K")
            sys.stderr.flush()

    def text(self, now: float) -> str:
        """Return the bar at monotonic time ``now``."""
        filled = WIDTH * self._done // self._total
        rate = (self._done - self._before) / max(now - self._started, 1e-9)
        minutes, seconds = divmod(round((self._total - self._done) / rate), 60)
        failed = f"  {self._failed} failed" if self._failed else ""
        bar = "█" * filled + "·" * (WIDTH - filled)
        return f"{bar} {self._done}/{self._total}  {rate:.0f} rows/s  {minutes}:{seconds:02} left{failed}"

    def end(self) -> None:
        """Remove the bar."""
        if self._next != float("inf"):
            sys.stderr.write("\r\x1b[K")
