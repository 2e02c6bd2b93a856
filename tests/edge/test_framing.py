"""Request framing: the server reads random bytes as h11 does.

A request that the server accepts must be read in the same way by h11, in every slicing of the bytes: a difference would
allow request smuggling past a proxy. The server may refuse what h11 accepts: bare line feeds, methods and targets that
do not exist, bytes after a request that cannot begin another one. ``LENIENT`` lists what only the server accepts.
Missing and repeated Host fields are refused by the application, here as in the gateway.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import h11
import pytest

from gateway.calls.endpoints.cancellation import ClientGone
from gateway.core.errors import BadHost, GatewayError
from gateway.edge.http1.connection import ServerConnection
from gateway.edge.http1.server import HttpServer
from gateway.edge.http_request import HttpRequest

SEEDS = range(5)
CASES = 200
"""Cases for each seed. ``tests/fuzz/fuzz-http`` runs as many as are wanted."""

Taken = tuple[bytes, bytes, bytes]
"""Method, path and body of a request that was read to its end."""


@dataclass
class Reading:
    """The requests that a server read from some bytes."""

    taken: list[Taken]
    refused: bool


# ---------------------------------------------------------------- the bytes

METHODS = (b"GET", b"POST", b"POST", b"PUT", b"HEAD", b"DELETE")
PATHS = (b"/a", b"/b/c", b"/a?x=1", b"/%2f", b"/a//b", b"http://x/p", b"*")
FIELDS = (
    b"Host: x",
    b"Accept: */*",
    b"X-Long: " + b"v" * 40,
    b"Connection: keep-alive",
    b"Connection: close",
    b"Expect: 100-continue",
    b"X-Empty:",
    b"X-Tab:\tv\t",
    b"Content-Type: application/json",
)
LINES = (
    b"Content-Length: 5\r\n",
    b"Content-Length: 0\r\n",
    b"Content-Length: +5\r\n",
    b"Content-Length: 5, 5\r\n",
    b"Content-Length: 0x5\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Transfer-Encoding: identity\r\n",
    b"Transfer-Encoding: gzip, chunked\r\n",
    b"Transfer-Encoding: chunked, chunked\r\n",
    b"Transfer-Encoding:\r\n",
    b"Transfer-Encoding : chunked\r\n",
    b" folded\r\n",
    b"X\x00: v\r\n",
    b"X: a\x00b\r\n",
    b"X: a\rb\r\n",
    b"\r\n",
    b"\n",
    b"\r",
    b"0\r\n\r\n",
    b"5;ext=1\r\n",
    b"ffffffffffffffff1\r\n",
    b"-1\r\n",
    b" 5\r\n",
    b"5 \r\n",
    b": v\r\n",
    b"GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n",
    b"HTTP/1.0",
    b"HTTP/1.1",
)
BYTES = b"\r\n \t:;,0159aFxX/\x00\x7f\xff"


def whole(rng: random.Random) -> bytes:
    """One valid request."""
    method = rng.choice(METHODS)
    lines = [method + b" " + rng.choice(PATHS) + b" HTTP/1.1", b"Host: x", *rng.sample(FIELDS[1:], rng.randrange(3))]
    body = b""
    if method in (b"POST", b"PUT"):
        content = bytes(rng.choices(b"abc \r\n0", k=rng.randrange(30)))
        if rng.random() < 0.5:
            lines.append(b"Content-Length: %d" % len(content))
            body = content
        else:
            lines.append(b"Transfer-Encoding: chunked")
            while content:
                size = rng.randrange(1, len(content) + 1)
                extension = rng.choice((b"", b"", b";e", b";e=1"))
                body += b"%x%b\r\n%b\r\n" % (size, extension, content[:size])
                content = content[size:]
            body += b"0\r\n" + rng.choice((b"", b"X-Trailer: v\r\n")) + b"\r\n"
    rng.shuffle(lines[2:])
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def bent(rng: random.Random, data: bytes) -> bytes:
    """The bytes with a random change, insertion, deletion or repetition."""
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(data) + 1)
        ends = [found.end() for found in re.finditer(b"\r\n", data)] or [0]
        match rng.randrange(6):
            case 0:
                data = data[:at] + bytes([rng.choice(BYTES)]) + data[at + 1 :]
            case 1:
                data = data[:at] + bytes([rng.choice(BYTES)]) + data[at:]
            case 2:
                data = data[:at] + data[at + rng.randrange(1, 4) :]
            case 3:
                data = data[:at] + data[max(0, at - rng.randrange(20)) :]
            case _:
                line = rng.choice(ends)
                data = data[:line] + rng.choice(LINES) + data[line:]
    return data


def cases(seed: int, count: int = CASES) -> Iterator[tuple[bytes, bool]]:
    """Bytes, and whether they are valid requests."""
    rng = random.Random(seed)
    for number in range(count):
        data = b"".join(whole(rng) for _ in range(rng.randrange(1, 4)))
        yield (bent(rng, data), False) if number % 5 else (data, True)


def slicings(seed: int, data: bytes) -> Iterator[list[bytes]]:
    """The bytes as one piece, byte by byte, and in random pieces."""
    rng = random.Random(seed)
    yield [data]
    yield [bytes([byte]) for byte in data]
    cuts = sorted(rng.sample(range(len(data) + 1), min(3, len(data))))
    yield [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True) if start < end]


# ---------------------------------------------------------------- two readers


class Wire(asyncio.Transport):
    """A transport that keeps the written bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.said = b""
        self.closed = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Everything is written at once, so no limit is reached."""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.said += bytes(data)

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.closed = True

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True

    def pause_reading(self) -> None:
        """Does nothing: all pieces are delivered at once."""

    def resume_reading(self) -> None:
        """See ``pause_reading``."""


async def ours(pieces: Sequence[bytes]) -> Reading:
    """The requests that the gateway's server reads."""
    taken: list[Taken] = []

    async def app(asked: HttpRequest) -> None:
        try:
            if b"," in asked.headers.get(b"host", b","):
                raise BadHost("none, or two")
            body = await asked.body(1 << 20)
            taken.append((asked.method.encode(), asked.path.encode(), body))
            asked.reply(200, b"", b"")
        except GatewayError as error:
            asked.send_error(error)
        except asyncio.CancelledError:
            with suppress(ClientGone):
                asked.reraise()

    listener = HttpServer(app)
    line, wire = listener.connection(), Wire()
    line.connection_made(wire)
    for piece in pieces:
        if not wire.closed:
            line.data_received(piece)
            await run_pending_tasks(line)
    await run_pending_tasks(line)
    refused = re.search(rb"HTTP/1\.1 4[0-9][0-9] ", wire.said) is not None
    line.connection_lost(None)
    await run_pending_tasks(line)
    return Reading(taken, refused)


async def run_pending_tasks(line: ServerConnection) -> None:
    """Run the tasks until they wait for input."""
    is_busy = True
    while is_busy:
        for _ in range(3):
            await asyncio.sleep(0)
        is_busy = bool(line.state.pipelined._waiting)


LENIENT = (
    (re.compile(rb"\A[\r\n]+"), b""),  # blank lines before a request (RFC 9112, 2.2)
    (re.compile(rb"\A([A-Z]+) +(\S+) +(?=HTTP/)"), rb"\1 \2 "),  # several spaces in its first line (RFC 9112, 3)
)
"""Deviations that the gateway's server accepts and h11 refuses, as changes of the bytes before a request."""


def theirs(data: bytes) -> list[Taken]:
    """The requests that h11 reads from the same bytes."""
    taken: list[Taken] = []
    while True:
        for pattern, plain in LENIENT:
            data = pattern.sub(plain, data, count=1)
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=64 * 1024)
        request, body = None, b""
        try:
            connection.receive_data(data)
            while not isinstance(event := connection.next_event(), h11.EndOfMessage):
                if isinstance(event, h11.Request):
                    request = event
                elif isinstance(event, h11.Data):
                    body += bytes(event.data)
                else:
                    return taken
        except h11.RemoteProtocolError:
            return taken
        assert request is not None
        taken.append((request.method, path(request.target), body))
        connection.send(h11.Response(status_code=200, headers=[("content-length", "0")]))
        connection.send(h11.EndOfMessage())
        if connection.our_state is not h11.DONE:
            return taken
        data = connection.trailing_data[0]


def path(target: bytes) -> bytes:
    """The path of a request target."""
    found = re.match(rb"(?:[a-zA-Z0-9]+://[^/?#]*)?([^?#]*)", target)
    assert found
    return found[1] or b"/"


async def compare(seed: int, data: bytes, good: bool) -> None:
    """Assert that the server reads ``data`` as h11 does, in every slicing."""
    reference = theirs(data)
    for pieces in slicings(seed, data):
        reading = await ours(pieces)
        if good or not reading.refused:
            assert reading.taken == reference, pieces
        else:
            assert reading.taken == reference[: len(reading.taken)], pieces


@pytest.mark.parametrize("seed", SEEDS)
async def test_accepted_requests_are_read_as_by_h11(seed: int) -> None:
    for data, good in cases(seed):
        await compare(seed, data, good)
