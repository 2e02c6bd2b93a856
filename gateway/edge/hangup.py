"""Is the client still there? A listener beside the work, which ends it when the client leaves.

ASGI tells of a disconnect only to those who ask; neither uvicorn nor starlette stops the work by
itself (``specs/reliability.md``, finding 8). Ending the work closes the upstream, in every phase.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from gateway.edge.asked import Receive


class ClientGone(Exception):
    """The client closed its connection; nobody is left to be told."""


@asynccontextmanager
async def until_hangup(receive: Receive) -> AsyncIterator[Callable[[], None]]:
    """Cancel the work inside when the client leaves, and say so with ``ClientGone``.

    Yields a function to call before the last byte is sent: from then on a disconnect is
    the ordinary end of the exchange.
    """
    owner = asyncio.current_task()
    assert owner is not None
    gone = False

    async def listen() -> None:
        nonlocal gone
        while (await receive())["type"] != "http.disconnect":
            pass
        gone = True
        owner.cancel()

    listener = asyncio.create_task(listen(), name="hangup")

    def settle() -> None:
        if not gone:
            listener.cancel()

    try:
        yield settle
    except asyncio.CancelledError:
        if not gone or owner.uncancel():
            raise
        raise ClientGone from None
    finally:
        listener.cancel()
        # Not awaited itself: its cancellation and one meant for us would look the same, and ours must go on its way.
        await asyncio.wait([listener])
        if not listener.cancelled():
            listener.result()
