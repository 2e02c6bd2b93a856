"""Who is asked next when a target fails? Another replica, or the same one once more.

The one retry loop of the gateway; it ends where the answer begins (``policy/deliver/begin.py``).
What may be tried again, and where, is a table (``specs/reliability.md`` 4.1).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace

from gateway.core.errors import (
    GatewayError,
    UpstreamConnectTimeout,
    UpstreamDnsError,
    UpstreamError,
    UpstreamOverloaded,
    UpstreamRateLimited,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from gateway.core.events import Begun, Event
from gateway.core.exchange import Backend, Exchange


@dataclass(frozen=True, slots=True)
class Again:
    """How a failure may be answered."""

    most: int
    """Failures of this kind that one call may survive."""
    same_target: bool
    """May a target be asked again once there is no other left?"""


RULES: tuple[tuple[type[GatewayError], Again], ...] = (
    # the first row that fits; the more special classes first
    (UpstreamUnreachable, Again(most=9, same_target=False)),
    (UpstreamDnsError, Again(most=9, same_target=False)),
    (UpstreamConnectTimeout, Again(most=9, same_target=False)),
    (UpstreamRateLimited, Again(most=9, same_target=False)),
    (UpstreamTimeout, Again(most=1, same_target=False)),
    (UpstreamOverloaded, Again(most=1, same_target=True)),
    (UpstreamError, Again(most=1, same_target=True)),
)

BACKOFF = 0.25
"""Seconds, the upper end of the jittered pause before the *same* target is asked again."""

MAX_WAIT = 2.0
"""Seconds; a ``retry-after`` beyond it goes to the client instead of being slept through."""


@dataclass(frozen=True, slots=True)
class Replica:
    """One target behind its gate."""

    label: str
    backend: Backend


class Failover:
    """Replicas of one model, asked in turn; each call starts one further on."""

    def __init__(
        self,
        replicas: tuple[Replica, ...],
        attempts: int,
        *,
        observe: Callable[[str, str], None] = lambda target, outcome: None,
        rng: random.Random | None = None,
    ) -> None:
        self._replicas = replicas
        self._attempts = attempts
        self._observe = observe
        self._rng = rng or random.Random()
        self._next = 0

    @asynccontextmanager
    async def open(self, exchange: Exchange) -> AsyncIterator[AsyncIterator[Event]]:
        """Opens the first replica that begins to answer; raises the last failure otherwise."""
        start, self._next = self._next, (self._next + 1) % len(self._replicas)
        survived: dict[type[GatewayError], int] = {}
        async with AsyncExitStack() as stack:
            for attempt in range(1, self._attempts + 1):
                replica = self._replicas[(start + attempt - 1) % len(self._replicas)]
                try:
                    events = await stack.enter_async_context(replica.backend.open(exchange))
                except GatewayError as error:
                    self._observe(replica.label, error.code)
                    error.attempts = attempt
                    fresh = attempt < len(self._replicas)
                    if attempt == self._attempts or not _may_go_on(error, survived, fresh):
                        raise
                    if not fresh:
                        await self._pause(error)
                else:
                    self._observe(replica.label, "ok")
                    yield Labelled(events, replica.label, attempt)
                    return

    async def _pause(self, error: GatewayError) -> None:
        wait = error.retry_after if error.retry_after is not None else self._rng.uniform(0, BACKOFF)
        if wait > MAX_WAIT:
            raise error
        await asyncio.sleep(wait)


def _may_go_on(error: GatewayError, survived: dict[type[GatewayError], int], fresh: bool) -> bool:
    """May the call survive this error? ``fresh``: the next target has not been asked yet."""
    kind, rule = next((row for row in RULES if isinstance(error, row[0])), (None, None))
    if kind is None or rule is None or not error.retryable:
        return False
    survived[kind] = survived.get(kind, 0) + 1
    return survived[kind] <= rule.most and (fresh or rule.same_target)


class Labelled:
    """Events whose ``Begun`` says who answered and how many had to be asked."""

    __slots__ = ("_attempts", "_events", "_label")

    def __init__(self, events: AsyncIterator[Event], label: str, attempts: int) -> None:
        self._events = events
        self._label = label
        self._attempts = attempts

    def __aiter__(self) -> Labelled:
        return self

    async def __anext__(self) -> Event:
        event = await self._events.__anext__()
        if isinstance(event, Begun):
            return replace(event, target=self._label, attempts=self._attempts)
        return event
