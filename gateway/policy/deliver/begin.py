"""When is the point of no return? When the first meaningful event is in hand.

Until then nothing has gone to the client: a failure is a real status, and may be retried.
The gate holds what comes before it (a role, an empty delta), and lets all of it go at once
(``specs/reliability.md`` 4.3).
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any

from gateway.core.dialogue import NOTHING
from gateway.core.errors import UpstreamInvalidResponse, UpstreamTimeout
from gateway.core.events import Begun, Delta, Event, Usage
from gateway.core.exchange import Backend, Events, Exchange
from gateway.policy.deliver.clock import Clock

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
        inner = self._inner.open(exchange)
        return _Opening(inner, _FirstToken(self._first_token) if exchange.stream else None)


class _Opening:
    """One exchange, entered when its answer has begun."""

    __slots__ = ("_clock", "_inner")

    def __init__(self, inner: AbstractAsyncContextManager[Events], clock: _FirstToken | None) -> None:
        self._inner = inner
        self._clock = clock

    async def __aenter__(self) -> Resumed:
        clock = self._clock
        if clock is None:
            return await self._begin()
        clock.start()
        try:
            return await self._begin()
        except BaseException as error:
            clock.convert(error)
            raise
        finally:
            clock.stop()

    def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Coroutine[Any, Any, bool | None]:
        return self._inner.__aexit__(kind, error, trace)

    async def _begin(self) -> Resumed:
        events = await self._inner.__aenter__()
        try:
            held = await _until_meaningful(events)
        except BaseException as error:
            await self._inner.__aexit__(type(error), error, error.__traceback__)
            raise
        return Resumed(held, events)


class _FirstToken(Clock):
    """Bounds the wait for the first content."""

    __slots__ = ("_seconds",)

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds

    def start(self) -> None:
        self.set(self._loop.time() + self._seconds)

    def look(self) -> None:
        """See ``Clock``."""
        self.ring(UpstreamTimeout(f"the model's server sent no content within {self._seconds:g} s"))


class Resumed:
    """Events already taken, then the rest: once the first are handed out, it is no longer in the way."""

    __slots__ = ("_rest", "held", "more")

    over = False
    """See ``Events``."""

    def __init__(self, held: Sequence[Event], rest: Events) -> None:
        self.held = held
        """What the gate has kept; the first of them says who answers."""
        self._rest = rest
        self.more: Callable[[], Coroutine[Any, Any, Sequence[Event]]] = self._first

    async def _first(self) -> Sequence[Event]:
        self.more = self._rest.more
        held, self.held = self.held, ()
        return held or await self._rest.more()


def is_content(event: Event) -> bool:
    """Does this event tell the client anything? A role alone, an empty delta or a count does not."""
    if isinstance(event, Delta):
        if event.text or event.logprobs:
            return True
        return bool(event.extras) or (event.fields is not NOTHING and any(event.fields.values()))
    return not isinstance(event, Begun | Usage)


async def _until_meaningful(events: Events) -> Sequence[Event]:
    held: Sequence[Event] = ()
    while batch := await events.more():
        held = [*held, *batch] if held else batch
        if any(map(is_content, batch)) or len(held) >= MAX_HELD:
            return held
    raise UpstreamInvalidResponse("the model's server answered with an empty stream")
