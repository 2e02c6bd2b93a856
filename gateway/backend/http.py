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

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Protocol

from gateway.core.dialogue import NOTHING
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
    complete: bool
    """Set by a reader that needs no more of the body, such as one that saw ``[DONE]``."""
    plain: bool
    """A success whose body is as it was written. False: ``status`` and the headers have to be looked at."""

    @property
    def content_type(self) -> str:
        """The media type without parameters, lower case; empty when the server gave none."""
        ...

    def header(self, name: str) -> str | None:
        """One header's first value; for our own decisions, never to be passed on. ``name`` is in lower case."""
        ...

    async def more(self) -> bytes:
        """The next piece of the body, of any size; empty at its end. Raises ``UpstreamError``."""
        ...

    async def flow(self, take: Callable[[bytes], bool]) -> None:
        """Hand each piece to ``take`` the moment it comes, until it does not take one: that is left for ``more``.

        Ends as well where the body ends or fails, and at once in a client that has no such way.
        """
        ...

    def whole(self) -> bytes | None:
        """All of the body that was not read yet, if its end has come; None: ask for ``more``."""
        ...

    def leave(self) -> None:
        """The end of the exchange, on any road: closes the connection unless the body was read to its end."""
        ...


class HttpTarget(Protocol):
    """One address, with all that its requests have in common made ready."""

    async def post(self, body: bytes, headers: Mapping[str, str] = NOTHING) -> HttpAnswer:
        """POST ``body`` and give the answer once its headers are there; whoever gets it has to ``leave`` it.

        ``headers`` are those of this request alone.
        """
        ...


class HttpClient(Protocol):
    """The process's one HTTP client; make it anywhere, use it in one event loop, close it there."""

    def target(self, url: str, headers: Mapping[str, str], connect_timeout: float = 2.0) -> HttpTarget:
        """An address to post to; raises ``UpstreamUnreachable`` for what is none, here or on the first request.

        ``headers`` go up with every request, beside what HTTP itself needs; names and values are free of line ends.
        ``connect_timeout`` is in seconds and covers the name lookup.
        """
        ...

    async def aclose(self) -> None:
        """Close every connection; running requests fail as disconnected."""
        ...


@lru_cache(maxsize=256)
def media_type(value: str) -> str:
    """A content type without its parameters, lower case."""
    return value.partition(";")[0].strip().lower()


def refuse_encoded(answer: HttpAnswer) -> None:
    """We asked for identity; inflating what nobody asked to deflate invites a bomb (row B22)."""
    encoding = answer.header("content-encoding")
    if encoding is not None and encoding.strip().lower() not in ("", "identity"):
        raise UpstreamInvalidResponse("the model's server sent a compressed body, which was not asked for")


async def read_whole(answer: HttpAnswer, limit: int = MAX_BODY, ahead: bytes = b"") -> bytes:
    """The whole body, ``ahead`` being what was read of it before; ``UpstreamTooLarge`` beyond ``limit`` bytes."""
    pieces = [ahead] if ahead else []
    size = len(ahead)
    while piece := await answer.more():
        pieces.append(piece)
        size += len(piece)
        if size > limit:
            raise UpstreamTooLarge(f"the model's server sent more than {limit} bytes")
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)
