"""Retry policy: decides which failed attempts are repeated, how often, and after which pause.

The rules come from ``docs/spec/reliability.md`` 4.1. Only attempts that fail before the first token are repeated.
"""

from __future__ import annotations

import random
from collections.abc import Callable
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
    """The rule for one kind of failure: the maximum number of retries, and the choice of the target."""

    limit: int
    """Maximum number of retries in one call after failures of this kind."""
    same_target: bool
    """True if the first target may be tried again after all targets have been tried."""


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
"""The maximum random pause in seconds before the same target is tried again."""
MAX_WAIT = 2.0
"""The maximum pause in seconds. If ``retry-after`` is longer, the call fails, and the client receives the value."""


def retry_rule(error: type[GatewayError]) -> tuple[type[GatewayError], RetryRule] | None:
    """Return the row of ``RULES`` for a class of errors, or None if such a failure is never retried."""
    return next((row for row in RULES if issubclass(error, row[0])), None) if error.retryable else None


class RetryPolicy:
    """The maximum number of attempts per call, and the pause between attempts at the same target."""

    def __init__(self, attempts: int, uniform: Callable[[float, float], float] = random.uniform) -> None:
        self.attempts = attempts
        """The maximum number of attempts per call, at least 1. The retry after a stale connection is not counted."""
        self._uniform = uniform

    def backoff(self, error: GatewayError) -> float:
        """Return the seconds to wait before the same target is tried again."""
        return error.retry_after if error.retry_after is not None else self._uniform(0, BACKOFF)


class RetryState:
    """The failures of one exchange so far."""

    def __init__(self, policy: RetryPolicy, attempts: int, targets: int) -> None:
        """``attempts``: the maximum number of attempts."""
        self._policy = policy
        self._attempts = attempts
        self._targets = targets
        self._failures: dict[type[GatewayError], int] = {}
        self._stale = False
        self.repeats_stale = False
        """True: the next attempt repeats a request on a stale connection."""
        self.position = 0
        """The number of the next attempt, from 0. The retry after a stale connection does not change the number."""

    def pause_after(self, error: GatewayError) -> float | None:
        """Return the seconds to wait before the next attempt, or None if no further attempt is allowed.

        If the server closed a reused connection (``UpstreamDisconnected.stale``), the request is sent once more to the
        same target, without a pause.
        """
        self.repeats_stale = isinstance(error, UpstreamDisconnected) and error.stale and not self._stale
        if self.repeats_stale:
            self._stale = True
            return 0.0
        self.position += 1
        untried = self.position < self._targets
        if self.position == self._attempts or not self._allows(error, untried):
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
