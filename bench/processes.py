"""Who runs where, and what does it use? Children in process groups of their own, pinned, counted, and always ended."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

TICK = 1 / os.sysconf("SC_CLK_TCK")
CORES = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
PROXY, LOAD = CORES[0], CORES[-1]
"""The core of whatever is measured, and the core of everything else; one and the same on a machine with one core."""
STOP = 3.0
"""Seconds a child has to leave before it is killed."""
FILES = 65536
_PR_SET_PDEATHSIG = 1


class Unfit(Exception):
    """Something cannot be measured here; the message is the reason that the table shows."""


def prepare() -> None:
    """Stay off the measured core, and allow as many open sockets as the machine does."""
    pin(LOAD)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft = FILES if hard == resource.RLIM_INFINITY else min(FILES, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def pin(core: int) -> None:
    """Run this process on one core."""
    os.sched_setaffinity(0, {core})


def free_port() -> int:
    """A loopback port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Child:
    """A process and all that it starts; they share one session, by which they are counted and ended."""

    def __init__(
        self,
        command: Sequence[str],
        core: int,
        log: Path,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        pipes: bool = False,
    ) -> None:
        """``pipes``: standard input and output are ours; else both outputs go to ``log``."""
        self.log = log
        self.began = time.monotonic()

        def first() -> None:
            os.sched_setaffinity(0, {core})
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # not even SIGKILL of ours leaves it behind

        with log.open("ab") as sink:
            self.popen = subprocess.Popen(
                list(command),
                stdin=subprocess.PIPE if pipes else subprocess.DEVNULL,
                stdout=subprocess.PIPE if pipes else sink,
                stderr=sink,
                env={**os.environ, **(env or {})},
                cwd=cwd,
                start_new_session=True,
                preexec_fn=first,
            )

    @property
    def session(self) -> int:
        """The session's id."""
        return self.popen.pid

    def check(self) -> None:
        """``Unfit`` with the end of its log, if it has left by itself."""
        if self.popen.poll() is not None:
            tail = self.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
            raise Unfit(f"it ended with code {self.popen.returncode}: {' '.join(tail)[-200:] or 'and said nothing'}")

    def end(self) -> None:
        """Ask the group to leave, then make it."""
        for number, patience in ((signal.SIGTERM, STOP), (signal.SIGKILL, STOP)):
            try:
                os.killpg(self.session, number)
            except ProcessLookupError:
                break
            try:
                self.popen.wait(patience)
            except subprocess.TimeoutExpired:
                continue
            if not members(self.session):
                break
        for pipe in (self.popen.stdin, self.popen.stdout):
            if pipe is not None:
                pipe.close()


@contextmanager
def running(child: Child) -> Iterator[Child]:
    """The child is ended on leaving."""
    try:
        yield child
    finally:
        child.end()


def members(session: int) -> list[int]:
    """The living processes of a session."""
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit() and _in(entry, session)]


def cpu_seconds(session: int) -> float:
    """Processor time of all processes of a session since their start; one tick is 10 ms on most machines."""
    ticks = 0
    for pid in members(session):
        fields = _stat(Path(f"/proc/{pid}"))
        if fields:
            ticks += int(fields[11]) + int(fields[12])  # utime, stime
    return ticks * TICK


def rss_bytes(session: int) -> int:
    """Resident memory of all processes of a session, in bytes; shared pages count once each."""
    total = 0
    for pid in members(session):
        try:
            text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        total += next((int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("Rss:")), 0)
    return total


def _in(entry: Path, session: int) -> bool:
    fields = _stat(entry)
    return bool(fields) and int(fields[3]) == session and fields[0] != "Z"


def _stat(entry: Path) -> list[str]:
    """``/proc/PID/stat`` behind the name: state, parent, group, session, …; empty if the process is gone."""
    try:
        return (entry / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []
