"""What is an exchange of bytes with a model's server? The contract that two clients keep.

``h1.py`` is the client of every day: HTTP/1.1 on llhttp, short and fast. ``aio.py`` is the same on aiohttp, for what
the first one leaves out. Nothing above this file knows which of them it speaks to, and every row of
``specs/reliability.md`` B and C runs against both.

The rules both keep (4.8 and 5): no redirects, no proxies from the environment, no inflating, bounded lines and
headers, no clock but the connect timeout (the others are content-based and live in ``policy/deliver``), one silent
second try where a pooled connection turns out to be stale, and a connection whose answer was left unfinished is
closed, never pooled.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from gateway.core.errors import UpstreamInvalidResponse, UpstreamTooLarge

KEEPALIVE = 15.0
"""Seconds a quiet connection stays in the pool."""
MAX_LINE = 8190
"""Bytes of a status line, and of one header field."""
LINGER = 0.05
"""Seconds that an answer which has said everything may take to end its body, so that its connection can be pooled."""
MAX_BODY = 16 * 1024 * 1024
"""Bytes of an answer that is held whole."""


class HttpAnswer(Protocol):
    """Status and headers of an answer, and its body to be read once."""

    status: int
    content_type: str
    """The media type without parameters, lower case; empty when the server gave none."""
    complete: bool
    """Set by a reader that needs no more of the body, such as one that saw ``[DONE]``."""

    def header(self, name: str) -> str | None:
        """One header's first value; for our own decisions, never to be passed on."""
        ...

    async def more(self) -> bytes:
        """The next piece of the body, of any size; empty at its end. Raises ``UpstreamError``."""
        ...


class HttpClient(Protocol):
    """The process's one HTTP client; make it anywhere, use it in one event loop, close it there."""

    def request(
        self, url: str, body: bytes, headers: Mapping[str, str], connect_timeout: float = 2.0
    ) -> AbstractAsyncContextManager[HttpAnswer]:
        """POST ``body`` and give the answer once its headers are there.

        ``headers`` is everything that goes up, beside what HTTP itself needs. ``connect_timeout`` is in
        seconds and covers the name lookup. Leaving closes the connection unless the body was read to its end.
        """
        ...

    async def aclose(self) -> None:
        """Close every connection; running requests fail as disconnected."""
        ...


def refuse_encoded(answer: HttpAnswer) -> None:
    """We asked for identity; inflating what nobody asked to deflate invites a bomb (row B22)."""
    if (answer.header("content-encoding") or "identity").strip().lower() not in ("", "identity"):
        raise UpstreamInvalidResponse("the model's server sent a compressed body, which was not asked for")


async def read_whole(answer: HttpAnswer, limit: int = MAX_BODY, ahead: bytes = b"") -> bytes:
    """The whole body, ``ahead`` being what was read of it before; ``UpstreamTooLarge`` beyond ``limit`` bytes."""
    pieces = [ahead]
    size = len(ahead)
    while piece := await answer.more():
        pieces.append(piece)
        size += len(piece)
        if size > limit:
            raise UpstreamTooLarge(f"the model's server sent more than {limit} bytes")
    return b"".join(pieces)
