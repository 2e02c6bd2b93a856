"""When calls avoid a target that fails, and when they use it again."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

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
        self.last: list[str] = []
        self.breaker = CircuitBreaker(
            policy,
            "m/0",
            self.observe,
            clock=lambda: self.now,
            uniform=random.Random(1).uniform,
        )

    def observe(self, target: str, is_avoided: bool, last: Sequence[str]) -> None:
        """Keep each change of the state, and the outcomes of the last attempts."""
        self.last = list(last)
        if is_avoided != (self.seen[-1] if self.seen else False):
            self.seen.append(is_avoided)

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


def test_the_outcomes_of_the_last_ten_attempts_are_kept() -> None:
    target = Target()
    for error in (None, FAILURE, UpstreamRateLimited("later"), UpstreamRejectedRequest("400"), GatewayError("a bug")):
        target.call(error)
    target.call(asyncio.CancelledError())  # the client has left: nothing is known about the target
    assert target.last == ["ok", "failed", "failed", "refused", "failed"]
    for _ in range(9):
        target.call()
    assert target.last == ["failed", *["ok"] * 9]
    target.call()
    assert target.last == ["ok"] * 10


def test_a_probe_among_successes_closes_the_breaker_and_is_reported() -> None:
    target = Target()
    late = [target.breaker.begin() for _ in range(10)]
    target.open()
    for probe in late:
        target.breaker.end(None, probe=probe)
    assert target.last == ["ok"] * 10
    target.now += LONGEST
    for _ in range(POLICY.successes):
        target.call()
    assert target.seen == [True, False]


@pytest.fixture
def seen() -> dict[tuple[str, str], tuple[bool, list[str]]]:
    """Model and target → whether calls avoid it, and the outcomes of its last attempts, as ``breakers`` reported."""
    return {}


@pytest.fixture
def breakers(seen: dict[tuple[str, str], tuple[bool, list[str]]]) -> CircuitBreakers:
    def observe(model: str, target: str, is_avoided: bool, last: Sequence[str]) -> None:
        seen[model, target] = is_avoided, list(last)

    return CircuitBreakers(observe)


def key(address: str = "a") -> BreakerKey:
    return BreakerKey(model="m", label="m/0", place=f"completions http://{address}/v1 m", policy=POLICY)


def fail(breaker: CircuitBreaker) -> None:
    for _ in range(POLICY.failures):
        breaker.end(FAILURE, probe=breaker.begin())


NEW: tuple[bool, list[str]] = (False, [])
OPEN = (True, ["failed"] * 3)


def test_a_breaker_survives_a_reload_and_is_forgotten_with_its_last_configuration(
    breakers: CircuitBreakers, seen: dict[tuple[str, str], tuple[bool, list[str]]]
) -> None:
    breaker = breakers.get(key())
    assert seen == {("m", "m/0"): NEW}
    fail(breaker)
    assert breakers.get(key()) is breaker
    assert seen["m", "m/0"] == OPEN
    del breaker
    assert seen["m", "m/0"] == NEW
    assert breakers.get(key()).state == "closed"


def test_a_target_with_a_new_address_is_reported_anew_when_the_old_configuration_is_gone(
    breakers: CircuitBreakers, seen: dict[tuple[str, str], tuple[bool, list[str]]]
) -> None:
    old = breakers.get(key("old"))
    fail(old)
    new = breakers.get(key("new"))
    assert seen["m", "m/0"] == OPEN, "the reload may still be refused"
    del new
    assert seen["m", "m/0"] == OPEN
    new = breakers.get(key("new"))
    del old
    assert seen["m", "m/0"] == NEW
    fail(new)
    assert seen["m", "m/0"] == OPEN


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
