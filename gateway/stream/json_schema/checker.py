"""Checks the schemas of clients, and the answers that must match them, in a subprocess with limits.

A pattern such as ``(a+)+$``, or a schema that refers to itself twice, can take hours for a short answer. Neither a
step limit nor a thread can stop the regular expressions of Python, so a process that can be killed checks everything.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import orjson

from gateway.core.errors import InvalidValue, Overloaded
from gateway.core.exchange import AnswerFormat
from gateway.stream.json_schema.response_format import SCHEMA_PLACES
from gateway.stream.json_schema.subschemas import place_in
from metatemplate.limited_process.process import JobNotDone, JobTooSlow, LimitedProcess, ProcessEnded

SCHEMA_CPU = 2.0
"""The limit of processor time for checking a schema, in seconds. A schema of 2,000 schemas takes 0.5 s."""
ANSWER_CPU = 0.3
"""The limit of processor time for checking a short answer, in seconds. A typical answer takes less than 1 ms, and a
short one with a pattern that backtracks takes longer than any limit."""
ANSWER_CPU_PER_CHARACTER = 5e-6
"""The seconds by which the limit grows with each character of an answer. Typical schemas take 1e-6 to 2.5e-6."""
MAX_ANSWER_CPU = 5.0
"""The largest limit of processor time for an answer, in seconds."""
MAX_SECONDS = 10.0
"""The limit of one check in seconds, with its time in the queue."""
MAX_WAITING = 256
"""The largest number of client keys that wait for the process."""
MAX_CHECKED = 1024
"""The number of schemas whose check is remembered."""
IDLE_SECONDS = 60.0
"""The process ends this many seconds after the last job. A start takes about 0.2 s."""

JOB_MODULE = "gateway.stream.json_schema.check_job"


class UncheckableSchema(InvalidValue):
    """A schema, or an answer in its format, cannot be checked within the limits."""


class SchemaChecker:
    """Checks schemas and answers. The first check starts the process."""

    def __init__(
        self, *, idle_seconds: float = IDLE_SECONDS, max_checked: int = MAX_CHECKED, max_seconds: float = MAX_SECONDS
    ) -> None:
        """Create a checker. ``idle_seconds``: the process ends this many seconds after the last check.

        ``max_checked``: the number of schemas whose check is remembered. ``max_seconds``: the limit of one check with
        its time in the queue.
        """
        self._process = LimitedProcess(JOB_MODULE, "checks JSON schemas", max_waiting=MAX_WAITING)
        self._idle_seconds = idle_seconds
        self._max_checked = max_checked
        self._max_seconds = max_seconds
        self._checked: dict[bytes, dict[str, Any]] = {}
        """The replies for the latest schemas, by the hash of the schema; the schema that was used last comes last."""
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        """Client key → the lock of its jobs. Each key has one job in the queue, so that the keys take turns."""

    async def check_schema(self, wanted: AnswerFormat, client: str = "") -> None:
        """Raise ``InvalidValue`` if the schema is not a valid schema of draft 2020-12.

        ``client``: the name of the client's key. Raises ``UncheckableSchema`` if the check takes too long, and
        ``Overloaded`` if the call has to wait too long for it.
        """
        if wanted.schema is None:
            return
        schema, where = _text(wanted.schema), SCHEMA_PLACES[wanted.param]
        digest = sha256(schema).digest()
        reply = self._checked.pop(digest, None) or await self._do({"schema": schema.decode()}, SCHEMA_CPU, client)
        self._checked[digest] = reply
        if len(self._checked) > self._max_checked:
            del self._checked[next(iter(self._checked))]
        if "failed" in reply:
            raise UncheckableSchema.at(where, f" cannot be checked: {reply['failed']}; send a simpler schema")
        if reply["problem"] is not None:
            place = place_in(where, reply["place"])
            raise InvalidValue.at(place, f" {reply['problem']}")

    async def problem(self, wanted: AnswerFormat, text: str, client: str = "") -> str | None:
        """Return why a text is not an answer in this format, such as ``$.name must be a string, not null``; or None.

        ``client`` and errors: see ``check_schema``.
        """
        schema, where = None if wanted.schema is None else _text(wanted.schema), SCHEMA_PLACES[wanted.param]
        job = {"schema": None if schema is None else schema.decode(), "answer": text}
        reply = await self._do(job, answer_cpu(text), client)
        if "failed" in reply:
            raise UncheckableSchema(
                f"the answer cannot be checked with {where}: {reply['failed']}; send a simpler schema", param=where
            )
        problem: str | None = reply["problem"]
        return problem

    def close(self) -> None:
        """End the process after the job under way, which takes 5 s at most. A later check starts a new process."""
        self._process.stop()

    async def _do(self, job: Mapping[str, Any], cpu_seconds: float, client: str) -> dict[str, Any]:
        """Return the reply to a job. The reply has ``failed`` if the job took too long, or too much memory.

        Raises ``Overloaded`` if the job was not done for another reason: it is not the fault of the schema.
        """
        try:
            async with asyncio.timeout(self._max_seconds), self._turns[client]:
                return await self._process.in_thread(self._call, job, cpu_seconds)
        except JobTooSlow as error:
            return {"failed": f"it takes longer than {error.limit}"}
        except ProcessEnded:
            return {"failed": "it needs too much memory or time"}
        except JobNotDone as error:
            raise Overloaded(f"{error}; retry later", retry_after=1.0) from None
        except TimeoutError:
            raise Overloaded(
                f"too many JSON schemas are checked now, and this one waited {self._max_seconds:g} s; retry later",
                retry_after=1.0,
            ) from None

    def _call(self, job: Mapping[str, Any], cpu_seconds: float) -> dict[str, Any]:
        try:
            return self._process.call(job, cpu_seconds)[0]
        finally:
            self._process.stop_after(self._idle_seconds)


def answer_cpu(text: str) -> float:
    """Return the limit of processor time for checking an answer, in seconds."""
    return round(min(ANSWER_CPU + len(text) * ANSWER_CPU_PER_CHARACTER, MAX_ANSWER_CPU), 1)


def _text(schema: Mapping[str, Any]) -> bytes:
    return orjson.dumps(schema, default=dict)
