"""An OpenAI-compatible server that injects faults, over real sockets.

::

    with FaultyUpstream() as up:
        url = up.url("drop-midstream", k=2)      # http://127.0.0.1:PORT/drop-midstream;k=2/v1

It runs in a thread with its own event loop, so synchronous tests, ``asyncio.run`` and another process can all
use it. The mode is the first part of the path, its options follow after ``;``. Every mode answers
``/completions``, ``/chat/completions`` and ``/embeddings``, streaming if ``stream`` is set in the body. The modes are
the rows of ``docs/spec/reliability.md`` 2.3 (column "Inject") and the engines of ``docs/spec/engines.md`` 2.1; each is
a short function in ``modes_http.py`` (HTTP and whole answers), ``modes_stream.py`` (server-sent events),
``modes_quirks.py`` (deviations of real engines), ``modes_scores.py`` (log probabilities of prompts),
``modes_constraint.py`` (answers that must be JSON) or ``modes_agent.py`` (calls of an agent's functions).
``python -m tests.support.upstream.server`` serves and lists the modes.

The server records what it receives: ``requests`` (each with headers and body), ``active`` (requests without a complete
reply), ``closed_early`` (monotonic times at which a client closed the connection before its reply was complete) and
``control_hits`` (requests to the target of a redirect).
"""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from urllib.parse import quote, unquote

from tests.support.upstream import (  # noqa: F401  # these fill MODES
    modes_agent,
    modes_constraint,
    modes_http,
    modes_quirks,
    modes_scores,
    modes_stream,
)
from tests.support.upstream.modes import MODES
from tests.support.upstream.reply import Reply, Request

ENDPOINTS = {"/v1/completions": "completions", "/v1/chat/completions": "chat", "/v1/embeddings": "embeddings"}


class FaultyUpstream:
    """The server in a thread; a context manager."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.active = 0
        self.closed_early: list[float] = []
        self.control_hits = 0
        self.connections = 0
        self._by_address: Counter[str] = Counter()
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="faulty-upstream", daemon=True)
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0

    @property
    def request_count(self) -> int:
        return len(self.requests)

    def url(self, mode: str, **options: object) -> str:
        """The base address of a mode, up to ``/v1``."""
        if mode not in MODES:
            raise KeyError(f"no mode {mode!r}")
        tail = "".join(f";{name}={quote(str(value), safe='')}" for name, value in options.items())
        return f"http://127.0.0.1:{self.port}/{mode}{tail}/v1"

    def wait(self, condition: Callable[[], bool], seconds: float = 30.0) -> bool:
        """Wait until ``condition`` is true; False if it is not within ``seconds``."""
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.002)
        return True

    def __enter__(self) -> FaultyUpstream:
        self._thread.start()
        self._ready.wait(30)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)

    # ------------------------------------------------------------------ runs in the loop

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(
            asyncio.start_server(self._accept, "127.0.0.1", 0, limit=64 * 1024 * 1024)
        )
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()
        server.close()
        for task in tuple(self._tasks):
            task.cancel()
        with suppress(Exception):
            self._loop.run_until_complete(asyncio.gather(*self._tasks, return_exceptions=True))
        self._loop.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        try:
            position = 0
            while await self._one_request(reader, writer, position):
                position += 1
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _one_request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, position: int) -> bool:
        request = await self._read(reader, position)
        if request is None:
            return False
        self.active += 1
        reply = Reply(request, writer)
        replying = asyncio.ensure_future(MODES[request.mode](reply))
        gone = asyncio.create_task(_client_gone(reader))
        try:
            await asyncio.wait({replying, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not replying.done() or (replying.exception() and isinstance(replying.exception(), ConnectionError)):
                self.closed_early.append(time.monotonic())
                return False
            replying.result()
            return reply.keep_alive
        finally:
            for task in (replying, gone):
                task.cancel()
            self.active -= 1

    async def _read(self, reader: asyncio.StreamReader, position: int) -> Request | None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        except asyncio.IncompleteReadError:
            return None
        request_line, *lines = head.rstrip().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        path = request_line.split(" ")[1]
        address, _, rest = path.lstrip("/").partition("/")
        mode, *options = address.split(";")
        if mode == "control":
            self.control_hits += 1
            mode = "ok"
        pairs = (option.partition("=") for option in options)
        request = Request(
            mode,
            {name: unquote(value) for name, _, value in pairs},
            ENDPOINTS.get("/" + rest, "completions"),
            headers,
            json.loads(body) if body else {},
            position,
            self._by_address[address],
        )
        self._by_address[address] += 1
        self.requests.append(request)
        return request


async def _client_gone(reader: asyncio.StreamReader) -> None:
    # This polls the state: a read would consume the first byte of the connection's next request.
    while not reader.at_eof() and reader.exception() is None:  # noqa: ASYNC110 - a StreamReader has no event for this
        await asyncio.sleep(0.003)


def refused_url() -> str:
    """An address that refuses connections. Its port stays bound, so that no other server gets it."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
        held.detach()  # not closed until the process ends
    return f"http://127.0.0.1:{port}/v1"


@contextmanager
def blackhole_url() -> Iterator[str]:
    """An address whose backlog is full: connecting to it neither succeeds nor fails."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        fillers = []
        for _ in range(4):
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
            fillers.append(filler)
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        finally:
            for filler in fillers:
                filler.close()


def main() -> None:
    """Serve until interrupted, for requests by hand."""
    with FaultyUpstream() as server:
        print(f"http://127.0.0.1:{server.port}/MODE/v1, with these modes:")
        print("\n".join(sorted(MODES)))
        with suppress(KeyboardInterrupt):
            threading.Event().wait()


if __name__ == "__main__":
    main()
