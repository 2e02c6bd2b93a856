"""The gateway inside a Python program: calls without HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

import orjson

from gateway.calls.admission.facts import LocalBody, RequestFacts
from gateway.calls.endpoints.cancellation import ClientGone, ClientStalled
from gateway.calls.endpoints.sink import HeaderFields, KeptAnswer
from gateway.calls.endpoints.table import load, served
from gateway.calls.service import Service
from gateway.core.caller import ANONYMOUS
from gateway.core.errors import ServerDraining
from gateway.edge.http1.server import DRAIN_ENDED
from gateway.server.reload import ConfigLoader
from gateway.server.runtime import Runtime
from metatemplate.values.frozen import EMPTY_MAPPING


class AnswerStream(KeptAnswer):
    """The answer to a call of a program, while it arrives (``Gateway.open``).

    The model's server waits while the program does not read.
    """

    def __init__(self) -> None:
        super().__init__()
        self._begun = asyncio.Event()
        self._unread: asyncio.Queue[bytes | None] = asyncio.Queue()
        """The parts that the program has not read. None: the call has ended."""
        self._is_complete = False

    def _start(self, status: int, fields: HeaderFields) -> None:
        super()._start(status, fields)
        self._begun.set()

    async def write(self, frames: bytes, seconds: float) -> None:
        """Wait until the program has read a part of a stream. See ``AnswerSink``."""
        self._unread.put_nowait(frames)
        try:
            async with asyncio.timeout(seconds):
                await self._unread.join()
        except TimeoutError:
            raise ClientStalled from None

    def end(self, last: bytes = b"") -> None:
        """Keep the last part of a stream, or a whole answer. See ``AnswerSink``."""
        self._unread.put_nowait(last)
        self._is_complete = True

    def ended(self, _: asyncio.Task[None]) -> None:
        """Wake the program, because the call has ended."""
        self._begun.set()
        self._unread.put_nowait(None)

    async def begun(self) -> None:
        """Wait until the status and the headers are known. Raises what has ended the call before."""
        await self._begun.wait()
        if not self.status and self.task is not None:
            self.task.result()

    async def read(self) -> bytes:
        """Read the rest of the answer. Return all of it, the same bytes as over HTTP.

        Raises ``ClientStalled`` if the program has read nothing for too long (``delivery.timeout.idle``).
        """
        while await self._next_part():
            pass
        return self.body

    async def __aiter__(self) -> AsyncIterator[Any]:
        """Yield the rest of the events. Raises ``ClientStalled`` as ``read`` does."""
        while part := await self._next_part():
            for line in part.splitlines():  # each event, and each whole answer, is JSON in one line
                if (data := line.removeprefix(b"data: ")).startswith(b"{"):
                    yield orjson.loads(data)

    async def _next_part(self) -> bytes | None:
        part = await self._unread.get()
        self._unread.task_done()
        if part is not None:
            self.parts.append(part)
            return part
        self._unread.put_nowait(None)  # for later reads
        if not self._is_complete:
            raise ClientStalled
        return None


class Gateway:
    """The gateway inside a Python program, with the limits, recordings, reload and drain of ``gateway serve``.

    Use it as an asynchronous context manager. Entering loads the configuration, and raises ``ConfigError`` with every
    problem; files that change are loaded again. Leaving refuses new calls, waits for running calls for at most
    ``server.drain`` seconds, and ends the others with an error.
    """

    def __init__(self, config: str | Path, env: Mapping[str, str] | None = None) -> None:
        """``config``: the configuration file. ``env``: environment variables, by default those of the process."""
        self._runtime = Runtime(ConfigLoader(Path(config), env))
        self._running: dict[asyncio.Task[None], AnswerStream] = {}

    async def __aenter__(self) -> Self:
        snapshot = await asyncio.to_thread(self._runtime.loader.load)
        for endpoint in served(snapshot.server.endpoints):
            load(endpoint.path)
        await self._runtime.start(snapshot)
        self._service = Service(self._runtime.state)
        return self

    async def __aexit__(self, *_: object) -> None:
        state = self._runtime.state
        state.ending = True
        state.drain()
        if self._running:
            await asyncio.wait(self._running, timeout=state.stack.snapshot.server.drain)
        for answer in self._running.values():
            answer.cancel(ServerDraining(DRAIN_ENDED))
        if self._running:
            await asyncio.wait(self._running)
        await self._runtime.stop()

    async def reload(self) -> bool:
        """Read the configuration's files now. Return False, and change nothing, if they have a problem."""
        return await self._runtime.reload()

    async def call(
        self, path: str, body: Mapping[str, Any], *, key: str | None = None, headers: Mapping[str, str] = EMPTY_MAPPING
    ) -> AnswerStream:
        """Return the answer to a call, after all of it has arrived in ``body``. See ``open``."""
        async with self.open(path, body, key=key, headers=headers) as answer:
            await answer.read()
        return answer

    @asynccontextmanager
    async def open(
        self, path: str, body: Mapping[str, Any], *, key: str | None = None, headers: Mapping[str, str] = EMPTY_MAPPING
    ) -> AsyncIterator[AnswerStream]:
        """Yield the answer to a call as soon as it begins. Leaving early ends the call, as a client's disconnect does.

        The answer has ``status``, ``headers`` (lower-case name → value) and ``body``, the bytes that were read so far.
        ``async for event in answer`` yields the events of a stream as dictionaries, or a whole answer as one;
        ``await answer.read()`` reads all of it. Errors are answers too, with the status and the body of an HTTP error.

        ``path``: the path of an endpoint, such as ``/v1/chat/completions``. ``body``: the fields of the request.
        ``key``: the client key whose rights and limits the call has; None: the program may use all models.
        ``headers``: such as ``x-gateway-run``.
        """
        given = {name.lower().encode(): value.encode() for name, value in headers.items()}
        if key is not None:
            given[b"authorization"] = f"Bearer {key}".encode()
        facts, answer = RequestFacts(given, ANONYMOUS if key is None else None), AnswerStream()
        call = self._service.answer(facts, load(path), LocalBody(orjson.dumps(body)), answer)
        answer.task = task = asyncio.create_task(call, name="call")
        self._running[task] = answer
        task.add_done_callback(answer.ended)
        task.add_done_callback(self._running.pop)
        try:
            await answer.begun()
            yield answer
        finally:
            answer.cancel(ClientGone())
            await asyncio.wait([task])
