"""What a request brings: its facts, and its body."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from random import getrandbits
from typing import Protocol

from gateway.core.caller import Caller
from gateway.core.errors import BodyTooLarge
from metatemplate.values.frozen import EMPTY_MAPPING

_PLAIN_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}\Z")


class RequestFacts:
    """What a request brings beside its body. A call does not change it."""

    model: str | None = None
    """The model named by the path (``/{model}/v1/…``); None if the body names the model."""
    root_path = ""
    """The path where the application is mounted, percent-encoded; empty if it is not mounted."""

    def __init__(self, headers: Mapping[bytes, bytes] = EMPTY_MAPPING, caller: Caller | None = None) -> None:
        self.headers = headers
        """Lower-case name → value. The values of a repeated field are joined by commas (RFC 9110, 5.3)."""
        self.caller = caller
        """The client, if it is known without a key: this process, or a person who has signed in to the viewer.

        None: the header ``authorization`` names the client.
        """
        sent = headers.get(b"x-request-id")
        # Ids must be unique, not secret. Random bits from the kernel would cost more than the rest of the head.
        self.request_id = (
            sent.decode("ascii")
            if sent is not None and _PLAIN_ID.match(sent)
            else f"req_{getrandbits(128).to_bytes(16).hex()}"
        )
        """The client's ``x-request-id`` if the value is short and plain (``_PLAIN_ID``), else a new id."""
        self.received = time.monotonic()
        """Monotonic seconds at which the request had arrived, without its body."""

    def header(self, name: str) -> str | None:
        """Return the value of a header field; None if the field is missing. ``name`` is in lower case."""
        value = self.headers.get(name.encode("ascii"))
        return None if value is None else value.decode("latin-1")


class RequestBody(Protocol):
    """The body of a request, which may not have arrived yet. See ``HttpRequest`` and ``LocalBody``."""

    def take_body(self, limit: int) -> bytes | None:
        """Return the body if it has arrived and has at most ``limit`` bytes, else None: call ``body`` then.

        Raises ``RequestError`` if the request announces another format than JSON, or a larger body.
        """

    async def body(self, limit: int) -> bytes:
        """Read the whole body. Raises ``BodyTooLarge`` above ``limit`` bytes, ``RequestTimeout`` for a late body."""


class LocalBody:
    """The body of a call from this process."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    def take_body(self, limit: int) -> bytes | None:
        """See ``RequestBody``."""
        return self._body if len(self._body) <= limit else None

    async def body(self, limit: int) -> bytes:
        """Raise ``BodyTooLarge``: this method is called only if the body is too long for ``take_body``."""
        raise body_too_large(limit)


def body_too_large(limit: int) -> BodyTooLarge:
    """Return the error for a body of more than ``limit`` bytes."""
    return BodyTooLarge(f"the request body is larger than {limit} bytes (server.max_body)")
