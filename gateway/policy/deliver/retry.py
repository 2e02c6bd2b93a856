"""Retry policy: which failed attempts are repeated, how often, and after which pause.

The rules come from ``docs/spec/reliability.md`` 4.1. Only attempts that fail before the first token are repeated.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from gateway.core.errors import (
    GatewayError,
    UpstreamConnectTimeout,
    UpstreamDisconnected,
    UpstreamDnsError,
    UpstreamError,
    UpstreamIdleTimeout,
    UpstreamOverloaded,
    UpstreamRateLimited,
    UpstreamTimeout,
    UpstreamUnreachable,
)


@dataclass(frozen=True, slots=True)
class RetryRule:
    """What happens after one kind of failure: the limit of retries, and the choice of the target."""

    limit: int
    """Maximum number of retries in one call after failures of this kind."""
    same_target: bool
    """True: once every target has been tried, the first one is tried again."""


RULES: tuple[tuple[type[GatewayError], RetryRule], ...] = (
    # the first matching row applies, so a subclass is listed before its base class
    (UpstreamUnreachable, RetryRule(limit=9, same_target=False)),
    (UpstreamDnsError, RetryRule(limit=9, same_target=False)),
    (UpstreamConnectTimeout, RetryRule(limit=9, same_target=False)),
    (UpstreamRateLimited, RetryRule(limit=9, same_target=False)),
    (UpstreamIdleTimeout, RetryRule(limit=0, same_target=False)),  # occurs only after the first content
    (UpstreamTimeout, RetryRule(limit=1, same_target=False)),
    (UpstreamOverloaded, RetryRule(limit=1, same_target=True)),
    (UpstreamError, RetryRule(limit=1, same_target=True)),
)

BACKOFF = 0.25
"""Maximum seconds of the random pause before the same target is tried again."""
MAX_WAIT = 2.0
"""Maximum seconds to wait. A longer ``retry-after`` is passed to the client, and the call fails."""


def retry_rule(error: type[GatewayError]) -> tuple[type[GatewayError], RetryRule] | None:
    """The row of ``RULES`` for a class of errors; None: such a failure is final."""
    return next((row for row in RULES if issubclass(error, row[0])), None) if error.retryable else None


class RetryPolicy:
    """The limit of attempts per call, and the pause between attempts at the same target."""

    def __init__(self, attempts: int, rng: random.Random | None = None) -> None:
        self.attempts = attempts
        """Maximum attempts per call, at least 1. The retry after a stale connection is not counted."""
        self._rng = rng or random.Random()

    def backoff(self, error: GatewayError) -> float:
        """Seconds to wait before the same target is tried again."""
        return error.retry_after if error.retry_after is not None else self._rng.uniform(0, BACKOFF)


class RetryState:
    """Failures of one call so far."""

    def __init__(self, policy: RetryPolicy, targets: int) -> None:
        self._policy = policy
        self._targets = targets
        self._failures: dict[type[GatewayError], int] = {}
        self._stale = False
        self.position = 0
        """Number of the next attempt, from 0. The retry after a stale connection keeps the number."""

    def pause_after(self, error: GatewayError) -> float | None:
        """Seconds to wait before the next attempt; None: the failure is final.

        If the server had closed a reused connection (``UpstreamDisconnected.stale``), the request is repeated once,
        without a pause, at the same target.
        """
        if isinstance(error, UpstreamDisconnected) and error.stale and not self._stale:
            self._stale = True
            return 0.0
        self.position += 1
        untried = self.position < self._targets
        if self.position == self._policy.attempts or not self._allows(error, untried):
            return None
        pause = 0.0 if untried else self._policy.backoff(error)
        return pause if pause <= MAX_WAIT else None

    def _allows(self, error: GatewayError, untried: bool) -> bool:
        row = retry_rule(type(error))
        if row is None or not error.retryable:
            return False
        kind, rule = row
        self._failures[kind] = self._failures.get(kind, 0) + 1
        return self._failures[kind] <= rule.limit and (untried or rule.same_target)
