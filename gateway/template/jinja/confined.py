"""Who renders what cannot be metered? A process of its own for each template, killed when it takes too long.

A thread could not be stopped (``specs/reliability.md`` 3.3). The process is started by the first render that needs it,
serves one render at a time, and is started anew after it had to be killed. It ends with the template it belongs to:
its standard input is closed then.
"""

from __future__ import annotations

import asyncio
import contextlib
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
from pathlib import Path
from typing import Any

import gateway
from gateway.core.errors import Overloaded, TemplateError
from gateway.template.jinja.environment import Refused
from gateway.template.jinja.script import Rendered

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
        job = _framed({"script": script, "variables": dict(variables)})
        with self._lock:
            process = self._process or self._started()
            answer = self._answer(process, job, TIME)
        if "text" in answer:
            return Rendered(answer["text"], tuple(answer["undefined"]))
        if "refused" in answer:
            raise Refused(answer["refused"])
        raise TemplateError(answer["failed"])

    def _started(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            # Isolated: neither the working directory nor PYTHON… variables choose what it imports.
            [sys.executable, "-I", str(SCRIPT), str(ROOT)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={},
        )
        self._process = process
        weakref.finalize(self, _end, process)
        started = self._answer(process, _framed(self._first), START)
        if "failed" in started:
            self._process = None
            _end(process)
            raise TemplateError(started["failed"])
        return process

    def _answer(self, process: subprocess.Popen[bytes], job: bytes, seconds: float) -> dict[str, Any]:
        assert process.stdin is not None
        assert process.stdout is not None
        deadline = time.monotonic() + seconds
        try:
            process.stdin.write(job)
            process.stdin.flush()
            out = process.stdout.fileno()
            (length,) = struct.unpack(">Q", _read(out, 8, deadline))
            answer: dict[str, Any] = json.loads(_read(out, length, deadline))
        except (OSError, EOFError) as error:
            self._process = None
            _end(process)
            if isinstance(error, TimeoutError):
                raise TemplateError(
                    f"the template {self._name} took longer than {seconds:g} s on this conversation and was stopped"
                ) from None
            raise TemplateError(
                f"the template {self._name} needed more memory or time than it may have, and was stopped"
            ) from None
        return answer


def _framed(value: Mapping[str, Any]) -> bytes:
    data = json.dumps(value, default=dict).encode("ascii")
    return struct.pack(">Q", len(data)) + data


def _read(file: int, length: int, deadline: float) -> bytes:
    """So many bytes; ``TimeoutError`` or ``EOFError`` otherwise."""
    data = bytearray()
    while len(data) < length:
        if not select.select([file], [], [], max(deadline - time.monotonic(), 0))[0]:
            raise TimeoutError
        more = os.read(file, min(length - len(data), 1 << 20))
        if not more:
            raise EOFError
        data += more
    return bytes(data)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        assert pipe is not None
        with contextlib.suppress(BrokenPipeError):  # what was still to be written has no reader any more
            pipe.close()
