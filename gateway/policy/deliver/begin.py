"""When is the point of no return? When the first meaningful event is in hand.

Until then nothing has gone to the client: a failure is a real status, and may be retried.
The gate holds what comes before it (a role, an empty delta), and lets all of it go at once
(``specs/reliability.md`` 4.3).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from gateway.core.errors import UpstreamInvalidResponse, UpstreamTimeout
from gateway.core.events import Begun, Delta, Event, Usage
from gateway.core.exchange import Backend, Exchange

MAX_HELD = 64


class Begin:
    """A backend whose ``open`` returns only once the answer has begun."""

    def __init__(self, inner: Backend, first_token: float) -> None:
        self._inner = inner
        self._first_token = first_token

    @asynccontextmanager
    async def open(self, exchange: Exchange) -> AsyncIterator[AsyncIterator[Event]]:
        """Raises ``UpstreamTimeout`` if a stream brings no content within ``first_token`` seconds.

        A whole answer comes at its end, however long the model writes: only the total bounds it.
        """
        async with AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(self._first_token if exchange.stream else None):
                    events = await stack.enter_async_context(self._inner.open(exchange))
                    held = await _until_meaningful(events)
            except TimeoutError:
                raise UpstreamTimeout(f"the model's server sent no content within {self._first_token:g} s") from None
            yield Resumed(held, events)


class Resumed:
    """Events already taken from an iterator, then the rest of it."""

    __slots__ = ("_held", "_rest")

    def __init__(self, held: list[Event], rest: AsyncIterator[Event]) -> None:
        self._held = held[::-1]
        self._rest = rest

    def __aiter__(self) -> Resumed:
        return self

    async def __anext__(self) -> Event:
        return self._held.pop() if self._held else await self._rest.__anext__()


def is_content(event: Event) -> bool:
    """Does this event tell the client anything? A role alone, an empty delta or a count does not."""
    if isinstance(event, Delta):
        return bool(event.text or event.logprobs or event.extras) or any(event.fields.values())
    return not isinstance(event, Begun | Usage)


async def _until_meaningful(events: AsyncIterator[Event]) -> list[Event]:
    held: list[Event] = []
    async for event in events:
        held.append(event)
        if is_content(event) or len(held) >= MAX_HELD:
            return held
    raise UpstreamInvalidResponse("the model's server answered with an empty stream")
