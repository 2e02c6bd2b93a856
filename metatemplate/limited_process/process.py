"""A subprocess that does jobs within a time limit and a memory limit.

A job on a stranger's input may take too long for the event loop, and a job in a thread cannot be interrupted. So a
process that can be killed does such jobs. The first job starts the process, which does one job at a time. A killed
process is replaced. Its job is tried once more if the process was killed from outside, for example by the system when
memory was short. The process ends with its ``LimitedProcess``.
"""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar, TypeVarTuple

from metatemplate.errors import RendererBusy

JOB_TIMEOUT = 20.0
"""The time limit of one job in seconds, from sending the job to the end of the reply. Only a machine under load reaches
it before the limit of processor time."""

OUTSIDE_SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
"""The signals with which others end the process. A job that reaches a limit, or crashes, ends it in another way."""

WORKER = Path(__file__).with_name("worker.py")

Reply = tuple[dict[str, Any], str]
"""What a job returns: values of JSON, and a text. A long text is sent faster beside the values than among them.

The values have ``seconds`` too, the processor time of the job."""
Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")


class JobNotDone(Exception):
    """The process has not done a job. The message gives the reason."""


class JobTooSlow(JobNotDone):
    """The process was stopped, because a job took too long."""

    def __init__(self, limit: str) -> None:
        super().__init__(f"the job took longer than {limit} and was stopped")
        self.limit = limit
        """The limit that the job has exceeded, such as ``0.8 s of processor time``."""


class ProcessEnded(JobNotDone):
    """The job has ended its process, such as by too much memory."""


class ProcessKilled(JobNotDone):
    """The process was killed from outside during both tries of a job."""


class LimitedProcess:
    """A subprocess that does jobs within limits."""

    def __init__(self, job_module: str, purpose: str, *, max_waiting: int) -> None:
        """Create the object. The first job starts the process.

        ``job_module``: the module with the function ``do_job(job) -> Reply``. Only the subprocess imports the module.
        ``purpose``: what the process does, for messages, such as ``renders the template t``.
        ``max_waiting``: the largest number of calls of ``in_thread`` that wait for the process at the same time.
        """
        self._job_module = job_module
        self._purpose = purpose
        self._max_waiting = max_waiting
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection[Any, Any] | None = None
        self._kill: weakref.finalize[Any, Any] | None = None
        """Ends the process. This happens at the latest when this object is garbage-collected."""
        self._idle: threading.Timer | None = None
        self._lock = threading.Lock()
        """Held during a job, and while the process is started or stopped."""
        self._executor: ThreadPoolExecutor | None = None
        self._waiting = 0

    def call(self, job: Mapping[str, Any], cpu_seconds: float) -> Reply:
        """Do a job and return its reply. ``job``: values of JSON. ``cpu_seconds``: the limit of its processor time.

        Raises ``JobNotDone``.
        """
        return self._twice(lambda: self._do(job, cpu_seconds))

    async def in_thread(self, function: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
        """Run a function that calls ``call``, in the thread of this process, without blocking the event loop.

        Raises ``RendererBusy`` if too many calls wait.
        """
        if self._waiting >= self._max_waiting:
            raise RendererBusy(
                f"{self._waiting} calls wait for the process that {self._purpose}; retry later", retry_after=1.0
            )
        if self._executor is None:
            self._executor = ThreadPoolExecutor(1, thread_name_prefix=self._job_module.rpartition(".")[2])
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._executor, function, *arguments)
        finally:
            self._waiting -= 1

    def stop_after(self, seconds: float) -> None:
        """End the process after this many seconds. A later call sets a new time. The next job starts a new process."""
        if self._idle is not None:
            self._idle.cancel()
        self._idle = threading.Timer(seconds, _stop_idle, [weakref.ref(self)])
        self._idle.daemon = True
        self._idle.start()

    def stop(self) -> None:
        """End the process after the job that it does now. The next job starts a new process."""
        with self._lock:
            self._stop()

    def _twice(self, function: Callable[[], Result]) -> Result:
        """Call a function, and once more if the process is killed from outside before the function has returned."""
        with self._lock:
            try:
                return function()
            except ProcessKilled:
                return function()

    def _do(self, job: Mapping[str, Any], cpu_seconds: float) -> Reply:
        if self._process is None or self._process.poll() is not None:  # it may have been killed since the last job
            self._stop()
            self._start()
        return self._send(job, cpu_seconds)

    def _prepare(self) -> None:
        """Send the first jobs of a new process. A class whose jobs need an earlier job overrides this function."""

    def _start(self) -> None:
        try:
            ours, theirs = Pipe()
            with theirs:
                process = subprocess.Popen(
                    [sys.executable, "-I", str(WORKER), str(theirs.fileno()), self._job_module, *sys.path],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    env={},
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,  # signals of the gateway's terminal do not reach the process
                )
        except OSError as error:
            raise JobNotDone(f"the process that {self._purpose} could not be started: {error.strerror}") from None
        self._process, self._connection = process, ours
        self._kill = weakref.finalize(self, _kill, process, ours)
        self._prepare()

    def _stop(self) -> None:
        self._process = self._connection = None
        if self._kill is not None:
            self._kill()
            self._kill = None

    def _send(self, job: Mapping[str, Any], cpu_seconds: float) -> Reply:
        """Send a job and return the reply.

        Without a reply, or after any exception, the process is stopped. Otherwise the next job would get the late reply
        of this job.
        """
        process, connection = self._process, self._connection
        assert process is not None
        assert connection is not None
        timer = threading.Timer(JOB_TIMEOUT, process.kill)  # this also ends a blocked send or receive
        timer.daemon = True
        began = time.monotonic()
        timer.start()
        try:
            connection.send_bytes(json.dumps({**job, "cpu_seconds": cpu_seconds}, default=dict).encode("ascii"))
            values: dict[str, Any] = json.loads(connection.recv_bytes())
            return values, connection.recv_bytes().decode("utf-8", "surrogatepass")
        except BaseException as error:
            self._stop()
            if not isinstance(error, (OSError, EOFError)):
                raise
            if process.returncode == -signal.SIGPROF:
                raise JobTooSlow(f"{cpu_seconds:g} s of processor time") from None
            if time.monotonic() - began >= JOB_TIMEOUT:
                raise JobTooSlow(f"{JOB_TIMEOUT:g} s") from None
            if -process.returncode in OUTSIDE_SIGNALS:
                raise ProcessKilled(f"the process that {self._purpose} was killed") from None
            raise ProcessEnded(
                f"the process that {self._purpose} was stopped: it used too much memory or time"
            ) from None
        finally:
            timer.cancel()


def _kill(process: subprocess.Popen[bytes], connection: Connection[Any, Any]) -> None:
    process.kill()
    process.wait()
    connection.close()


def _stop_idle(reference: weakref.ref[LimitedProcess]) -> None:
    """Stop a process. The timer has only a weak reference, because the process must end with its owner."""
    if (owner := reference()) is not None:
        owner.stop()
