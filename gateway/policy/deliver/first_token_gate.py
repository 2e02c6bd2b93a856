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

from gateway.core.dialogue import EMPTY_MAPPING
from gateway.core.errors import UpstreamInvalidResponse, UpstreamTimeout
from gateway.core.events import Begun, Delta, Event, Usage
from gateway.core.exchange import Backend, Events, Exchange
from gateway.core.text_splice import TextSplice
from gateway.policy.deliver.deadline import Deadline

MAX_HELD = 64


class FirstTokenGate:
    """A backend whose ``open`` returns only once the answer has begun."""

    def __init__(self, inner: Backend, first_token: float) -> None:
        self._inner = inner
        self._first_token = first_token

    def open(self, exchange: Exchange) -> GatedStream:
        """Raises ``UpstreamTimeout`` if a stream brings no content within ``first_token`` seconds.

        A whole answer comes at its end, however long the model writes: only the total bounds it.
        """
        return GatedStream(self._inner.open(exchange), self._first_token if exchange.stream else None)


class GatedStream:
    """One exchange, entered when its answer has begun; then its events: those the gate has kept, and the rest."""

    __slots__ = ("_first_token", "_inner", "_rest", "held")

    def __init__(self, inner: AbstractAsyncContextManager[Events], first_token: float | None) -> None:
        self._inner = inner
        self._first_token = first_token
        self.held: Sequence[Event] = ()
        """What the gate has kept; the first of them says who answers."""

    @property
    def exhausted(self) -> bool:
        """See ``Events``."""
        return self._rest.exhausted and not self.held

    def __aenter__(self) -> Coroutine[Any, Any, GatedStream]:
        return self._begin() if self._first_token is None else self._begin_within(self._first_token)

    def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Coroutine[Any, Any, bool | None]:
        return self._inner.__aexit__(kind, error, trace)

    def next_batch(self) -> Coroutine[Any, Any, Sequence[Event]]:
        """See ``Events``: the held events first, then those of the upstream, without a coroutine in between."""
        return self._take_held() if self.held else self._rest.next_batch()

    async def forward_text(self, passage: TextSplice) -> None:
        """See ``Events``."""
        if not self.held:
            await self._rest.forward_text(passage)

    async def _begin_within(self, seconds: float) -> GatedStream:
        clock = _FirstToken(seconds)
        try:
            return await self._begin()
        except BaseException as error:
            clock.convert(error)
            raise
        finally:
            clock.stop()

    async def _begin(self) -> GatedStream:
        self._rest = events = await self._inner.__aenter__()
        try:
            self.held = held = await events.next_batch()
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


class _FirstToken(Deadline):
    """Bounds the wait for the first content, from now on."""

    __slots__ = ("_seconds",)

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds
        self.set(self._loop.time() + seconds)

    def look(self) -> None:
        """See ``Deadline``."""
        self.ring(UpstreamTimeout(f"the model's server sent no content within {self._seconds:g} s"))


def is_content(event: Event) -> bool:
    """Does this event tell the client anything? A role alone, an empty delta or a count does not."""
    if isinstance(event, Delta):
        if event.text or event.logprobs:
            return True
        return bool(event.extras) or (event.fields is not EMPTY_MAPPING and any(event.fields.values()))
    return not isinstance(event, Begun | Usage)


async def _until_meaningful(batch: Sequence[Event], events: Events) -> Sequence[Event]:
    """Everything from ``batch`` on, up to the batch that tells the client something."""
    held: Sequence[Event] = ()
    while batch:
        held = [*held, *batch] if held else batch
        if any(map(is_content, batch)) or len(held) >= MAX_HELD:
            return held
        batch = await events.next_batch()
    raise UpstreamInvalidResponse("the model's server answered with an empty stream")
