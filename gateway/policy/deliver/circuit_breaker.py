"""Circuit breaker: calls avoid a target that keeps failing (``docs/spec/reliability.md`` 4.4).

closed     calls use the target
open       calls use other targets for a while
half_open  one call at a time tries the target; enough successes close the breaker, and a failure opens it again

A breaker only changes the order in which a call tries the targets. If all targets of a model are open, calls use them
all the same, because an attempt is better than a certain error (Envoy calls this panic mode).
"""

from __future__ import annotations

import logging
import random
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal
from weakref import WeakValueDictionary, finalize

from gateway.config.snapshot import BreakerPolicy
from gateway.core.errors import (
    DeadlineExceeded,
    UpstreamError,
    UpstreamIgnoredParameter,
    UpstreamRateLimited,
    UpstreamTooLarge,
)

LOG = logging.getLogger("gateway.deliver")

NOT_COUNTED = (UpstreamRateLimited, UpstreamTooLarge, UpstreamIgnoredParameter, DeadlineExceeded)
"""Upstream errors that say nothing about the target's health. A rate limit has its own pause."""
RECENT = 4
"""The breaker also opens if half of the last ``RECENT * failures`` calls failed."""
JITTER = 0.2
"""The time for which a breaker is open varies by this share, so that several gateways do not probe together."""
COOL_DOWN = 1.0
"""Seconds for which a rate-limited target is avoided if it sends no ``retry-after``."""
MAX_COOL_DOWN = 60.0
"""The longest time in seconds for which a rate-limited target is avoided."""

State = Literal["closed", "open", "half_open"]


class CircuitBreaker:
    """Circuit breaker of one target, updated by the outcome of its calls."""

    def __init__(
        self,
        policy: BreakerPolicy,
        target: str = "",
        observe: Callable[[str, bool], None] = lambda target, is_open: None,
        *,
        clock: Callable[[], float] = time.monotonic,
        rng: random.Random | None = None,
    ) -> None:
        """``observe`` is called with the target's label, and True when calls begin to avoid the target, else False."""
        self.policy = policy
        self.target = target
        self.in_flight = 0
        """The number of calls that are running at the target."""
        self.reachable = True
        """False: the last health check has failed."""
        self._observe = observe
        self._clock = clock
        self._rng = rng or random.Random()
        self._is_open = False
        """True: the breaker is open or half open."""
        self._recent: deque[tuple[float, bool]] = deque(maxlen=RECENT * policy.failures)
        """(end, True for a success) of the latest calls; empty after a change of the state."""
        self._failed_in_row = 0
        self._successes = 0
        self._probing = False
        self._until = 0.0
        """Clock time at which an open breaker becomes half open."""
        self._cool_until = 0.0
        """Clock time until which the target is avoided because it limits the rate of requests."""

    @property
    def state(self) -> State:
        """The state now. An open breaker is half open from the time ``_until`` on."""
        if not self._is_open:
            return "closed"
        return "half_open" if self._clock() >= self._until else "open"

    @property
    def is_available(self) -> bool:
        """True: a call should use this target. False: the call should try other targets first."""
        if not self._is_open:
            return self.reachable and (not self._cool_until or self._clock() >= self._cool_until)
        return self.reachable and self.state == "half_open" and not self._probing

    def set_reachable(self, reachable: bool) -> None:
        """Set the result of a health check."""
        self.reachable = reachable
        self._report()

    def begin(self) -> bool:
        """Count a call that begins. Returns True if the call probes a half-open breaker."""
        self.in_flight += 1
        if not self._is_open or self.state != "half_open" or self._probing:
            return False
        self._probing = True
        return True

    def probe_answered(self) -> None:
        """The answer of a probe has begun. The next call may probe, because an answer can take long."""
        self._probing = False

    def end(self, error: BaseException | None, *, probe: bool) -> None:
        """Count a call that has ended. ``error``: what ended the call early; None: the answer was complete.

        Errors that are not the target's fault, and clients that leave, change nothing.
        """
        self.in_flight -= 1
        if probe:
            self._probing = False
        if error is None:
            self._failed_in_row = 0
            if not self._is_open:
                self._recent.append((self._clock(), True))
            elif probe:
                self._probe_succeeded()
        elif isinstance(error, UpstreamRateLimited):
            pause = error.retry_after if error.retry_after is not None else COOL_DOWN
            self._cool_until = self._clock() + min(pause, MAX_COOL_DOWN)
        elif isinstance(error, UpstreamError) and not isinstance(error, NOT_COUNTED):
            self._failed(error, probe)

    def _probe_succeeded(self) -> None:
        self._successes += 1
        if self._successes >= self.policy.successes:
            self._is_open = False
            LOG.info("target %s is in use again after %d successful calls", self.target, self._successes)
            self._report()

    def _failed(self, error: UpstreamError, probe: bool) -> None:
        now = self._clock()
        self._failed_in_row += 1
        if probe:
            self._open(now, f"its probe failed with {error.code}")
        elif not self._is_open:
            self._recent.append((now, False))
            if self._has_failed_often(now):
                often = f"{self._failed_in_row} calls in a row"
                if self._failed_in_row < self.policy.failures:
                    often = f"half of the last {len(self._recent)} calls"
                self._open(now, f"{often} failed, the last with {error.code}")

    def _has_failed_often(self, now: float) -> bool:
        policy, recent = self.policy, self._recent
        begin = now - policy.window
        if self._failed_in_row >= policy.failures:
            return recent[-policy.failures][0] >= begin
        failed = sum(not ok for _, ok in recent)
        return len(recent) == recent.maxlen and 2 * failed >= len(recent) and recent[0][0] >= begin

    def _open(self, now: float, reason: str) -> None:
        seconds = self.policy.open * self._rng.uniform(1 - JITTER, 1 + JITTER)
        self._is_open, self._until = True, now + seconds
        self._failed_in_row = self._successes = 0
        self._recent.clear()
        LOG.warning("target %s is avoided for %.1f s: %s", self.target, seconds, reason)
        self._report()

    def _report(self) -> None:
        self._observe(self.target, self._is_open or not self.reachable)


@dataclass(frozen=True, slots=True)
class BreakerKey:
    """Identifies a target across reloads."""

    model: str
    label: str
    place: str
    """The address, folder or script of the target, and its model there."""
    policy: BreakerPolicy
    health_check: str = ""
    """The path of the target's health check; empty: it has none."""


class CircuitBreakers:
    """The breakers of a process. A breaker keeps its state across reloads while a configuration uses it."""

    def __init__(self, observe: Callable[[str, str, bool], None]) -> None:
        """``observe`` is called with the model, the target's label, and whether the breaker is open."""
        self._observe = observe
        self._breakers: WeakValueDictionary[BreakerKey, CircuitBreaker] = WeakValueDictionary()

    def get(self, key: BreakerKey) -> CircuitBreaker:
        """The breaker of a target. A new breaker is closed."""
        breaker = self._breakers.get(key)
        if breaker is None:
            breaker = CircuitBreaker(key.policy, key.label, partial(self._observe, key.model))
            if not self._has(key):
                self._observe(key.model, key.label, False)
            self._breakers[key] = breaker
            finalize(breaker, self._removed, key)
        return breaker

    def _removed(self, key: BreakerKey) -> None:
        """No configuration uses a breaker any more. The target's metric is reset unless it has a newer breaker."""
        if not self._has(key):
            self._observe(key.model, key.label, False)

    def _has(self, key: BreakerKey) -> bool:
        """Whether the target has a breaker, of any configuration."""
        return any((other.model, other.label) == (key.model, key.label) for other in self._breakers)
