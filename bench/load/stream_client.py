"""Load of many streams at once; the text of each event is the time at which the mock upstream sent it.

``paced`` keeps N streams open for some seconds; when a stream ends, its connection starts the next one. ``idle`` opens
N streams, prints a line, and closes all connections when it reads a line. Both print one line of JSON at the end.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import uvloop

from bench.load.http_client import request_bytes
from bench.processes import cpu_seconds
from bench.report.stats import percentile

SEND_TIME = re.compile(rb'"(?:text|content)":\s*"\s*(\d{9,})"')
LAST_EVENT = b"data: [DONE]"
MAX_OPENING = 128
"""Idle streams that wait for their first event at a time."""
OPEN_TIMEOUT = 60.0
"""Seconds for opening all idle streams."""


@dataclass(slots=True)
class StreamStats:
    """Counters over all connections; only errors are counted while ``counting`` is false."""

    counting: bool = False
    first_token_ns: list[float] = field(default_factory=list)
    """From sending a request to its first token."""
    delays_ns: list[float] = field(default_factory=list)
    """From the upstream's write of an event to the client's read."""
    events: int = 0
    streams: int = 0
    errors: int = 0
    first_error: str = ""

    def add_error(self, message: str) -> None:
        """Count a failed stream; the first message is kept."""
        self.errors += 1
        self.first_error = self.first_error or message


class StreamConnection(asyncio.Protocol):
    """One client connection; streams follow each other on it."""

    def __init__(self, request: bytes, stats: StreamStats, stream_ended: Callable[[StreamConnection], None]) -> None:
        self._request = request
        self._stats = stats
        self._stream_ended = stream_ended
        self._buffer = b""
        self._sent_ns = 0
        self._events = 0
        self._counted = False
        self.first_event: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the first stream."""
        self.transport = transport  # type: ignore[assignment]
        self.send_request()

    def send_request(self) -> None:
        """Start a stream."""
        self._buffer, self._events = b"", 0
        self._counted = self._stats.counting
        self._sent_ns = time.monotonic_ns()
        self.transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        """Count the complete events; an incomplete one stays in the buffer."""
        now = time.monotonic_ns()
        stats = self._stats
        data = self._buffer + data
        if not self._events and not data.startswith(b"HTTP/1.1 200"):
            if len(data) > 12:
                stats.add_error(data[:400].decode("utf-8", "replace").split("\r\n", 1)[0])
                self.transport.abort()
            return
        position = 0
        for match in SEND_TIME.finditer(data):
            position = match.end()
            if not self._events:
                if self._counted:
                    stats.first_token_ns.append(now - self._sent_ns)
                if not self.first_event.done():
                    self.first_event.set_result(True)
            self._events += 1
            if stats.counting:
                stats.events += 1
                stats.delays_ns.append(now - int(match[1]))
        if data.find(LAST_EVENT, position) >= 0 and data.endswith(b"0\r\n\r\n"):
            self._buffer = b""
            stats.streams += stats.counting
            self._stream_ended(self)
            return
        # An event may be split anywhere; the status line stays in the buffer until the first event is complete.
        self._buffer = data[position:] if self._events else data

    def connection_lost(self, exc: Exception | None) -> None:
        """A server may end each response by closing the connection; the stream is then complete."""
        if not self.first_event.done():
            self.first_event.set_result(False)
        if self._buffer.find(LAST_EVENT) >= 0:
            self._stats.streams += self._stats.counting
            self._stream_ended(self)


async def paced(args: argparse.Namespace, request: bytes) -> dict[str, object]:
    """Measure for ``args.seconds`` after all streams have been started."""
    loop, stats, stopped = asyncio.get_running_loop(), StreamStats(), False
    connections: list[StreamConnection] = []

    def start_next(connection: StreamConnection) -> None:
        if stopped:
            return
        if connection.transport.is_closing():
            loop.create_task(connect())
        else:
            connection.send_request()

    async def connect() -> None:
        try:
            _, connection = await loop.create_connection(
                lambda: StreamConnection(request, stats, start_next), "127.0.0.1", args.port
            )
            connections.append(connection)
        except OSError as error:
            stats.add_error(str(error))

    for _ in range(args.streams):
        await asyncio.gather(connect(), asyncio.sleep(args.warm / args.streams))
    stats.counting = True
    cpu, began = cpu_seconds(args.session), time.monotonic()
    await asyncio.sleep(args.seconds)
    stats.counting = False
    used = cpu_seconds(args.session) - cpu
    elapsed, stopped = time.monotonic() - began, True
    for connection in connections:
        connection.transport.abort()
    return {
        "events": stats.events,
        "streams": stats.streams,
        "errors": stats.errors,
        "first_error": stats.first_error,
        "seconds": elapsed,
        "cpu_seconds": used,
        "first_ms": [percentile(stats.first_token_ns, p) / 1e6 for p in (50, 99)],
        "delay_ms": [percentile(stats.delays_ns, p) / 1e6 for p in (50, 99, 100)],
    }


async def idle(args: argparse.Namespace, request: bytes) -> dict[str, object]:
    """Open streams, wait for a line on standard input, and close all connections at once."""
    loop, stats = asyncio.get_running_loop(), StreamStats()
    connections: list[StreamConnection] = []
    opening = asyncio.Semaphore(MAX_OPENING)

    async def open_stream() -> None:
        async with opening:
            try:
                _, connection = await loop.create_connection(
                    lambda: StreamConnection(request, stats, lambda _: None), "127.0.0.1", args.port
                )
            except OSError as error:
                stats.add_error(str(error))
            else:
                connections.append(connection)
                await connection.first_event

    try:
        async with asyncio.timeout(OPEN_TIMEOUT):
            await asyncio.gather(*(open_stream() for _ in range(args.streams)))
    except TimeoutError:
        stats.add_error(f"not all streams were open after {OPEN_TIMEOUT:.0f} s")
    ready = sum(connection.first_event.done() and connection.first_event.result() for connection in connections)
    print(json.dumps({"ready": ready, "first_error": stats.first_error}), flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    closed = time.monotonic_ns()
    for connection in connections:
        connection.transport.abort()
    return {"ready": ready, "closed_ns": closed}


MODES = {"paced": paced, "idle": idle}


def main() -> None:
    """``python -m bench.load.stream_client paced --port 8000 …``; ``bench.measure`` starts it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("mode", choices=MODES)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--path", default="/v1/chat/completions")
    parser.add_argument("--body", type=Path, required=True, help="file with the request body")
    parser.add_argument("--headers", type=json.loads, default={}, help="request headers as a JSON object")
    parser.add_argument("--streams", type=int, default=128)
    parser.add_argument("--seconds", type=float, default=3.0, help="duration of the measurement")
    parser.add_argument(
        "--warm", type=float, default=1.0, help="seconds over which the streams are started; nothing is counted"
    )
    parser.add_argument("--session", type=int, default=0, help="process session whose CPU time is measured")
    args = parser.parse_args()
    request = request_bytes("POST", args.port, args.path, args.body.read_bytes(), args.headers)
    print(json.dumps(uvloop.run(MODES[args.mode](args, request))), flush=True)


if __name__ == "__main__":
    main()
