"""Writes log lines in a thread, many at once, ten times a second.

Calls never wait for the reader of standard error: up to ``MAX_WAITING`` lines wait, and further lines are dropped and
counted. The first line after a quiet moment is written at once. A warning or error is written at once, after all
earlier lines. The order of lines is kept. ``logging`` flushes the handlers at the end of the process.
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
from datetime import UTC, datetime
from functools import partial

import orjson

WRITE_SECONDS = 0.1
"""Seconds between two writes, unless a warning or an error is logged."""
MAX_WAITING = 4096
"""The maximum number of lines that wait to be written."""
FLUSH_SECONDS = 1.0
"""The maximum time in seconds that ``flush`` waits."""

FORMAT = "%(asctime)s %(levelname)s %(message)s"
MILLISECONDS = [f"{number:03d}" for number in range(1000)]
"""The texts of 0 to 999. To format a number takes 1 400 instructions, to look up its text 100."""


class JsonFormatter(logging.Formatter):
    """One JSON object for each record: time (UTC), level, logger, and the record's ``fields`` or its message."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line of JSON."""
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line = {"time": time, "level": record.levelname, "logger": record.name}
        line |= getattr(record, "fields", None) or {"message": record.getMessage()}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return orjson.dumps(line, default=str).decode()


def log_to_stderr(level: str, form: str, dropped: Callable[[], object]) -> None:
    """Set up the logging of this process: lines of ``level`` and above go to standard error.

    ``form``: ``text`` or ``json``. ``dropped`` is called for each dropped line, in the thread that logged it.
    """
    # Not ``sys.stderr``: a blocked write would keep the lock of that object, even while the process exits.
    descriptor = os.open(os.devnull, os.O_WRONLY) if sys.stderr is None else sys.stderr.fileno()
    writer = LogWriter(partial(_write_all, descriptor), dropped)
    if form == "json":
        writer.setFormatter(JsonFormatter())
    logging.basicConfig(level=level.upper(), handlers=[writer])


class LogWriter(logging.Handler):
    """A log handler that writes its lines in a separate thread."""

    def __init__(
        self,
        write: Callable[[str], object],
        dropped: Callable[[], object] = lambda: None,
        now: Callable[[], float] = time.time,
    ) -> None:
        """``write`` receives whole lines and may block. If ``write`` raises an error, its lines count as dropped."""
        super().__init__()
        self._write = write
        self._dropped = dropped
        self._now = now
        self._waiting, self._flushes = deque[str](), deque[threading.Event]()
        """Lines to write, and events to set when the lines that waited before them are written."""
        self._has_lines = threading.Event()
        self._write_now = threading.Event()
        self._second = -1
        self._date = ""
        self._format = logging.Formatter(FORMAT)
        self.setFormatter(self._format)
        threading.Thread(target=self._run, name="log", daemon=True).start()

    def is_only_handler_of(self, logger: logging.Logger) -> bool:
        """Return whether records of the logger reach only this handler and no filter, so that none need be created."""
        one = logger
        while one.parent is not None:
            if one.handlers or not one.propagate:
                return False
            one = one.parent
        is_plain = not (logger.filters or self.filters or self.level) and self.formatter is self._format
        return is_plain and one.handlers == [self]

    def write_line(self, level: int, message: str) -> None:
        """Write a line with the date and the level, in the form of ``FORMAT``, without a ``LogRecord``."""
        now = self._now()
        second = int(now)
        if second != self._second:
            self._second, self._date = second, time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(second))
        name = "INFO" if level == logging.INFO else logging.getLevelName(level)
        self._put(level, f"{self._date},{MILLISECONDS[int((now - second) * 1000)]} {name} {message}\n")

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record. ``logging`` calls this method."""
        try:
            line = self.format(record)
        except Exception:  # as every handler of the standard library: a record that cannot be formatted ends no call
            self.handleError(record)
        else:
            self._put(record.levelno, f"{line}\n")

    def flush(self) -> None:
        """Wait until all lines are written, for at most ``FLUSH_SECONDS``."""
        written = threading.Event()
        self._flushes.append(written)
        self._write_now.set()
        self._has_lines.set()
        written.wait(FLUSH_SECONDS)

    def _put(self, level: int, line: str) -> None:
        if len(self._waiting) >= MAX_WAITING:
            self._dropped()
            return
        self._waiting.append(line)
        if level >= logging.WARNING:
            self._write_now.set()
        if not self._has_lines.is_set():
            self._has_lines.set()

    def _run(self) -> None:
        while self._has_lines.wait():
            self._has_lines.clear()
            self._write_waiting()
            self._write_now.wait(WRITE_SECONDS)
            self._write_now.clear()

    def _write_waiting(self) -> None:
        # Taken before the lines: every line that was logged before a flush is already in ``_waiting``.
        flushes = [self._flushes.popleft() for _ in range(len(self._flushes))]
        lines = [self._waiting.popleft() for _ in range(len(self._waiting))]
        try:
            if lines:
                self._write("".join(lines))
        except (OSError, ValueError, MemoryError):  # such as a full disk or a closed pipe; the lines are counted
            for _ in lines:
                self._dropped()
        for written in flushes:
            written.set()


def _write_all(descriptor: int, text: str) -> None:
    data = text.encode("utf-8", "backslashreplace")
    while data:
        try:
            data = data[os.write(descriptor, data) :]
        except BlockingIOError:  # another process that shares standard error has made it non-blocking
            select.select((), (descriptor,), ())
