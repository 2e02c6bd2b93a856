"""Random and broken answers, in every slicing, beside what h11 reads in the same bytes.

Which answer a byte belongs to has one reading. Both parsers may refuse what the other takes: what both take must be
the same answer, and a connection is used again only where h11 too sees one whole answer, and nothing behind it.
"""

from __future__ import annotations

import asyncio
import random
import socket
from dataclasses import dataclass

import h11
import pytest

from gateway.backend.http_client.connection import Connection
from tests.backend.test_connection import Read, finish

SEEDS = range(6)
CASES = 100
"""For each seed."""

STATUSES = [200, 200, 200, 200, 201, 206, 404, 429, 500, 204, 304]
INTERIM = [b"", b"", b"", b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early\r\nlink: x\r\n\r\n" * 2]
FIELDS = [
    b"content-type: application/json",
    b"x-a: b",
    b"X-Empty:",
    b"connection: close",
    b"connection: keep-alive",
    b"Connection: Keep-Alive, x",
    b"x-long: " + b"y" * 300,
]
BODIES = [b"", b"a", b"abc\r\n", b'{"a": 1}', b"0\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 600]
BAD_FIELDS = [
    b"content-length: 3",
    b"content-length: 0003",
    b"content-length: +3",
    b"content-length: 3, 3",
    b"content-length: -1",
    b"content-length: 99999999999999999999",
    b"transfer-encoding: chunked",
    b"transfer-encoding: gzip, chunked",
    b"transfer-encoding: chunked, chunked",
    b"transfer-encoding : chunked",
    b"transfer-encoding: identity",
    b"Transfer-Encoding: xchunked",
    b" folded: x",
    b"x\x00y: z",
    b"content-length : 3",
    b"no colon",
]
STRICTER = ("Only Transfer-Encoding", "multiple Transfer-Encoding", "illegal status line", "no response line")
"""Input that only llhttp accepts: other codings beside a last ``chunked``, any coding of an interim answer, a NUL
in a reason, blank lines before an answer. None of them changes where the answer ends."""
INSERTS = [b"\r", b"\n", b"\r\n", b" ", b"\t", b"\0", b";", b":", b"0", b"1", b"f", b"\xff", b"\r\n\r\n"]


@dataclass(frozen=True)
class Reference:
    """What h11 makes of it."""

    refused: str
    """Why h11 does not take it; empty: it does."""
    whole: bool
    """One answer has come to its end."""
    status: int
    body: bytes
    reusable: bool


def good(rng: random.Random, method: str = "") -> bytes:
    """An answer as it should be."""
    status, body = rng.choice(STATUSES), rng.choice(BODIES)
    lines = [rng.choice([b"HTTP/1.1", b"HTTP/1.1", b"HTTP/1.0"]) + b" %d Any Reason" % status]
    lines += rng.sample(FIELDS, rng.randrange(3))
    how = method or rng.choice(["length", "length", "chunked", "close"])
    if status in (204, 304):
        body = b""
    elif how == "length":
        lines.append(b"Content-Length: %d" % len(body))
    elif how == "chunked" and lines[0].startswith(b"HTTP/1.1"):
        lines.append(b"transfer-encoding: chunked")
        body = chunked(rng, body)
    rng.shuffle(tail := lines[1:])
    return rng.choice(INTERIM) + b"\r\n".join([lines[0], *tail]) + b"\r\n\r\n" + body


def chunked(rng: random.Random, body: bytes) -> bytes:
    out = b""
    while body:
        size = rng.randint(1, len(body))
        out += b"%x" % size + rng.choice([b"", b"", b";a=b"]) + b"\r\n" + body[:size] + b"\r\n"
        body = body[size:]
    return out + b"0\r\n" + rng.choice([b"", b"", b"x-trailer: y\r\n"]) + b"\r\n"


def broken(rng: random.Random) -> bytes:
    """An answer with one to three faults in it."""
    data = good(rng)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(data) + 1)
        match rng.randrange(6):
            case 0:
                data = data[:at] + data[at + rng.randint(1, 4) :]
            case 1:
                data = data[:at] + rng.choice(INSERTS) + data[at:]
            case 2:
                data = data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :]
            case 3:
                data += rng.choice([b"", b"x", good(rng)])
            case 4:
                data = data[:at]
            case _:
                data = data.replace(b"\r\n", b"\r\n" + rng.choice(BAD_FIELDS) + b"\r\n", 1)
        data = data or b"H"
    return data


def slicings(rng: random.Random, data: bytes) -> list[list[bytes]]:
    """All at once, byte by byte where that is short, and at random places."""
    found = [[data]]
    if len(data) < 400:
        found.append([data[at : at + 1] for at in range(len(data))])
    cuts = sorted(rng.randrange(len(data) + 1) for _ in range(rng.randint(1, 4)))
    found.append([data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)])
    return found


async def ours(pieces: list[bytes]) -> tuple[Read, bool]:
    """What the client reads, and whether the connection could be used again before it was closed."""
    loop = asyncio.get_running_loop()
    near, far = socket.socketpair()
    with far:
        _, connection = await loop.create_connection(lambda: Connection(loop), sock=near)
        connection.send(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n", b"")
        for piece in pieces:
            if not connection.is_closed and piece:
                connection.data_received(piece)
        reusable = connection.is_reusable
        if not connection.response_complete:
            connection.connection_lost(None)
        told = await finish(connection)
        connection.close()
        return told, reusable


def reference(data: bytes) -> Reference:
    connection = h11.Connection(h11.CLIENT)
    connection.send(h11.Request(method="POST", target="/", headers=[("host", "a"), ("content-length", "0")]))
    connection.send(h11.EndOfMessage())
    status, body, whole, reusable, old_but_kept = 0, b"", False, False, False
    try:
        for piece in (data, b""):
            connection.receive_data(piece)
            while not whole:
                event = connection.next_event()
                if event is h11.NEED_DATA or event is h11.PAUSED or isinstance(event, h11.ConnectionClosed):
                    break
                if isinstance(event, h11.Response):
                    status = event.status_code
                    # h11 keeps no connection of HTTP/1.0; RFC 9112, 9.3 lets a client do so where it is told to.
                    said = b",".join([value.lower() for name, value in event.headers if name == b"connection"])
                    old_but_kept = event.http_version == b"1.0" and b"keep-alive" in said
                elif isinstance(event, h11.Data):
                    body += bytes(event.data)
                elif isinstance(event, h11.EndOfMessage):
                    whole = True
                    kept = connection.their_state is h11.DONE and connection.our_state is h11.DONE
                    reusable = bool(piece) and (kept or old_but_kept) and not connection.trailing_data[0].strip(b"\r\n")
    except h11.RemoteProtocolError as error:
        return Reference(str(error), False, status, body, False)
    return Reference("", whole, status, body, reusable)


async def compare(rng: random.Random, data: bytes, well_formed: bool) -> None:
    told, reusable = await ours([data])
    for pieces in slicings(rng, data)[1:]:
        assert await ours(pieces) == (told, reusable), (data, pieces)
    expected = reference(data)
    if well_formed:
        assert expected.whole, data
        assert told.error is None, data
    if told.error is None and expected.whole:
        assert (told.status, told.body) == (expected.status, expected.body), data
    if reusable and not expected.refused.startswith(STRICTER):
        assert expected.reusable, (expected, data)


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_good_answer_is_read_as_h11_reads_it(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(CASES):
        await compare(rng, good(rng), well_formed=True)


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_broken_answer_is_never_read_as_another(seed: int) -> None:
    rng = random.Random(1000 + seed)
    for _ in range(CASES):
        await compare(rng, broken(rng), well_formed=False)
