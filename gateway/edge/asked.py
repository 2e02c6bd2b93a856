"""What has arrived? One HTTP request, before its body is read."""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from random import getrandbits
from typing import Any

from starlette.datastructures import Headers

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

_PLAIN_ID = re.compile(r"[A-Za-z0-9._-]{1,64}\Z")


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
    model: str | None = None
    """The model named by the path (``/{model}/v1/…``); None: the body names it."""


def asked(scope: Scope, receive: Receive, send: Send) -> Asked:
    """Read the head; a client's ``x-request-id`` is kept if it is plain, else replaced."""
    headers = Headers(scope=scope)
    theirs = headers.get("x-request-id", "")
    # An id has to differ, not to be secret: the kernel's randomness would cost more than the rest of the head.
    request_id = theirs if theirs and _PLAIN_ID.match(theirs) else f"req_{getrandbits(128):032x}"
    return Asked(
        scope["method"], scope["raw_path"].decode("latin-1"), headers, receive, send, request_id, time.monotonic()
    )
