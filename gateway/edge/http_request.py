"""What has arrived, and how is it answered? One HTTP request as the handlers see it.

Whoever speaks HTTP makes it: our own server (``request.py``) or an adapter for any ASGI server (``asgi.py``).
Answers are whole (``reply``) or streams (``begin``, ``write``, ``end``). Header blocks are bytes,
``name: value`` and CRLF for each field; what every answer has (``date``, ``x-request-id``, lengths, ``connection``)
is added below.
"""

from __future__ import annotations

import re
import time
from abc import ABC, abstractmethod
from random import getrandbits
from typing import TYPE_CHECKING

from gateway.edge.cancellation import Cancellation

if TYPE_CHECKING:
    from gateway.calls.prepare import Prepared
    from gateway.calls.response import ResponseStream
    from gateway.calls.route import Route
    from gateway.wire.responses import ResponseWriter

_PLAIN_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}\Z")


def new_id() -> str:
    """An id has to differ, not to be secret: the kernel's randomness would cost more than the rest of the head."""
    return f"req_{getrandbits(128):032x}"


def id_from(theirs: bytes) -> str:
    """The client's own id, if it is a plain one."""
    return theirs.decode("ascii") if _PLAIN_ID.match(theirs) else new_id()


class HttpRequest(Cancellation, ABC):
    """One request."""

    __slots__ = (
        "answered",
        "closing",
        "early",
        "headers",
        "known",
        "method",
        "model",
        "path",
        "received",
        "request_id",
        "status",
        "telling",
    )

    def __init__(self, method: str, path: str, headers: dict[bytes, bytes]) -> None:
        # Written out: a call of the base's costs as much as three assignments.
        self.task = None
        self._why = None
        self._settled = False
        self.method = method
        self.path = path
        """As it was sent, not unquoted: ``%2f`` is no slash, so no rule in front of us can be talked round."""
        self.headers = headers
        """By lower-case name; a repeated field is joined by commas (RFC 9110, 5.3)."""
        theirs = headers.get(b"x-request-id")
        self.request_id = new_id() if theirs is None else id_from(theirs)
        self.received = time.monotonic()
        """Monotonic seconds."""
        self.model: str | None = None
        """The model named by the path (``/{model}/v1/…``); None: the body names it."""
        self.known: tuple[Route, Prepared] | None = None
        """What a handler has found out, for the headers of whatever is answered."""
        self.telling: tuple[ResponseStream, ResponseWriter] | None = None
        """Who is being streamed; if it breaks off, they know what has not been said yet."""
        self.status = 0
        """The status of the answer; 0: nothing has been said yet."""
        self.early: bytes | None = None
        """The whole body, if it was there before anybody asked for it in one piece; else ``body`` has it."""
        self.answered = False
        """The answer is complete."""
        self.closing = False
        """Close the connection behind the answer."""

    def header(self, name: str) -> str | None:
        """A field of the head, by its lower-case name."""
        value = self.headers.get(name.encode("ascii"))
        return None if value is None else value.decode("latin-1")

    @abstractmethod
    async def body(self, limit: int) -> bytes:
        """The whole body; ``BodyTooLarge`` beyond ``limit`` bytes, ``RequestTimeout`` if it takes too long."""

    @abstractmethod
    def reply(self, status: int, headers: bytes, body: bytes) -> None:
        """A whole answer."""

    @abstractmethod
    def begin(self, status: int, headers: bytes) -> None:
        """A stream's head; it leaves with the first frames."""

    @abstractmethod
    async def write(self, frames: bytes, seconds: float) -> None:
        """A part of a stream; waits while the client reads too slowly.

        Raises ``ClientStalled`` when the client reads nothing for so many seconds.
        """

    @property
    def passes_on(self) -> bool:
        """May ``pass_on`` write anything?"""
        return False

    def pass_on(self, frames: bytes) -> bool:
        """As ``write``, for who cannot wait. False: nothing was written, because whoever writes here has to wait."""
        return False

    @abstractmethod
    def end(self, last: bytes = b"") -> None:
        """The end of a stream, with its last part."""

    @abstractmethod
    def abandon(self) -> None:
        """There will be no (more) answer: cut the connection."""
