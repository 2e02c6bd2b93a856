"""Does our own server's request have all that a request has, with the same beginnings?"""

from __future__ import annotations

import asyncio

import pytest

from gateway.edge.cancellation import Cancellation
from gateway.edge.http1.connection import ServerConnection
from gateway.edge.http1.request import Request
from gateway.edge.http1.server import HttpServer
from gateway.edge.http_request import HttpRequest
from tests.edge.test_connection import Served


class Bare(HttpRequest):
    """A request of no server."""

    async def body(self, limit: int) -> bytes:
        return b""

    def reply(self, status: int, headers: bytes, body: bytes) -> None: ...

    def begin(self, status: int, headers: bytes) -> None: ...

    async def write(self, frames: bytes, seconds: float) -> None: ...

    def end(self, last: bytes = b"") -> None: ...

    def abandon(self) -> None: ...


IDS = {"none": None, "plain": b"abc-1", "with a blank": b"a b", "long": b"a" * 65, "empty": b""}


@pytest.mark.parametrize("sent", IDS.values(), ids=IDS)
def test_it_begins_as_any_other(sent: bytes | None) -> None:
    headers = {b"host": b"h"} if sent is None else {b"x-request-id": sent}

    async def line() -> ServerConnection:
        return ServerConnection(HttpServer(Served().app))

    ours, bare = Request(asyncio.run(line()), "GET", "/x", headers), Bare("GET", "/x", headers)
    for name in (*Cancellation.__slots__, *HttpRequest.__slots__):
        if name in ("request_id", "received"):
            assert type(getattr(ours, name)) is type(getattr(bare, name))
        else:
            assert getattr(ours, name) == getattr(bare, name), name
    assert ours.request_id.startswith("req_") == bare.request_id.startswith("req_")
    assert 0 <= bare.received - ours.received < 60
