"""Circuit breaker: calls avoid a target that fails again and again (``docs/spec/reliability.md`` 4.4).

closed     calls use the target
open       calls use other targets for a while
half_open  one call at a time tries the target; enough successes close the breaker, and a failure opens it again

A breaker only changes the order in which a call tries the targets. If the breakers of all targets of a model are open,
calls still use the targets, because an attempt is better than a certain error (Envoy calls this panic mode).
"""

from __future__ import annotations

import logging
import random
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal
from weakref import WeakValueDictionary, finalize

from gateway.config.snapshot import BreakerPolicy
from gateway.core.errors import (
    DeadlineExceeded,
    GatewayError,
    RequestError,
    UpstreamError,
    UpstreamIgnoredParameter,
    UpstreamRateLimited,
    UpstreamTooLarge,
)
from metatemplate.values.words import counted

LOG = logging.getLogger("gateway.deliver")

NOT_COUNTED = (UpstreamRateLimited, UpstreamTooLarge, UpstreamIgnoredParameter, DeadlineExceeded)
"""Upstream errors that do not count as failures of the target. A rate limit causes a separate pause."""
LAST = 10
"""The number of attempts at a target whose outcomes are shown."""
ALL_OK = ("ok",) * LAST
RECENT = 4
"""The breaker also opens if half of the last ``RECENT * failures`` calls failed."""
JITTER = 0.2
"""The share by which the open time varies at random, so that several gateways do not probe at the same moment."""
COOL_DOWN = 1.0
"""Seconds for which a rate-limited target is avoided if it sends no ``retry-after``."""
MAX_COOL_DOWN = 60.0
"""The longest time in seconds for which a rate-limited target is avoided."""

State = Literal["closed", "open", "half_open"]


class CircuitBreaker:
    """The circuit breaker of one target. The outcomes of the target's calls change its state."""

    def __init__(
        self,
        policy: BreakerPolicy,
        target: str = "",
        observe: Callable[[str, bool, Sequence[str]], None] = lambda target, is_open, last: None,
        *,
        clock: Callable[[], float] = time.monotonic,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        """``observe``: called with the target's label, whether calls avoid the target, and the outcomes of its last
        attempts, if one of them may have changed.
        """
        self.policy = policy
        self.target = target
        self.in_flight = 0
        """The number of calls that are running at the target."""
        self.reachable = True
        """False if the last health check failed."""
        self._observe = observe
        self._clock = clock
        self._uniform = uniform
        self._is_open = False
        """True if the breaker is open or half open."""
        self._recent: deque[tuple[float, bool]] = deque(maxlen=RECENT * policy.failures)
        """Pairs (clock time of the end, True for a success) of the latest calls. Emptied when the breaker opens."""
        self._last: tuple[str, ...] = ()
        """The outcomes of the last ``LAST`` attempts: ok, failed, or refused for a request that cannot be served."""
        self._failed_in_row = 0
        self._successes = 0
        self._probing = False
        self._until = 0.0
        """The clock time at which an open breaker becomes half open."""
        self._cool_until = 0.0
        """The clock time until which calls avoid the target, because it refused a call with a rate limit."""

    @property
    def state(self) -> State:
        """The current state. An open breaker becomes half open at the time ``_until``."""
        if not self._is_open:
            return "closed"
        return "half_open" if self._clock() >= self._until else "open"

    @property
    def is_available(self) -> bool:
        """Whether a call should use this target. If False, the call should try other targets first."""
        if not self._is_open:
            return self.reachable and (not self._cool_until or self._clock() >= self._cool_until)
        return self.reachable and self.state == "half_open" and not self._probing

    def set_reachable(self, reachable: bool) -> None:
        """Set the result of a health check."""
        self.reachable = reachable
        self.report()

    def begin(self) -> bool:
        """Count a call that begins. Returns whether the call probes a half-open breaker."""
        self.in_flight += 1
        if not self._is_open or self.state != "half_open" or self._probing:
            return False
        self._probing = True
        return True

    def probe_answered(self) -> None:
        """Allow the next call to probe. Call when the answer to a probe has begun, because its end may take long."""
        self._probing = False

    def end(self, error: BaseException | None, *, probe: bool) -> None:
        """Count a call that has ended. ``error``: the error that ended the call; None if the answer is complete.

        An error that the target did not cause does not change the state, nor does a client that leaves.
        """
        self.in_flight -= 1
        if probe:
            self._probing = False
        if error is None:
            self._failed_in_row = 0
            if not self._is_open:
                self._recent.append((self._clock(), True))
            elif probe:
                self._successes += 1
                if self._successes >= self.policy.successes:
                    self._is_open = False
                    LOG.info("target %s is in use again after %d successful calls", self.target, self._successes)
        elif isinstance(error, UpstreamRateLimited):
            pause = error.retry_after if error.retry_after is not None else COOL_DOWN
            self._cool_until = self._clock() + min(pause, MAX_COOL_DOWN)
        elif isinstance(error, UpstreamError) and not isinstance(error, NOT_COUNTED):
            self._failed(error, probe)
        if isinstance(error, GatewayError) or (error is None and (probe or self._last != ALL_OK)):
            outcome = "ok" if error is None else "refused" if isinstance(error, RequestError) else "failed"
            self._last = (*self._last, outcome)[-LAST:]
            self.report()

    def _failed(self, error: UpstreamError, probe: bool) -> None:
        now = self._clock()
        self._failed_in_row += 1
        if probe:
            self._open(now, f"a probe of the target failed with {error.code}")
        elif not self._is_open:
            self._recent.append((now, False))
            if self._has_failed_often(now):
                often = f"{counted(self._failed_in_row, 'call')} in a row"
                if self._failed_in_row < self.policy.failures:
                    often = f"half of the last {len(self._recent)} calls"
                self._open(now, f"{often} failed, the last call with {error.code}")

    def _has_failed_often(self, now: float) -> bool:
        policy, recent = self.policy, self._recent
        begin = now - policy.window
        if self._failed_in_row >= policy.failures:
            return recent[-policy.failures][0] >= begin
        failed = sum(not ok for _, ok in recent)
        return len(recent) == recent.maxlen and 2 * failed >= len(recent) and recent[0][0] >= begin

    def _open(self, now: float, reason: str) -> None:
        seconds = self.policy.open * self._uniform(1 - JITTER, 1 + JITTER)
        self._is_open, self._until = True, now + seconds
        self._failed_in_row = self._successes = 0
        self._recent.clear()
        LOG.warning("target %s is avoided for %.1f s, because %s", self.target, seconds, reason)

    def report(self) -> None:
        """Call ``observe`` with the current state."""
        self._observe(self.target, self._is_open or not self.reachable, self._last)


@dataclass(frozen=True, slots=True)
class BreakerKey:
    """Identifies the breaker of a target across reloads."""

    model: str
    label: str
    place: str
    """The kind of the target, its address, folder or script, and the name of its model."""
    policy: BreakerPolicy
    health_check: str = ""
    """The path of the target's health check. Empty if the target has no health check."""


class CircuitBreakers:
    """The breakers of a process. A breaker keeps its state across reloads while a configuration uses it."""

    def __init__(self, observe: Callable[[str, str, bool, Sequence[str]], None]) -> None:
        """``observe``: called with the model, and with what a breaker reports."""
        self._observe = observe
        self._breakers: WeakValueDictionary[BreakerKey, CircuitBreaker] = WeakValueDictionary()

    def get(self, key: BreakerKey) -> CircuitBreaker:
        """Return the breaker of a target. A new breaker is closed."""
        breaker = self._breakers.get(key)
        if breaker is None:
            breaker = self._breakers[key] = CircuitBreaker(key.policy, key.label, partial(self._observe, key.model))
            finalize(breaker, self._report, key.model, key.label)
            self._report(key.model, key.label)
        return breaker

    def _report(self, model: str, label: str) -> None:
        """Report the state of a target: that of its oldest breaker, because during a reload it may have two."""
        for key, breaker in self._breakers.items():
            if (key.model, key.label) == (model, label):
                breaker.report()
                return
        self._observe(model, label, False, ())
