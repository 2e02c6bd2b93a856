"""Rendering in a subprocess with a time limit and a memory limit.

A long render would block the event loop, and a render in a thread cannot be interrupted. So a process that can be
killed renders the large conversations. The first job starts the process, which does one job at a time. A killed process
is replaced. The process ends with its ``SubprocessRenderer``. Another process measures templates (``in_process.py``).
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
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from gateway.core.errors import InvalidValue, Overloaded, TemplateError
from gateway.template.huggingface.sandbox.compiled_template import RenderedText

RENDER_CPU = 0.8
"""The limit of processor time for one render, in seconds."""
COMPILE_CPU = 2.0
"""The limit of processor time for compiling the templates, in seconds."""
JOB_TIMEOUT = 20.0
"""The time limit of one job in seconds, from sending the job to the end of the reply. Only a machine under load reaches
it before the limit of processor time."""
MAX_WAITING = 16
"""The largest number of calls that wait for the process of a template. Further calls would wait too long."""

WORKER = Path(__file__).with_name("worker.py")


class _ProcessEnded(TemplateError):
    """The process ended during a job."""


class SubprocessRenderer:
    """Renders the templates of one model's folder in a subprocess."""

    def __init__(self, name: str, sources: tuple[str, ...], clock: str) -> None:
        """Create a renderer. ``clock``: the time for ``strftime_now`` in ISO 8601; empty for the present time."""
        self._name = name
        self._templates = {"sources": list(sources), "clock": clock}
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection[Any, Any] | None = None
        self._kill: weakref.finalize[Any, Any] | None = None
        """Ends the process. This happens at the latest when this object is garbage-collected."""
        self._idle: threading.Timer | None = None
        self._lock = threading.Lock()
        self._executor: ThreadPoolExecutor | None = None
        self._waiting = 0

    def load(self, name: str, sources: tuple[str, ...], clock: str) -> None:
        """Replace the templates. Raises ``TemplateError`` if a template cannot be compiled."""
        with self._lock:
            self._name = name
            self._templates = {"sources": list(sources), "clock": clock}
            if self._process is None:
                self._start()
            else:
                self._compile()

    def seconds(self, template: int, variables: Mapping[str, Any]) -> float | None:
        """Return the processor time in seconds: infinity for a render that failed, None for a refused conversation."""
        try:
            reply, _ = self._reply(template, variables)
        except TemplateError:  # the process was stopped
            return float("inf")
        if "refused" in reply:
            return None
        return float("inf") if "failed" in reply else float(reply["seconds"])

    async def render_async(self, template: int, variables: Mapping[str, Any]) -> RenderedText:
        """Render without blocking the event loop. See ``render``. Raises ``Overloaded`` if too many calls wait."""
        if self._waiting >= MAX_WAITING:
            raise Overloaded(
                f"{self._waiting} calls wait for the process that renders the template {self._name}; retry later",
                retry_after=1.0,
            )
        if self._executor is None:
            self._executor = ThreadPoolExecutor(1, thread_name_prefix=f"template-{self._name}")
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._executor, self.render, template, variables)
        finally:
            self._waiting -= 1

    def render(self, template: int, variables: Mapping[str, Any]) -> RenderedText:
        """Render the conversation. ``template`` is an index into ``sources``.

        Raises ``InvalidValue`` if the template refuses the conversation, and ``TemplateError`` if rendering fails or
        exceeds a limit.
        """
        reply, text = self._reply(template, variables)
        if "refused" in reply:
            raise InvalidValue(reply["refused"], param="messages")
        if "failed" in reply:
            raise TemplateError(reply["failed"])
        return RenderedText(text, tuple(reply["undefined"]))

    def _reply(self, template: int, variables: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
        """Return the process's reply and the rendered text. Raises ``TemplateError`` if the process was stopped."""
        job = {"template": template, "variables": dict(variables), "now": datetime.now().isoformat()}
        with self._lock:
            is_new = self._process is None
            if is_new:
                self._start()
            try:
                return self._call(job, RENDER_CPU)
            except _ProcessEnded:
                if is_new:
                    raise
            self._start()  # the process may have died before this job
            return self._call(job, RENDER_CPU)

    def stop_after(self, seconds: float) -> None:
        """End the process after this many seconds. A later call sets a new time. The next job starts a new process."""
        if self._idle is not None:
            self._idle.cancel()
        self._idle = threading.Timer(seconds, self._stop_idle)
        self._idle.daemon = True
        self._idle.start()

    def _stop_idle(self) -> None:
        with self._lock:
            self._stop()

    def _start(self) -> None:
        try:
            ours, theirs = Pipe()
            with theirs:
                process = subprocess.Popen(
                    [sys.executable, "-I", str(WORKER), str(theirs.fileno()), *sys.path],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    env={},
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,  # signals of the gateway's terminal do not reach the process
                )
        except OSError as error:
            raise TemplateError(
                f"the process that renders the template {self._name} could not be started: {error.strerror}"
            ) from None
        self._process, self._connection = process, ours
        self._kill = weakref.finalize(self, _kill, process, ours)
        self._compile()

    def _compile(self) -> None:
        reply, _ = self._call(self._templates, COMPILE_CPU)
        if "failed" in reply:
            self._stop()
            raise TemplateError(reply["failed"])

    def _stop(self) -> None:
        self._process = self._connection = None
        if self._kill is not None:
            self._kill()
            self._kill = None

    def _call(self, message: Mapping[str, Any], cpu_seconds: float) -> tuple[dict[str, Any], str]:
        """Send a message and return the reply and the rendered text. ``cpu_seconds``: the limit of processor time.

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
            connection.send_bytes(json.dumps({**message, "cpu_seconds": cpu_seconds}, default=dict).encode("ascii"))
            reply: dict[str, Any] = json.loads(connection.recv_bytes())
            text = connection.recv_bytes().decode("utf-8", "surrogatepass") if "undefined" in reply else ""
        except BaseException as error:
            self._stop()
            if not isinstance(error, (OSError, EOFError)):
                raise
            limit = ""
            if process.returncode == -signal.SIGPROF:
                limit = f"{cpu_seconds:g} s of processor time"
            elif time.monotonic() - began >= JOB_TIMEOUT:
                limit = f"{JOB_TIMEOUT:g} s"
            if limit:
                raise TemplateError(
                    f"the template {self._name} took longer than {limit} on this conversation and was stopped"
                ) from None
            raise _ProcessEnded(
                f"the process that renders the template {self._name} was stopped: it used too much memory or time"
            ) from None
        finally:
            timer.cancel()
        return reply, text


def _kill(process: subprocess.Popen[bytes], connection: Connection[Any, Any]) -> None:
    process.kill()
    process.wait()
    connection.close()
