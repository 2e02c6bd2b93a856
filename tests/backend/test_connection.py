"""One connection: however an answer is sliced, the reader finds the same in it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from gateway.backend.http_client.connection import HIGH_WATER, Connection
from gateway.backend.http_client.response_headers import MAX_HEADER_LINE, MAX_HEADERS
from gateway.core.errors import GatewayError, UpstreamDisconnected


@dataclass(frozen=True)
class Read:
    """What a reader learns of an answer."""

    status: int
    plain: bool
    type: str
    encoding: str | None
    body: bytes
    error: str | None
    reusable: bool


async def read(pieces: list[bytes], close: bool = False, twice: bool = False) -> Read:
    """Ask on a real connection, and let the answer come in these pieces."""
    loop = asyncio.get_running_loop()
    ours, theirs = socket.socketpair()
    with theirs:
        _, connection = await loop.create_connection(lambda: Connection(loop), sock=ours)
        waiting = connection.send(b"POST / HTTP/1.1\r\n\r\n", b"")
        if twice:  # an answer before: nothing of it may be left
            connection.data_received(
                b"HTTP/1.1 200 OK\r\nx-first: 1\r\ncontent-type: a/b\r\ncontent-length: 1\r\n\r\nF"
            )
            await waiting
            assert connection.read_rest() == b"F"
            assert connection.is_reusable
            waiting = connection.send(b"POST / HTTP/1.1\r\n\r\n", b"")
        for piece in pieces:
            connection.data_received(piece)
        if close:
            connection.connection_lost(None)
        told = await finish(connection)
        connection.close()
        assert waiting.done() == (told.status > 0 or told.error is not None)
        return told


async def finish(connection: Connection) -> Read:
    body, error = b"", None
    try:
        async with asyncio.timeout(60):
            await connection.read_head()
            whole = connection.read_rest()
            if whole is not None:
                body = whole
            while piece := await connection.read():
                body += piece
    except GatewayError as failure:
        error = failure.code
    status = connection.status
    encoding = connection.header("content-encoding") if status else None
    kind = connection.content_type if status else ""
    return Read(status, connection.is_plain_success, kind, encoding, body, error, connection.is_reusable)


OK = b"HTTP/1.1 200 OK\r\n"
LENGTH = b"content-length: 3\r\n\r\nabc"
MANY = [b"x-%d: y\r\n" % number for number in range(MAX_HEADERS)]

ANSWERS: Mapping[str, tuple[bytes, Read]] = {
    "ordinary": (OK + b"Content-Type: a/B; c=d\r\n" + LENGTH, Read(200, True, "a/b", None, b"abc", None, True)),
    "chunked": (
        OK + b"transfer-encoding: chunked\r\n\r\n1\r\na\r\n2\r\nbc\r\n0\r\n\r\n",
        Read(200, True, "", None, b"abc", None, True),
    ),
    "with trailers": (
        OK + b"transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\ncontent-type: no/no\r\n\r\n",
        Read(200, True, "", None, b"abc", None, True),
    ),
    "closing": (OK + b"connection: close\r\n" + LENGTH, Read(200, True, "", None, b"abc", None, False)),
    "compressed": (OK + b"Content-ENCODING: gzip\r\n" + LENGTH, Read(200, False, "", "gzip", b"abc", None, True)),
    "a refusal": (b"HTTP/1.1 429 No\r\n" + LENGTH, Read(429, False, "", None, b"abc", None, True)),
    "no content": (b"HTTP/1.1 204 No\r\n\r\n", Read(204, True, "", None, b"", None, False)),
    "interim first": (
        b"HTTP/1.1 100 Continue\r\ncontent-type: no/no\r\n\r\nHTTP/1.1 103 Hints\r\n\r\n"
        + OK
        + b"content-encoding: br\r\n"
        + LENGTH,
        Read(200, False, "", "br", b"abc", None, True),
    ),
    "blank lines first": (
        b"\r\n\r\n" + OK + b"content-type: a/b\r\n" + LENGTH,
        Read(200, True, "a/b", None, b"abc", None, True),
    ),
    "as many headers as we take": (OK + b"".join(MANY[1:]) + LENGTH, Read(200, True, "", None, b"abc", None, True)),
    "not HTTP": (b"hello", Read(0, False, "", None, b"", "upstream_invalid_response", False)),
    "a fault in the body": (
        OK + b"content-type: a/b\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\nzz",
        Read(200, True, "a/b", None, b"a", "upstream_invalid_response", False),
    ),
    "another protocol": (
        b"HTTP/1.1 101 Go\r\nconnection: upgrade\r\nupgrade: x\r\n\r\nabc",
        Read(0, False, "", None, b"", "upstream_invalid_response", False),
    ),
}


@pytest.mark.parametrize("twice", [False, True], ids=["first", "second"])
@pytest.mark.parametrize("name", ANSWERS)
async def test_an_answer_is_the_same_however_it_is_sliced(name: str, twice: bool) -> None:
    answer, expected = ANSWERS[name]
    step = max(len(answer) // 200, 1)
    assert await read([answer], twice=twice) == expected
    for at in range(1, len(answer), step):
        assert await read([answer[:at], answer[at:]], twice=twice) == expected, at
    if len(answer) < 500:
        assert await read([answer[at : at + 1] for at in range(len(answer))], twice=twice) == expected


EXCESSIVE = {
    "too many headers": OK + b"".join(MANY) + LENGTH,
    "a header too long": OK + b"x: " + b"y" * MAX_HEADER_LINE + b"\r\n" + LENGTH,
    "a head too long": OK + b"x: y\r\n" * 20 + b"x-long: " + b"z" * (64 * 1024),
}


@pytest.mark.parametrize("name", EXCESSIVE)
def test_more_headers_than_anybody_needs_are_refused(name: str) -> None:
    answer = EXCESSIVE[name]
    for pieces in ([answer], [answer[:100], answer[100:]]):
        told = asyncio.run(read(pieces))
        assert (told.status, told.body, told.error) == (0, b"", "upstream_invalid_response")
        assert not told.reusable


ENDLESS = {  # the answer so far, and what comes again and again without a byte of a body
    "a chunk's extension": (OK + b"transfer-encoding: chunked\r\n\r\n1;", b"x" * 1000),
    "many extensions": (OK + b"transfer-encoding: chunked\r\n\r\n1", b";x=y" * 250),
    "a trailer": (OK + b"transfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\nx: ", b"y" * 1000),
    "trailers": (OK + b"transfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\n", b"x: y\r\n" * 170),
    "interim answers": (b"", b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" * 25),
}


ROWS = [
    (name, how)
    for name in ENDLESS
    for how in ("nobody reads", "reading", "flowing")
    if "trailer" not in name or how != "nobody reads"
]
"""While a body that has arrived is not read, its socket is paused."""


@pytest.mark.parametrize(("name", "how"), ROWS)
async def test_framing_without_an_end_is_not_read_without_an_end(name: str, how: str) -> None:
    begun, again = ENDLESS[name]
    loop = asyncio.get_running_loop()
    ours, theirs = socket.socketpair()
    with theirs:
        _, connection = await loop.create_connection(lambda: Connection(loop), sock=ours)
        connection.send(b"POST / HTTP/1.1\r\n\r\n", b"")
        connection.data_received(begun)
        if connection.status and how != "nobody reads":
            if "trailer" in name:
                assert await connection.read() == b"a"
            reading = asyncio.ensure_future(
                connection.read() if how == "reading" else connection.forward(lambda piece: True)
            )
            await asyncio.sleep(0)
        else:
            reading = asyncio.ensure_future(asyncio.sleep(0))
        fed = 0
        while fed < 1_000_000 and not theirs_closed(connection):
            connection.data_received(again)
            fed += len(again)
            await asyncio.sleep(0)
        await asyncio.wait([reading])
        reading.exception()
        assert fed <= 70_000
        assert (await finish(connection)).error == "upstream_invalid_response"


def theirs_closed(connection: Connection) -> bool:
    return connection._transport is None or connection._transport.is_closing()


STATUSES = ["000", "001", "099", "600", "999"]


@pytest.mark.parametrize("status", STATUSES)
@pytest.mark.parametrize("body", [LENGTH, b"\r\nabc", b"content-length: 0\r\n\r\n", b"\r\n"])
def test_a_status_that_is_none_ends_the_answer(status: str, body: bytes) -> None:
    answer = b"HTTP/1.1 " + status.encode() + b" Odd\r\n" + body
    for pieces in ([answer], [answer[at : at + 1] for at in range(len(answer))]):
        told = asyncio.run(read(pieces))
        assert (told.status, told.error, told.reusable) == (0, "upstream_invalid_response", False)


async def test_a_packet_of_chunks_of_one_byte_is_one_piece() -> None:
    loop = asyncio.get_running_loop()
    ours, theirs = socket.socketpair()
    with theirs:
        _, connection = await loop.create_connection(lambda: Connection(loop), sock=ours)
        connection.send(b"POST / HTTP/1.1\r\n\r\n", b"")
        connection.data_received(OK + b"transfer-encoding: chunked\r\n\r\n")
        connection.data_received(b"1\r\na\r\n" * 10_000)
        sizes = [len(await connection.read())]
        flowing = asyncio.ensure_future(connection.forward(lambda piece: not sizes.append(len(piece))))  # type: ignore[func-returns-value]
        await asyncio.sleep(0)
        connection.data_received(b"1\r\na\r\n" * 10_000)
        connection.data_received(b"0\r\n\r\n")
        await flowing
        connection.close()
    assert sizes == [10_000, 10_000]


SURPLUS = [
    b"H",
    b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nno",
    b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nno",
    b"zz",
]


@pytest.mark.parametrize("surplus", SURPLUS)
@pytest.mark.parametrize("sliced", [False, True])
def test_what_follows_an_answer_is_nobodys(surplus: bytes, sliced: bool) -> None:
    answer = OK + LENGTH
    told = asyncio.run(read([answer, surplus] if sliced else [answer + surplus]))
    assert told == Read(200, True, "", None, b"abc", None, False)


def test_a_body_without_a_length_ends_with_its_connection() -> None:
    told = asyncio.run(read([OK + b"\r\nab", b"c"], close=True))
    assert told == Read(200, True, "", None, b"abc", None, False)


def test_a_body_cut_short_is_no_end() -> None:
    told = asyncio.run(read([OK + b"content-length: 4\r\n\r\nabc"], close=True))
    assert (told.body, told.error) == (b"abc", "upstream_disconnected")


async def test_a_large_body_arrives_whole_through_a_paused_socket() -> None:
    body = bytes(range(256)) * (HIGH_WATER // 64)
    told = await read([OK + b"content-length: %d\r\n\r\n" % len(body) + body])
    assert told.body == body


async def test_a_request_on_a_connection_that_is_gone_fails_at_once() -> None:
    loop = asyncio.get_running_loop()
    ours, theirs = socket.socketpair()
    _, connection = await loop.create_connection(lambda: Connection(loop), sock=ours)
    theirs.close()
    await asyncio.sleep(0.05)
    assert connection.is_closed
    await connection.send(b"x", b"")
    with pytest.raises(UpstreamDisconnected):
        await connection.read_head()
