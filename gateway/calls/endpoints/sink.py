"""The receivers of the answer to one call: the interface, and one that keeps the answer."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cache

from gateway.calls.endpoints.cancellation import Cancellation
from gateway.core.errors import GatewayError
from gateway.wire.error_object import error_body, retry_fields

HeaderValue = bytes | int | float
HeaderFields = tuple[tuple[bytes, ...], tuple[HeaderValue, ...]]
"""The names of header fields in lower case, and their values. Texts are in ASCII.

Two tuples, because the names of most answers are the same: ``header_layout`` makes the head with one format.
"""
NO_FIELDS: HeaderFields = ((), ())
NUMBERS = {b"x-gateway-attempts": b"%d", b"x-gateway-overhead-ms": b"%.3f", b"openai-processing-ms": b"%d"}
"""Name of a header whose value is a number → its format."""


@cache
def header_layout(names: tuple[bytes, ...], start: bytes = b"") -> bytes:
    """Return the format for the values of header fields, each with CRLF."""
    return start + b"".join([b"%b: %b\r\n" % (name, NUMBERS.get(name, b"%b")) for name in names])


class AnswerSink(Cancellation, ABC):
    """Receives the answer to one call: a whole answer (``send_answer``), or a stream (``start_stream`` … ``end``).

    ``cancel`` ends the call, for example because the receiver has left.
    """

    status = 0
    """The status of the answer; 0 until an answer is sent."""
    closing = False
    """True: the connection of the receiver, if it has one, is closed after the answer."""

    @abstractmethod
    def add_headers(self, headers: Mapping[str, str]) -> None:
        """Add headers to the answer, which may be an error. Called before the answer is sent."""

    @abstractmethod
    def send_answer(self, status: int, fields: HeaderFields, body: bytes) -> None:
        """Send a whole answer in JSON."""

    @abstractmethod
    def start_stream(self, fields: HeaderFields) -> None:
        """Start a stream of server-sent events. The head is sent together with the first part of the stream."""

    @abstractmethod
    async def write(self, frames: bytes, seconds: float) -> None:
        """Send a part of a stream. Wait while the client reads too slowly.

        Raises ``ClientStalled`` when the client reads nothing for ``seconds``.
        """

    @property
    def can_try_write(self) -> bool:
        """True: ``try_write`` may be used for the next parts of this stream."""
        return False

    def try_write(self, frames: bytes) -> bool:
        """Non-blocking ``write``. Returns False, and writes nothing, while the client applies back-pressure."""
        return False

    @abstractmethod
    def end(self, last: bytes = b"") -> None:
        """End a stream with its last part."""

    def send_error(self, error: GatewayError, fields: HeaderFields = NO_FIELDS) -> None:
        """Send an error as the whole answer."""
        retry, (names, values) = retry_fields(error), fields
        self.send_answer(error.status, ((*retry, *names), (*retry.values(), *values)), error_body(error))


class KeptAnswer(AnswerSink):
    """Keeps the answer to a call from this process. Its call runs in the task that creates the object."""

    def __init__(self) -> None:
        self.task = asyncio.current_task()
        self.headers: dict[str, str] = {}
        """Lower-case name → value."""
        self.parts: list[bytes] = []

    @property
    def body(self) -> bytes:
        """The whole answer in JSON, or all events of a stream."""
        return b"".join(self.parts)

    def add_headers(self, headers: Mapping[str, str]) -> None:
        """Keep headers. See ``AnswerSink``."""
        self.headers |= headers

    def send_answer(self, status: int, fields: HeaderFields, body: bytes) -> None:
        """Keep a whole answer. See ``AnswerSink``."""
        self._start(status, fields)
        self.end(body)

    def start_stream(self, fields: HeaderFields) -> None:
        """Keep the status and headers of a stream. See ``AnswerSink``."""
        self._start(200, fields)

    def _start(self, status: int, fields: HeaderFields) -> None:
        self.status = status
        for name, value in zip(*fields, strict=True):
            self.headers[name.decode("ascii")] = (NUMBERS.get(name, b"%b") % (value,)).decode("ascii")

    async def write(self, frames: bytes, seconds: float) -> None:
        """Keep a part of a stream. See ``AnswerSink``."""
        self.parts.append(frames)

    def end(self, last: bytes = b"") -> None:
        """Keep the last part of a stream. See ``AnswerSink``."""
        self.parts.append(last)
