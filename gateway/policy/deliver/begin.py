"""When is the point of no return? When the first meaningful event is in hand.

Until then nothing has gone to the client: a failure is a real status, and may be retried.
The gate holds what comes before it (a role, an empty delta), and lets all of it go at once
(``specs/reliability.md`` 4.3).
"""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any

from gateway.core.dialogue import NOTHING
from gateway.core.errors import UpstreamInvalidResponse, UpstreamTimeout
from gateway.core.events import Begun, Delta, Event, Usage
from gateway.core.exchange import Backend, Events, Exchange
from gateway.core.passage import Passage
from gateway.policy.deliver.clock import Clock

MAX_HELD = 64


class Begin:
    """A backend whose ``open`` returns only once the answer has begun."""

    def __init__(self, inner: Backend, first_token: float) -> None:
        self._inner = inner
        self._first_token = first_token

    def open(self, exchange: Exchange) -> Opening:
        """Raises ``UpstreamTimeout`` if a stream brings no content within ``first_token`` seconds.

        A whole answer comes at its end, however long the model writes: only the total bounds it.
        """
        return Opening(self._inner.open(exchange), self._first_token if exchange.stream else None)


class Opening:
    """One exchange, entered when its answer has begun; then its events: those the gate has kept, and the rest."""

    __slots__ = ("_first_token", "_inner", "_rest", "held")

    def __init__(self, inner: AbstractAsyncContextManager[Events], first_token: float | None) -> None:
        self._inner = inner
        self._first_token = first_token
        self.held: Sequence[Event] = ()
        """What the gate has kept; the first of them says who answers."""

    @property
    def over(self) -> bool:
        """See ``Events``."""
        return self._rest.over and not self.held

    def __aenter__(self) -> Coroutine[Any, Any, Opening]:
        return self._begin() if self._first_token is None else self._begin_within(self._first_token)

    def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Coroutine[Any, Any, bool | None]:
        return self._inner.__aexit__(kind, error, trace)

    def more(self) -> Coroutine[Any, Any, Sequence[Event]]:
        """See ``Events``: the held events first, then those of the upstream, without a coroutine in between."""
        return self._take_held() if self.held else self._rest.more()

    async def flow(self, passage: Passage) -> None:
        """See ``Events``."""
        if not self.held:
            await self._rest.flow(passage)

    async def _begin_within(self, seconds: float) -> Opening:
        clock = _FirstToken(seconds)
        try:
            return await self._begin()
        except BaseException as error:
            clock.convert(error)
            raise
        finally:
            clock.stop()

    async def _begin(self) -> Opening:
        self._rest = events = await self._inner.__aenter__()
        try:
            self.held = held = await events.more()
            for event in held:  # nearly always the first batch has text
                if type(event) is Delta and event.text:
                    return self
            self.held = await _until_meaningful(held, events)
            return self
        except BaseException as error:
            await self._inner.__aexit__(type(error), error, error.__traceback__)
            raise

    async def _take_held(self) -> Sequence[Event]:
        held, self.held = self.held, ()
        return held


class _FirstToken(Clock):
    """Bounds the wait for the first content, from now on."""

    __slots__ = ("_seconds",)

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds
        self.set(self._loop.time() + seconds)

    def look(self) -> None:
        """See ``Clock``."""
        self.ring(UpstreamTimeout(f"the model's server sent no content within {self._seconds:g} s"))


def is_content(event: Event) -> bool:
    """Does this event tell the client anything? A role alone, an empty delta or a count does not."""
    if isinstance(event, Delta):
        if event.text or event.logprobs:
            return True
        return bool(event.extras) or (event.fields is not NOTHING and any(event.fields.values()))
    return not isinstance(event, Begun | Usage)


async def _until_meaningful(batch: Sequence[Event], events: Events) -> Sequence[Event]:
    """Everything from ``batch`` on, up to the batch that tells the client something."""
    held: Sequence[Event] = ()
    while batch:
        held = [*held, *batch] if held else batch
        if any(map(is_content, batch)) or len(held) >= MAX_HELD:
            return held
        batch = await events.more()
    raise UpstreamInvalidResponse("the model's server answered with an empty stream")
