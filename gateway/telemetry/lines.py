"""How do lines reach the log at ten thousand calls a second? Many in one write, ten times a second at most.

The first line after a quiet moment is written at once, what follows within ``EVERY`` waits for a timer; a warning, or
worse, takes all that waits along at once. At the end of the process ``logging`` flushes its handlers, so an orderly end
loses nothing. Order is kept.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import TextIO

EVERY = 0.1
"""Seconds between two writes, while there are only lines without hurry."""

FORMAT = "%(asctime)s %(levelname)s %(message)s"


def log_to_stderr(level: str) -> None:
    """Set this process's logging up: lines of ``level`` and above go to standard error."""
    logging.basicConfig(level=level.upper(), handlers=[Lines(sys.stderr)])
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)


class Lines(logging.Handler):
    """A log handler for standard error. Without a running event loop each line is written as it comes."""

    def __init__(self, stream: TextIO, now: Callable[[], float] = time.time) -> None:
        super().__init__()
        self._stream = stream
        self._now = now
        self._held: deque[str] = deque()  # filled without a lock: other threads may log too
        self._loop: asyncio.AbstractEventLoop | None = None
        """Where a timer runs that will write what is held."""
        self._written = 0.0
        """Loop time of the last write that a line without hurry has caused."""
        self._second = -1
        self._date = ""
        self._format = logging.Formatter(FORMAT)
        self.setFormatter(self._format)

    def takes_all_of(self, logger: logging.Logger) -> bool:
        """Is this handler, as it was made, all that a record of the logger would meet? Then no record is needed."""
        one: logging.Logger | None = logger
        while one is not None and one.parent is not None:
            if one.handlers or not one.propagate:
                return False
            one = one.parent
        return (
            one is not None
            and len(one.handlers) == 1
            and not (logger.filters or self.filters or self.level)
            and self.formatter is self._format
        )

    def say(self, level: int, message: str) -> None:
        """A line as ``FORMAT`` would write it, without a record."""
        now = self._now()
        second = int(now)
        if second != self._second:
            self._second, self._date = second, time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(second))
        name = "INFO" if level == logging.INFO else logging.getLevelName(level)
        line = f"{self._date},{int((now - second) * 1000):03d} {name} {message}\n"
        if level < logging.WARNING and self._loop is not None and not self._loop.is_closed():
            self._held.append(line)  # what ``_take`` would do, while a timer runs
        else:
            self._take(level, line)

    def emit(self, record: logging.LogRecord) -> None:
        """``logging.Handler``: any other record."""
        try:
            line = self.format(record)
        except Exception:  # as every handler of the standard library: a record that cannot be printed ends no call
            self.handleError(record)
        else:
            self._take(record.levelno, f"{line}\n")

    def flush(self) -> None:
        """Write what is held."""
        self.acquire()
        try:
            lines = []
            while self._held:
                lines.append(self._held.popleft())
            if lines:
                self._write("".join(lines))
        finally:
            self.release()

    def _take(self, level: int, line: str) -> None:
        self._held.append(line)
        if level >= logging.WARNING:
            self.flush()
        elif self._loop is None or self._loop.is_closed():
            self._flush_soon()

    def _flush_soon(self) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # another thread, or nothing is served yet
            self.flush()
            return
        if loop.time() - self._written >= EVERY:
            self._flush_in_time(loop)
        else:
            self._loop = loop
            loop.call_later(EVERY, self._flush_in_time, loop)

    def _flush_in_time(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = None
        self._written = loop.time()
        self.flush()

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):
            # Whoever read the log has gone, or has closed it: that is no reason to stop serving, and there is
            # nowhere left to tell. logging's own handlers do the same.
            return
