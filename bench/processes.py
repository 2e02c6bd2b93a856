"""Child processes: pinned to a core, in a session of their own, measured through ``/proc``, stopped on leaving."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

TICK = 1 / os.sysconf("SC_CLK_TCK")
CORES = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
SYSTEM_CORE, LOAD_CORE = CORES[0], CORES[-1]
"""The core of the system under test, and the core of load generators and upstreams; equal where there is one core."""
STOP_TIMEOUT = 3.0
"""Seconds between SIGTERM and SIGKILL."""
MAX_OPEN_FILES = 65536
_PR_SET_PDEATHSIG = 1


class MeasurementError(Exception):
    """A system cannot be measured here; the report shows the message as the reason."""


def set_up_process() -> None:
    """Pin this process to ``LOAD_CORE`` and raise its limit of open files."""
    os.sched_setaffinity(0, {LOAD_CORE})
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft = MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(MAX_OPEN_FILES, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def free_port() -> int:
    """An unused loopback port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class ChildProcess:
    """A process and its descendants in one session, by which they are measured and stopped; a context manager."""

    def __init__(
        self,
        command: Sequence[str],
        core: int,
        log: Path,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        pipes: bool = False,
    ) -> None:
        """With ``pipes`` stdin and stdout are pipes to this process; else both outputs go to ``log``."""
        self.log = log
        self.started = time.monotonic()

        def before_exec() -> None:
            os.sched_setaffinity(0, {core})
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # also when this process is killed with SIGKILL

        with log.open("ab") as sink:
            self.popen = subprocess.Popen(
                list(command),
                stdin=subprocess.PIPE if pipes else subprocess.DEVNULL,
                stdout=subprocess.PIPE if pipes else sink,
                stderr=sink,
                env={**os.environ, **(env or {})},
                cwd=cwd,
                start_new_session=True,
                preexec_fn=before_exec,
            )

    def __enter__(self) -> ChildProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def session(self) -> int:
        """The session id."""
        return self.popen.pid

    def check_alive(self) -> None:
        """Raise ``MeasurementError`` with the last line of the log if the process has exited."""
        if self.popen.poll() is not None:
            tail = self.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
            raise MeasurementError(
                f"it exited with code {self.popen.returncode}: {' '.join(tail)[-200:] or 'its log is empty'}"
            )

    def stop(self) -> None:
        """Send SIGTERM to the process group, and SIGKILL after ``STOP_TIMEOUT``."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self.session, number)
            except ProcessLookupError:
                break
            try:
                self.popen.wait(STOP_TIMEOUT)
            except subprocess.TimeoutExpired:
                continue
            if not session_pids(self.session):
                break
        for pipe in (self.popen.stdin, self.popen.stdout):
            if pipe is not None:
                pipe.close()


def session_pids(session: int) -> list[int]:
    """The live processes of a session; none for session 0, which holds the kernel's threads."""
    if not session:
        return []
    pids = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return [pid for pid in pids if (stat := _stat(pid)) and int(stat[3]) == session and stat[0] != "Z"]


def process_cpu_seconds(pid: int) -> float:
    """User and system CPU time of one process; 0 if it has exited. One tick is 10 ms on most machines."""
    stat = _stat(pid)
    return (int(stat[11]) + int(stat[12])) * TICK if stat else 0.0


def cpu_seconds(session: int) -> float:
    """CPU time of all processes of a session."""
    return sum(process_cpu_seconds(pid) for pid in session_pids(session))


def rss_bytes(session: int) -> int:
    """Resident memory of all processes of a session; a page shared by several processes counts once for each."""
    total = 0
    for pid in session_pids(session):
        try:
            text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        total += next((int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("Rss:")), 0)
    return total


def _stat(pid: int) -> list[str]:
    """The fields of ``/proc/PID/stat`` after the name: state, parent, group, session, …; empty if it has exited."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        return text.rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []
