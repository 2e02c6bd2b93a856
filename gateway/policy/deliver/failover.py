"""Who is asked next when a target fails? Another replica, or the same one once more.

The one retry loop of the gateway; it ends where the answer begins (``policy/deliver/begin.py``).
What may be tried again, and where, is a table (``specs/reliability.md`` 4.1).

One repeat comes on top of the attempts that are configured: of a request that met a connection which its server had
closed already (``UpstreamDisconnected.stale``). It is counted as all others are.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any

from gateway.core.errors import (
    GatewayError,
    UpstreamConnectTimeout,
    UpstreamDisconnected,
    UpstreamDnsError,
    UpstreamError,
    UpstreamOverloaded,
    UpstreamRateLimited,
    UpstreamTimeout,
    UpstreamUnreachable,
    drop_tracebacks,
)
from gateway.core.events import Begun
from gateway.core.exchange import Events, Exchange
from gateway.policy.deliver.deadline import AttemptCancelled
from gateway.policy.deliver.first_token_gate import FirstTokenGate, GatedStream


@dataclass(frozen=True, slots=True)
class RetryRule:
    """How a failure may be answered."""

    most: int
    """Failures of this kind that one call may survive."""
    same_target: bool
    """May a target be asked again once there is no other left?"""


RULES: tuple[tuple[type[GatewayError], RetryRule], ...] = (
    # the first row that fits; the more special classes first
    (UpstreamUnreachable, RetryRule(most=9, same_target=False)),
    (UpstreamDnsError, RetryRule(most=9, same_target=False)),
    (UpstreamConnectTimeout, RetryRule(most=9, same_target=False)),
    (UpstreamRateLimited, RetryRule(most=9, same_target=False)),
    (UpstreamTimeout, RetryRule(most=1, same_target=False)),
    (UpstreamOverloaded, RetryRule(most=1, same_target=True)),
    (UpstreamError, RetryRule(most=1, same_target=True)),
)

BACKOFF = 0.25
"""Seconds, the upper end of the jittered pause before the *same* target is asked again."""

MAX_WAIT = 2.0
"""Seconds; a ``retry-after`` beyond it goes to the client instead of being slept through."""


@dataclass(frozen=True, slots=True)
class Replica:
    """One target behind its gate."""

    label: str
    backend: FirstTokenGate


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
        self.replicas = replicas
        self.attempts = attempts
        """How many a call may make, beside the repeat for a stale connection; at least one."""
        self.observe = observe
        self._rng = rng or random.Random()
        self._next = 0

    def open(self, exchange: Exchange) -> AbstractAsyncContextManager[Events]:
        """Opens the first replica that begins to answer; raises the last failure otherwise."""
        start = self._next
        self._next = (start + 1) % len(self.replicas)
        return _Trying(self, exchange, start)

    async def pause(self, error: GatewayError) -> None:
        """Before the same target is asked again."""
        wait = error.retry_after if error.retry_after is not None else self._rng.uniform(0, BACKOFF)
        if wait > MAX_WAIT:
            raise error
        await asyncio.sleep(wait)


class _Trying:
    """One exchange, entered when some replica answers."""

    __slots__ = ("_exchange", "_failover", "_opened", "_start")

    def __init__(self, failover: Failover, exchange: Exchange, start: int) -> None:
        self._failover = failover
        self._exchange = exchange
        self._start = start

    async def __aenter__(self) -> Events:
        failover, replicas = self._failover, self._failover.replicas
        survived: dict[type[GatewayError], int] = {}
        attempt = repeats = 0
        while True:
            replica = replicas[(self._start + attempt - repeats) % len(replicas)]
            attempt += 1
            try:
                opened = replica.backend.open(self._exchange)
                events = await opened.__aenter__()
            except GatewayError as error:
                failover.observe(replica.label, error.code)
                error.attempts, error.target = attempt, replica.label
                if not repeats and isinstance(error, UpstreamDisconnected) and error.stale:
                    repeats = 1
                    drop_tracebacks(error)
                    continue
                made = attempt - repeats
                fresh = made < len(replicas)
                if made == failover.attempts or not _may_go_on(error, survived, fresh):
                    raise
                drop_tracebacks(error)
                if not fresh:
                    await failover.pause(error)
            except asyncio.CancelledError:
                raise AttemptCancelled(replica.label, attempt) from None
            else:
                failover.observe(replica.label, "ok")
                self._opened = opened
                first = events.held[0]
                if type(first) is not Begun or first.attempts != attempt or first.target != replica.label:
                    _label(events, replica.label, attempt)
                return events

    def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Coroutine[Any, Any, bool | None]:
        return self._opened.__aexit__(kind, error, trace)


def _may_go_on(error: GatewayError, survived: dict[type[GatewayError], int], fresh: bool) -> bool:
    """May the call survive this error? ``fresh``: the next target has not been asked yet."""
    kind, rule = next((row for row in RULES if isinstance(error, row[0])), (None, None))
    if kind is None or rule is None or not error.retryable:
        return False
    survived[kind] = survived.get(kind, 0) + 1
    return survived[kind] <= rule.most and (fresh or rule.same_target)


def _label(events: GatedStream, label: str, attempts: int) -> None:
    """Let the ``Begun`` among those the gate holds say who answered and how many had to be asked."""
    events.held = [
        replace(event, target=label, attempts=attempts) if isinstance(event, Begun) else event for event in events.held
    ]
