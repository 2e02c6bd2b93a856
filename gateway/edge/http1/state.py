"""What the connections of one server share."""

from __future__ import annotations

from dataclasses import dataclass
from email.utils import formatdate
from http import HTTPStatus

from gateway.edge.http_request import BODY_SECONDS


@dataclass(frozen=True, slots=True)
class ConnectionTimeouts:
    """Seconds that a connection waits for its client."""

    head: float = 10.0
    body: float = BODY_SECONDS
    idle: float = 75.0


@dataclass(eq=False, slots=True)
class ServerState:
    """Shared by a server and its connections."""

    timeouts: ConnectionTimeouts
    now: float
    """Loop time, updated once a second: enough for timeouts of whole seconds."""
    starts: dict[int, bytes]
    """``answer_start`` by status, of the current second."""
    draining: bool = False
    """True: no further request is taken."""

    def answer_start(self, status: int) -> bytes:
        """Status line and date of an answer, up to the value of ``x-request-id``."""
        start = b"%bdate: %b\r\nx-request-id: " % (status_line(status), formatdate(usegmt=True).encode("ascii"))
        self.starts[status] = start
        return start


def status_line(status: int) -> bytes:
    """The first line of an answer."""
    return b"HTTP/1.1 %d %b\r\n" % (status, HTTPStatus(status).phrase.encode("ascii"))
