"""How do lines reach the log at ten thousand calls a second? A thread writes them, many at once, ten times a second.

Serving never waits for the reader of standard error: lines that the reader does not take wait, up to ``MOST`` of them,
and further ones are dropped and counted. The first line after a quiet moment is written at once, and so is a warning,
or worse, with all that waits before it. At the end of the process ``logging`` flushes its handlers, so an orderly end
loses nothing that is read. Order is kept.
"""

from __future__ import annotations

import logging
import os
import select
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial

EVERY = 0.1
"""Seconds between two writes, while there are only lines without hurry."""
MOST = 4096
"""Lines that may wait for the reader of the log."""
PATIENCE = 1.0
"""Seconds that ``flush`` waits for the reader of the log."""

FORMAT = "%(asctime)s %(levelname)s %(message)s"


def log_to_stderr(level: str, dropped: Callable[[], object]) -> None:
    """Set this process's logging up: lines of ``level`` and above go to standard error.

    ``dropped`` is called for each line that is dropped, in the thread that has said it.
    """
    # The descriptor, not ``sys.stderr``: a write that is stuck would keep that object's lock, also from the exit.
    descriptor = os.open(os.devnull, os.O_WRONLY) if sys.stderr is None else sys.stderr.fileno()
    logging.basicConfig(level=level.upper(), handlers=[Lines(partial(_write_all, descriptor), dropped)])
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)


class Lines(logging.Handler):
    """A log handler whose lines are written by a thread of its own."""

    def __init__(
        self,
        write: Callable[[str], object],
        dropped: Callable[[], object] = lambda: None,
        now: Callable[[], float] = time.time,
    ) -> None:
        """``write`` takes whole lines and may block; lines for which it raises an error count as dropped."""
        super().__init__()
        self._write = write
        self._dropped = dropped
        self._now = now
        self._held: deque[str | threading.Event] = deque()
        """Lines to be written, and events to be set when all before them have been."""
        self._wake = threading.Event()
        """There is something to write."""
        self._hurry = threading.Event()
        """It shall be written at once."""
        self._second = -1
        self._date = ""
        self._format = logging.Formatter(FORMAT)
        self.setFormatter(self._format)
        threading.Thread(target=self._run, name="log", daemon=True).start()

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
        self._put(level, f"{self._date},{int((now - second) * 1000):03d} {name} {message}\n")

    def emit(self, record: logging.LogRecord) -> None:
        """``logging.Handler``: any other record."""
        try:
            line = self.format(record)
        except Exception:  # as every handler of the standard library: a record that cannot be printed ends no call
            self.handleError(record)
        else:
            self._put(record.levelno, f"{line}\n")

    def flush(self) -> None:
        """Wait until what has been said is written, or ``PATIENCE`` is over."""
        written = threading.Event()
        self._held.append(written)
        self._hurry.set()
        self._wake.set()
        written.wait(PATIENCE)

    def _put(self, level: int, line: str) -> None:
        if len(self._held) >= MOST:
            self._dropped()
            return
        self._held.append(line)
        if level >= logging.WARNING:
            self._hurry.set()
        if not self._wake.is_set():
            self._wake.set()

    def _run(self) -> None:
        while self._wake.wait():
            self._wake.clear()
            self._write_held()
            self._hurry.wait(EVERY)
            self._hurry.clear()

    def _write_held(self) -> None:
        lines: list[str] = []
        written: list[threading.Event] = []
        while self._held:
            one = self._held.popleft()
            if isinstance(one, str):
                lines.append(one)
            else:
                written.append(one)
        try:
            if lines:
                self._write("".join(lines))
        except Exception:  # the reader of the log has gone, memory is short: this thread has to live, as serving does
            for _ in lines:
                self._dropped()
        for event in written:
            event.set()


def _write_all(descriptor: int, text: str) -> None:
    data = text.encode("utf-8", "backslashreplace")
    while data:
        try:
            data = data[os.write(descriptor, data) :]
        except BlockingIOError:  # standard error was made non-blocking by another process that shares it
            select.select((), (descriptor,), ())
