"""How do many paced streams fare? A client on bare sockets that reads each event's age from the event itself.

``paced`` keeps N streams open for some seconds, each followed by the next on the same connection. ``idle`` opens N
streams, says so, and hangs up on all of them when told. Both print one line of JSON.
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

from bench.processes import cpu_seconds
from bench.spread import percentile

CLOCK = re.compile(rb'"(?:text|content)":\s*"\s*(\d{9,})"')
LAST = b"data: [DONE]"
OPENING = 128
"""Idle streams that may be on their way to their first event at a time."""
OPEN_LIMIT = 60.0
"""Seconds that opening all idle streams may take."""


@dataclass(slots=True)
class Tally:
    """What was seen while counting."""

    counting: bool = False
    firsts: list[float] = field(default_factory=list)
    """Nanoseconds from a request's last byte to its first token."""
    delays: list[float] = field(default_factory=list)
    """Nanoseconds from the engine's write of an event to our read of it."""
    events: int = 0
    streams: int = 0
    errors: int = 0
    reason: str = ""

    def fail(self, reason: str) -> None:
        """A stream did not do what it should."""
        self.errors += 1
        self.reason = self.reason or reason


class Reader(asyncio.Protocol):
    """One connection, with one stream after the other on it."""

    def __init__(self, request: bytes, tally: Tally, ended: Callable[[Reader], None]) -> None:
        self._request = request
        self._tally = tally
        self._ended = ended
        self._rest = b""
        self._asked = 0
        self._seen = 0
        self._counted = False
        self.first: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected: ask."""
        self.transport = transport  # type: ignore[assignment]
        self.ask()

    def ask(self) -> None:
        """Begin a stream."""
        self._rest, self._seen = b"", 0
        self._counted = self._tally.counting
        self._asked = time.monotonic_ns()
        self.transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        """Events, and parts of events."""
        now = time.monotonic_ns()
        tally = self._tally
        data = self._rest + data
        if not self._seen and not data.startswith(b"HTTP/1.1 200"):
            if len(data) > 12:
                tally.fail(data[:400].decode("utf-8", "replace").split("\r\n", 1)[0])
                self.transport.abort()
            return
        last = 0
        for found in CLOCK.finditer(data):
            last = found.end()
            if not self._seen:
                if self._counted:
                    tally.firsts.append(now - self._asked)
                if not self.first.done():
                    self.first.set_result(True)
            self._seen += 1
            if tally.counting:
                tally.events += 1
                tally.delays.append(now - int(found[1]))
        if data.find(LAST, last) >= 0 and data.endswith(b"0\r\n\r\n"):
            self._rest = b""
            tally.streams += tally.counting
            self._ended(self)
            return
        # An event may be cut anywhere; a status line must stay whole until the first event.
        self._rest = data[last:] if self._seen else data

    def connection_lost(self, exc: Exception | None) -> None:
        """The server closed, or we did."""
        if not self.first.done():
            self.first.set_result(False)
        if self._rest.find(LAST) >= 0:  # a server that ends each answer with its connection
            self._tally.streams += self._tally.counting
            self._ended(self)


def request_of(port: int, path: str, body: bytes, headers: dict[str, str]) -> bytes:
    """The bytes of one POST."""
    lines = [f"POST {path} HTTP/1.1", f"host: 127.0.0.1:{port}", "content-type: application/json"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, f"content-length: {len(body)}", "", ""]).encode() + body


async def paced(args: argparse.Namespace, request: bytes) -> dict[str, object]:
    """Measure for ``args.seconds`` after all streams have begun."""
    loop, tally, stopped = asyncio.get_running_loop(), Tally(), False
    readers: list[Reader] = []

    def again(reader: Reader) -> None:
        if stopped:
            return
        if reader.transport.is_closing():
            loop.create_task(connect())
        else:
            reader.ask()

    async def connect() -> None:
        try:
            _, reader = await loop.create_connection(lambda: Reader(request, tally, again), "127.0.0.1", args.port)
            readers.append(reader)
        except OSError as error:
            tally.fail(str(error))

    for _ in range(args.streams):
        await asyncio.gather(connect(), asyncio.sleep(args.warm / args.streams))
    tally.counting = True
    cpu, began = cpu_seconds(args.session) if args.session else 0.0, time.monotonic()
    await asyncio.sleep(args.seconds)
    tally.counting = False
    used = (cpu_seconds(args.session) if args.session else 0.0) - cpu
    elapsed, stopped = time.monotonic() - began, True
    for reader in readers:
        reader.transport.abort()
    return {
        "events": tally.events,
        "streams": tally.streams,
        "errors": tally.errors,
        "reason": tally.reason,
        "seconds": elapsed,
        "cpu_seconds": used,
        "first_ms": [percentile(tally.firsts, p) / 1e6 for p in (50, 99)],
        "delay_ms": [percentile(tally.delays, p) / 1e6 for p in (50, 99, 100)],
    }


async def idle(args: argparse.Namespace, request: bytes) -> dict[str, object]:
    """Open streams, wait for a line on standard input, and hang up on all of them at once."""
    loop, tally = asyncio.get_running_loop(), Tally()
    readers: list[Reader] = []
    room = asyncio.Semaphore(OPENING)

    async def open_one() -> None:
        async with room:
            try:
                _, reader = await loop.create_connection(
                    lambda: Reader(request, tally, lambda _: None), "127.0.0.1", args.port
                )
            except OSError as error:
                tally.fail(str(error))
            else:
                readers.append(reader)
                await reader.first

    try:
        async with asyncio.timeout(OPEN_LIMIT):
            await asyncio.gather(*(open_one() for _ in range(args.streams)))
    except TimeoutError:
        tally.fail(f"not all streams had begun after {OPEN_LIMIT:.0f} s")
    ready = sum(reader.first.done() and reader.first.result() for reader in readers)
    print(json.dumps({"ready": ready, "reason": tally.reason}), flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    closed = time.monotonic_ns()
    for reader in readers:
        reader.transport.abort()
    return {"ready": ready, "closed_ns": closed, "took_ms": (time.monotonic_ns() - closed) / 1e6}


MODES = {"paced": paced, "idle": idle}


def main() -> None:
    """``python -m bench.streams paced --port 8000 …``; started by the suite."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("mode", choices=MODES)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--path", default="/v1/chat/completions")
    parser.add_argument("--body", type=Path, required=True, help="a file with the request's body")
    parser.add_argument("--headers", type=json.loads, default={}, help="a JSON object")
    parser.add_argument("--streams", type=int, default=128)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument(
        "--warm", type=float, default=1.0, help="seconds in which the streams start; nothing is counted"
    )
    parser.add_argument("--session", type=int, default=0, help="whose processor time to count")
    args = parser.parse_args()
    request = request_of(args.port, args.path, args.body.read_bytes(), args.headers)
    print(json.dumps(uvloop.run(MODES[args.mode](args, request))), flush=True)


if __name__ == "__main__":
    main()
