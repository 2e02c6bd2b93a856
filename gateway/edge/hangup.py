"""Is the client still there? When it leaves, the work it asked for ends.

ASGI tells of a disconnect only to those who ask; neither uvicorn nor starlette stops the work by
itself (``specs/reliability.md``, finding 8). Ending the work closes the upstream, in every phase.

Our own server calls when the line goes dead (``cli/protocol.py``); under any other ASGI server a listener beside the
work asks, which costs a task a call.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType

from gateway.edge.asked import Line, Receive


class ClientGone(Exception):
    """The client closed its connection; nobody is left to be told."""


Settle = Callable[[], None]


def until_hangup(receive: Receive, line: Line | None = None) -> AbstractAsyncContextManager[Settle]:
    """Cancel the work inside when the client leaves, and say so with ``ClientGone``.

    Gives a function to call before the last byte is sent: from then on a disconnect is
    the ordinary end of the exchange.
    """
    return _listening(receive) if line is None else _Called(line)


class _Called:
    """The work ends when the line says so."""

    __slots__ = ("_gone", "_line", "_owner")

    def __init__(self, line: Line) -> None:
        self._line = line
        self._gone = False

    async def __aenter__(self) -> Settle:
        owner = asyncio.current_task()
        assert owner is not None
        self._owner = owner
        if self._line.dead():
            raise ClientGone
        self._line.on_hangup = self._leave
        return self._settle

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._line.on_hangup = None
        if not self._gone:
            return
        if error is None:
            try:
                await asyncio.sleep(0)  # the work was done when the client left: take the cancellation here
            except asyncio.CancelledError as late:
                error = late
        if isinstance(error, asyncio.CancelledError) and not self._owner.uncancel():
            raise ClientGone from None

    def _leave(self) -> None:
        self._gone = True
        self._owner.cancel()

    def _settle(self) -> None:
        self._line.on_hangup = None


@asynccontextmanager
async def _listening(receive: Receive) -> AsyncIterator[Settle]:
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
