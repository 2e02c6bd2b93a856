"""Who renders what cannot be metered? A process of its own for each template, killed when it takes too long.

A thread could not be stopped (``specs/reliability.md`` 3.3). The process is started by the first render that needs it,
serves one render at a time, and is started anew after it had to be killed. It ends with the template it belongs to:
its standard input is closed then.
"""

from __future__ import annotations

import asyncio
import json
import os
import select
import struct
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any

import gateway
from gateway.core.errors import Overloaded, TemplateError
from gateway.template.huggingface.sandbox.environment import Refused
from gateway.template.huggingface.sandbox.script import Rendered

TIME = 0.8
"""Seconds for one render, from handing over the job to the whole answer."""
START = 20.0
"""Seconds for the process to be ready; a machine under load takes a while to start Python."""
MOST_WAITING = 16
"""Calls that wait for one template's process; more are refused, because they would wait too long."""

SCRIPT = Path(__file__).with_name("worker.py")
ROOT = Path(gateway.__file__).resolve().parent.parent


class Confined:
    """The process of one template."""

    def __init__(self, name: str, sources: tuple[str, ...], clock: str) -> None:
        """``clock``: a moment in ISO 8601, or empty for the present one."""
        self._name = name
        self._first = {"sources": list(sources), "clock": clock}
        self._process: subprocess.Popen[bytes] | None = None
        self._ends: weakref.finalize[Any, Any] | None = None
        """Ends the process, now or with this object."""
        self._number = 0
        """Of the last job; the answer has to repeat it."""
        self._lock = threading.Lock()
        self._threads: ThreadPoolExecutor | None = None
        self._waiting = 0

    async def render_awaited(self, script: int, variables: Mapping[str, Any]) -> Rendered:
        """As ``render``, while the event loop goes on."""
        if self._waiting >= MOST_WAITING:
            raise Overloaded(
                f"the template {self._name} is rendered in a process of its own, and {self._waiting} calls wait for it",
                retry_after=1.0,
            )
        if self._threads is None:
            self._threads = ThreadPoolExecutor(1, thread_name_prefix=f"template-{self._name}")
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, self.render, script, variables)
        finally:
            self._waiting -= 1

    def render(self, script: int, variables: Mapping[str, Any]) -> Rendered:
        """The text. Raises ``Refused``, or ``TemplateError`` for a template that fails or takes too long."""
        job = {"script": script, "variables": dict(variables), "now": datetime.now().isoformat()}
        with self._lock:
            process, fresh = self._process, False
            if process is None or process.poll() is not None:
                process, fresh = self._started(), True
            try:
                answer, text = self._answered(process, job, TIME)
            except _GoneError:
                if fresh:
                    raise TemplateError(_too_much(self._name)) from None
                # It may have died while nobody called; this job is then not to blame, and gets one of its own.
                try:
                    answer, text = self._answered(self._started(), job, TIME)
                except _GoneError:
                    raise TemplateError(_too_much(self._name)) from None
        if "undefined" in answer:
            return Rendered(text, tuple(answer["undefined"]))
        if "refused" in answer:
            raise Refused(answer["refused"])
        raise TemplateError(answer["failed"])

    def _started(self) -> subprocess.Popen[bytes]:
        self._stop()
        try:
            process = subprocess.Popen(
                # Isolated: neither the working directory nor PYTHON… variables choose what it imports.
                [sys.executable, "-I", str(SCRIPT), str(ROOT)],
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={},
                start_new_session=True,  # what is typed at the gateway's terminal is not for it
            )
        except OSError as error:
            raise TemplateError(
                f"the process that renders the template {self._name} could not be started: {error.strerror}"
            ) from None
        self._process = process
        self._ends = weakref.finalize(self, _end, process)
        assert process.stdin is not None
        os.set_blocking(process.stdin.fileno(), False)
        try:
            started, _ = self._answered(process, self._first, START)
        except _GoneError:
            raise TemplateError(f"the process that renders the template {self._name} ended at its start") from None
        if "failed" in started:
            self._stop()
            raise TemplateError(started["failed"])
        return process

    def _stop(self) -> None:
        self._process = None
        if self._ends is not None:
            self._ends()
            self._ends = None

    def _answered(
        self, process: subprocess.Popen[bytes], job: Mapping[str, Any], seconds: float
    ) -> tuple[dict[str, Any], str]:
        """The answer to this very job and the text in it. However it is left without one, the process ends.

        What is still to come from it would be taken for the answer to the next job, which is another client's.
        """
        assert process.stdin is not None
        assert process.stdout is not None
        self._number += 1
        framed = _framed({**job, "number": self._number})
        deadline = time.monotonic() + seconds
        try:
            _write(process.stdin.fileno(), framed, deadline)
            out = process.stdout.fileno()
            length, length_of_text = struct.unpack(">QQ", _read(out, 16, deadline))
            answer: dict[str, Any] = json.loads(_read(out, length, deadline))
            text = _read(out, length_of_text, deadline).decode("utf-8", "surrogatepass")
            if answer["number"] != self._number:
                raise RuntimeError(f"an answer to job {answer['number']} came for job {self._number}")
        except BaseException as error:
            self._stop()
            if isinstance(error, TimeoutError):
                raise TemplateError(
                    f"the template {self._name} took longer than {seconds:g} s on this conversation and was stopped"
                ) from None
            if isinstance(error, (OSError, EOFError)):
                raise _GoneError from None
            raise
        return answer, text


class _GoneError(Exception):
    """The process ended before it had answered."""


def _too_much(name: str) -> str:
    return f"the template {name} needed more memory or time than it may have, and was stopped"


def _framed(value: Mapping[str, Any]) -> bytes:
    data = json.dumps(value, default=dict).encode("ascii")
    return struct.pack(">Q", len(data)) + data


def _write(file: int, data: bytes, deadline: float) -> None:
    """All of it, or ``TimeoutError``; ``BrokenPipeError`` if nobody reads any more."""
    left = memoryview(data)
    while left:
        _wait(file, select.POLLOUT, deadline)
        left = left[os.write(file, left) :]


def _read(file: int, length: int, deadline: float) -> bytes:
    """So many bytes; ``TimeoutError`` or ``EOFError`` otherwise."""
    data = bytearray()
    while len(data) < length:
        _wait(file, select.POLLIN, deadline)
        more = os.read(file, min(length - len(data), 1 << 20))
        if not more:
            raise EOFError
        data += more
    return bytes(data)


def _wait(file: int, event: int, deadline: float) -> None:
    # Not ``select.select``, which takes no file beyond the 1024th.
    poll = select.poll()
    poll.register(file, event)
    if not poll.poll(max(deadline - time.monotonic(), 0) * 1000):
        raise TimeoutError


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        assert pipe is not None
        pipe.close()
