"""The state that the connections of one server share."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from email.utils import formatdate
from http import HTTPStatus

from gateway.core.errors import GatewayError
from gateway.edge.http_request import BODY_SECONDS


@dataclass(frozen=True, slots=True)
class ConnectionTimeouts:
    """The seconds that a connection waits for a head, a body, the next request, or the client's close."""

    head: float = 10.0
    body: float = BODY_SECONDS
    idle: float = 75.0
    linger: float = 5.0


class PipelinedRequests:
    """Starts the pipelined requests of all connections, one in each turn of the event loop.

    So many pipelined requests do not delay the requests of other connections.
    """

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], None]] = deque()

    def start(self, start: Callable[[], None]) -> None:
        """Call ``start`` in its turn."""
        self._waiting.append(start)
        if len(self._waiting) == 1:
            asyncio.get_running_loop().call_soon(self._start_one)

    def _start_one(self) -> None:
        start = self._waiting.popleft()
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._start_one)
        start()


@dataclass(eq=False, slots=True)
class ServerState:
    """The state that a server and its connections share."""

    timeouts: ConnectionTimeouts
    now: float
    """Loop time, updated once a second, which is exact enough for timeouts of whole seconds."""
    starts: dict[int, bytes]
    """Status → the result of ``answer_start`` in the current second."""
    refused: Callable[[GatewayError, str], None]
    """Receives the error and the request id for input that is not a complete HTTP request."""
    pipelined: PipelinedRequests = field(default_factory=PipelinedRequests)
    closing: bool = False
    """True: each connection is closed after its current or next answer."""

    def answer_start(self, status: int) -> bytes:
        """Return the status line and date of an answer, up to the value of ``x-request-id``."""
        start = b"%bdate: %b\r\nx-request-id: " % (status_line(status), formatdate(usegmt=True).encode("ascii"))
        self.starts[status] = start
        return start


def status_line(status: int) -> bytes:
    """Return the first line of an answer."""
    return b"HTTP/1.1 %d %b\r\n" % (status, HTTPStatus(status).phrase.encode("ascii"))
