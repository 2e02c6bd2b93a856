"""When calls avoid a target that fails, and when they use it again."""

from __future__ import annotations

import asyncio
import random

import pytest

from gateway.config.snapshot import BreakerPolicy
from gateway.core.errors import (
    DeadlineExceeded,
    GatewayError,
    InvalidValue,
    UpstreamDisconnected,
    UpstreamError,
    UpstreamRateLimited,
    UpstreamRejectedRequest,
)
from gateway.policy.deliver.targets.circuit_breaker import BreakerKey, CircuitBreaker, CircuitBreakers

POLICY = BreakerPolicy(failures=3, successes=2, open=10.0, window=60.0)
FAILURE = UpstreamError("failed")
LONGEST = POLICY.open * 1.2
"""The longest time for which the breaker may be open."""


class Target:
    """A breaker with a clock that the test moves."""

    def __init__(self, policy: BreakerPolicy = POLICY) -> None:
        self.now = 100.0
        self.seen: list[bool] = []
        self.breaker = CircuitBreaker(
            policy,
            "m/0",
            lambda _, is_open: self.seen.append(is_open),
            clock=lambda: self.now,
            uniform=random.Random(1).uniform,
        )

    def call(self, error: BaseException | None = None) -> None:
        """One call from its beginning to its end."""
        self.breaker.end(error, probe=self.breaker.begin())

    def open(self) -> None:
        for _ in range(POLICY.failures):
            self.call(FAILURE)


def test_failures_in_a_row_open_the_breaker() -> None:
    target = Target()
    target.call(FAILURE)
    target.call(FAILURE)
    assert (target.breaker.state, target.breaker.is_available) == ("closed", True)
    target.call(FAILURE)
    assert (target.breaker.state, target.breaker.is_available, target.seen) == ("open", False, [True])


def test_a_success_ends_the_row() -> None:
    target = Target()
    for error in (FAILURE, FAILURE, None, FAILURE, FAILURE):
        target.call(error)
    assert target.breaker.state == "closed"


def test_old_failures_are_not_counted() -> None:
    target = Target()
    for _ in range(4):
        target.call(FAILURE)
        target.now += POLICY.window
    assert target.breaker.state == "closed"


def test_half_of_the_latest_calls_open_the_breaker() -> None:
    target = Target()
    for _ in range(5):
        target.call(FAILURE)
        target.call()
    assert target.breaker.is_available
    target.call()
    target.call(FAILURE)
    assert target.breaker.state == "open"


@pytest.mark.parametrize(
    "error",
    [
        UpstreamRejectedRequest("400"),
        InvalidValue("wrong"),
        DeadlineExceeded("long"),
        asyncio.CancelledError(),
        GatewayError("a bug"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_is_not_the_targets_fault_is_not_counted(error: BaseException) -> None:
    target = Target()
    for _ in range(30):
        target.call(error)
    assert (target.breaker.state, target.breaker.in_flight) == ("closed", 0)


def test_an_open_breaker_lets_one_probe_through_after_its_time() -> None:
    target = Target()
    target.open()
    target.now += POLICY.open * 0.79
    assert not target.breaker.is_available
    target.now += LONGEST
    assert (target.breaker.state, target.breaker.is_available) == ("half_open", True)
    assert target.breaker.begin() is True
    assert not target.breaker.is_available, "a second call waits for the end of the probe"
    assert target.breaker.begin() is False, "a second call all the same is no probe"
    target.breaker.end(None, probe=False)
    assert target.breaker.state == "half_open"
    target.breaker.end(None, probe=True)
    assert target.breaker.is_available
    target.call()
    assert (target.breaker.state, target.seen) == ("closed", [True, False])


def test_a_failed_probe_opens_the_breaker_again() -> None:
    target = Target()
    target.open()
    target.now += LONGEST
    target.call(UpstreamDisconnected("closed"))
    assert (target.breaker.state, target.breaker.is_available) == ("open", False)


def test_a_probe_whose_client_leaves_lets_the_next_call_probe() -> None:
    target = Target()
    target.open()
    target.now += LONGEST
    target.call(asyncio.CancelledError())
    assert (target.breaker.state, target.breaker.is_available) == ("half_open", True)


@pytest.mark.parametrize(
    ("retry_after", "seconds"), [(5.0, 5.0), (None, 1.0), (3600.0, 60.0)], ids=["as asked", "unknown", "at most 60 s"]
)
def test_a_rate_limited_target_is_avoided_until_it_may_be_asked_again(
    retry_after: float | None, seconds: float
) -> None:
    target = Target()
    target.call(UpstreamRateLimited("slow down", retry_after=retry_after))
    target.now += seconds - 0.1
    assert (target.breaker.state, target.breaker.is_available) == ("closed", False)
    target.now += 0.2
    assert target.breaker.is_available


def test_a_failed_health_check_makes_a_target_unavailable() -> None:
    target = Target()
    target.breaker.set_reachable(False)
    assert not target.breaker.is_available
    target.breaker.set_reachable(True)
    assert (target.breaker.is_available, target.seen) == (True, [True, False])


def test_a_breaker_survives_a_reload_and_is_forgotten_with_its_last_configuration() -> None:
    seen: list[tuple[str, str, bool]] = []
    breakers = CircuitBreakers(lambda *event: seen.append(event))
    key = BreakerKey(model="m", label="m/0", place="completions http://a/v1 m", policy=POLICY)
    breaker = breakers.get(key)
    for _ in range(POLICY.failures):
        breaker.end(FAILURE, probe=breaker.begin())
    assert breakers.get(key) is breaker
    assert seen == [("m", "m/0", False), ("m", "m/0", True)]
    del breaker
    assert seen[-1] == ("m", "m/0", False)
    assert breakers.get(key).state == "closed"


def test_the_metric_of_a_target_with_two_configurations_is_reset_with_the_last_one() -> None:
    seen: list[tuple[str, str, bool]] = []
    breakers = CircuitBreakers(lambda *event: seen.append(event))
    old = breakers.get(BreakerKey(model="m", label="m/0", place="completions http://a/v1 m", policy=POLICY))
    new = breakers.get(BreakerKey(model="m", label="m/0", place="completions http://b/v1 m", policy=POLICY))
    assert seen == [("m", "m/0", False)]
    del old
    assert len(seen) == 1
    del new
    assert seen == [("m", "m/0", False)] * 2


def test_a_probe_with_a_long_answer_does_not_hold_up_the_next_probe() -> None:
    target = Target()
    target.open()
    target.now += LONGEST
    assert target.breaker.begin() is True
    target.breaker.probe_answered()
    assert target.breaker.is_available
    target.call()
    target.breaker.end(None, probe=True)
    assert target.breaker.state == "closed"
