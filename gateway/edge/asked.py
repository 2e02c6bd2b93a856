"""What has arrived? One HTTP request, before its body is read."""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable, MutableMapping
from random import getrandbits
from typing import Any, Protocol

from starlette.datastructures import Headers

from gateway.core.frozen import dataclass

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

_PLAIN_ID = re.compile(r"[A-Za-z0-9._-]{1,64}\Z")


class Line(Protocol):
    """A connection that calls when it goes dead; what our own server puts into ``scope["extensions"][LINE]``."""

    on_hangup: Callable[[], None] | None
    """Called once, in the event loop, when the client has left; None: nobody wants to know."""

    def dead(self) -> bool:
        """Has the client left already?"""
        ...


LINE = "gateway.line"


@dataclass(frozen=True, slots=True)
class Asked:
    """One request's head, and the two ends of its connection."""

    method: str
    path: str
    """As it was sent, not unquoted: ``%2f`` is no slash, so no rule in front of us can be talked round."""
    headers: Headers
    receive: Receive
    send: Send
    request_id: str
    received: float
    """Monotonic seconds."""
    line: Line | None = None
    """The connection, if the server is ours."""
    model: str | None = None
    """The model named by the path (``/{model}/v1/…``); None: the body names it."""


def asked(scope: Scope, receive: Receive, send: Send) -> Asked:
    """Read the head; a client's ``x-request-id`` is kept if it is plain, else replaced."""
    headers = Headers(scope=scope)
    theirs = headers.get("x-request-id", "")
    # An id has to differ, not to be secret: the kernel's randomness would cost more than the rest of the head.
    request_id = theirs if theirs and _PLAIN_ID.match(theirs) else f"req_{getrandbits(128):032x}"
    line = (scope.get("extensions") or {}).get(LINE)
    path = scope["raw_path"].decode("latin-1")
    return Asked(scope["method"], path, headers, receive, send, request_id, time.monotonic(), line)
