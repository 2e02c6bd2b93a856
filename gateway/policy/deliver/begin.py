"""When is the point of no return? When the first meaningful event is in hand.

Until then nothing has gone to the client: a failure is a real status, and may be retried.
The gate holds what comes before it (a role, an empty delta), and lets all of it go at once
(``specs/reliability.md`` 4.3).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from types import TracebackType

from gateway.core.errors import UpstreamInvalidResponse, UpstreamTimeout
from gateway.core.events import Begun, Delta, Event, Usage
from gateway.core.exchange import Backend, Exchange

MAX_HELD = 64


class Begin:
    """A backend whose ``open`` returns only once the answer has begun."""

    def __init__(self, inner: Backend, first_token: float) -> None:
        self._inner = inner
        self._first_token = first_token

    def open(self, exchange: Exchange) -> AbstractAsyncContextManager[Resumed]:
        """Raises ``UpstreamTimeout`` if a stream brings no content within ``first_token`` seconds.

        A whole answer comes at its end, however long the model writes: only the total bounds it.
        """
        return _Opening(self._inner.open(exchange), self._first_token if exchange.stream else None)


class _Opening:
    """One exchange, entered when its answer has begun."""

    __slots__ = ("_first_token", "_inner")

    def __init__(self, inner: AbstractAsyncContextManager[AsyncIterator[Event]], first_token: float | None) -> None:
        self._inner = inner
        self._first_token = first_token

    async def __aenter__(self) -> Resumed:
        if self._first_token is None:
            return await self._begin()
        try:
            async with asyncio.timeout(self._first_token):
                return await self._begin()
        except TimeoutError:
            raise UpstreamTimeout(f"the model's server sent no content within {self._first_token:g} s") from None

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._inner.__aexit__(kind, error, trace)

    async def _begin(self) -> Resumed:
        events = await self._inner.__aenter__()
        try:
            return Resumed(await _until_meaningful(events), events)
        except BaseException as error:
            await self._inner.__aexit__(type(error), error, error.__traceback__)
            raise


class Resumed:
    """Events already taken from an iterator, then the rest of it."""

    __slots__ = ("_rest", "held")

    def __init__(self, held: deque[Event], rest: AsyncIterator[Event]) -> None:
        self.held = held
        """What the gate has kept; the first of them says who answers."""
        self._rest = rest

    def __aiter__(self) -> Resumed:
        return self

    async def __anext__(self) -> Event:
        return self.held.popleft() if self.held else await self._rest.__anext__()


def is_content(event: Event) -> bool:
    """Does this event tell the client anything? A role alone, an empty delta or a count does not."""
    if isinstance(event, Delta):
        return bool(event.text or event.logprobs or event.extras) or any(event.fields.values())
    return not isinstance(event, Begun | Usage)


async def _until_meaningful(events: AsyncIterator[Event]) -> deque[Event]:
    held: deque[Event] = deque()
    async for event in events:
        held.append(event)
        if is_content(event) or len(held) >= MAX_HELD:
            return held
    raise UpstreamInvalidResponse("the model's server answered with an empty stream")
