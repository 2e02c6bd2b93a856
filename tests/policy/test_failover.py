"""Retried failures, the choice of the next target, and the count of attempts."""

from __future__ import annotations

import asyncio
import random
from contextlib import AbstractAsyncContextManager
from dataclasses import replace

import pytest

from gateway.backend.scripted import ERRORS, Script
from gateway.config.snapshot import BreakerPolicy
from gateway.core.errors import GatewayError, UpstreamDisconnected, UpstreamOverloaded, UpstreamRateLimited
from gateway.core.exchange import Backend, Events, Exchange
from gateway.policy.deliver.first_token_gate import FirstTokenGate
from gateway.policy.deliver.targets.failover import Failover
from gateway.policy.deliver.targets.load_balancer import RoundRobin
from gateway.policy.deliver.targets.retry import RetryPolicy
from gateway.policy.deliver.targets.retry_budget import RetryBudget
from gateway.policy.deliver.timeouts import Timeouts
from gateway.telemetry.attempts import AttemptObserver
from gateway.telemetry.metrics import Metrics
from tests.policy.responses import (
    Response,
    cancel_after,
    exchange,
    leave_after,
    read_response,
    read_response_async,
    replica,
)
from tests.support.recording_backend import RecordingBackend
from tests.support.virtual_clock import run as run_virtual

FINE: Script = ("fine", {"finish": "stop"})

OTHER = "another target only"
SAME = "the same target once, or another"
NEVER = "never"

AGAIN = {
    "upstream_unreachable": OTHER,
    "upstream_dns_error": OTHER,
    "upstream_connect_timeout": OTHER,
    "upstream_rate_limited": OTHER,
    "upstream_timeout": OTHER,
    "upstream_overloaded": SAME,
    "upstream_error": SAME,
    "upstream_disconnected": SAME,
    "upstream_invalid_response": SAME,
    "upstream_invalid_stream": SAME,
    "upstream_incomplete": SAME,
    **dict.fromkeys(
        (
            "deadline_exceeded",
            "upstream_idle_timeout",
            "upstream_response_too_large",
            "upstream_redirect",
            "upstream_auth_failed",
            "upstream_model_missing",
            "upstream_quota_exhausted",
            "upstream_ignored_parameter",
            "upstream_rejected_request",
            "context_length_exceeded",
            "content_filter",
            "invalid_value",
            "unsupported_parameter",
            "template_error",
            "overloaded",
            "internal_error",
        ),
        NEVER,
    ),
}


class Recorder(AttemptObserver):
    """Collects the target and the outcome of each attempt."""

    def __init__(self, seen: list[tuple[str, str]] | None = None) -> None:
        super().__init__("m", {}, Metrics())
        self.seen = [] if seen is None else seen

    def answered(self, exchange: Exchange, target: str) -> None:
        super().answered(exchange, target)
        self.seen.append((target, "ok"))

    def failed(self, exchange: Exchange, target: str, error: GatewayError) -> None:
        super().failed(exchange, target, error)
        self.seen.append((target, error.code))


def failover(
    *backends: Backend, attempts: int = 3, seen: list[tuple[str, str]] | None = None, wait: float = 1.0
) -> Failover:
    """Failover over replicas with first-token gates, as ``assembly`` builds it."""
    replicas = [replica(f"m/{number}", FirstTokenGate(backend, wait)) for number, backend in enumerate(backends)]
    return Failover(
        RoundRobin(replicas), RetryPolicy(attempts, random.Random(1).uniform), RetryBudget(1.0), Recorder(seen)
    )


def failing(code: str, times: int = 1) -> RecordingBackend:
    """A backend that fails ``times`` times, then answers."""
    return RecordingBackend(*[[{"error": code}]] * times, FINE)


def test_the_table_has_a_row_for_every_upstream_error() -> None:
    assert {code for code in ERRORS if code.startswith("upstream_")} <= AGAIN.keys()


@pytest.mark.parametrize("code", AGAIN)
def test_a_retryable_error_is_retried_at_another_target(code: str) -> None:
    first, second, seen = failing(code, 9), RecordingBackend(FINE), list[tuple[str, str]]()
    response = read_response(failover(first, second, seen=seen))
    if AGAIN[code] == NEVER:
        assert (response.code, len(first.exchanges), len(second.exchanges)) == (code, 1, 0)
        assert response.log == ("m/0", 1, 0)
        assert seen == [("m/0", code)]
    else:
        assert (response.code, response.texts, len(first.exchanges), len(second.exchanges)) == (None, {0: "fine"}, 1, 1)
        assert response.log == ("m/1", 2, 1)
        assert seen == [("m/0", code), ("m/1", "ok")]


@pytest.mark.parametrize("code", AGAIN)
def test_a_single_target_is_retried_at_most_once(code: str) -> None:
    mended, broken = failing(code), failing(code, 9)
    response, failed = read_response(failover(mended)), read_response(failover(broken))
    assert failed.code == code
    if AGAIN[code] == SAME:
        assert (response.texts, response.attempts, len(mended.exchanges)) == ({0: "fine"}, 2, 2)
        assert (failed.attempts, len(broken.exchanges)) == (2, 2)
    else:
        assert (response.code, len(mended.exchanges)) == (code, 1)
        assert (failed.attempts, len(broken.exchanges)) == (1, 1)


def test_a_call_does_not_retry_a_rate_limited_target() -> None:
    one, other = failing("upstream_rate_limited", 9), failing("upstream_unreachable", 9)
    response = read_response(failover(one, other))
    assert (response.code, len(one.exchanges), len(other.exchanges)) == ("upstream_unreachable", 1, 1)
    assert response.attempts == 2


def test_attempts_are_an_upper_limit_over_all_targets() -> None:
    backends = [failing("upstream_unreachable", 9) for _ in range(4)]
    response = read_response(failover(*backends, attempts=2))
    assert [len(backend.exchanges) for backend in backends] == [1, 1, 0, 0]
    assert response.attempts == 2


def test_each_kind_of_failure_has_its_own_retry_count() -> None:
    only = RecordingBackend([{"error": "upstream_overloaded"}], [{"error": "upstream_disconnected"}], FINE)
    response = read_response(failover(only))
    assert (response.texts, response.attempts) == ({0: "fine"}, 3)


class Stale:
    """A backend that fails with a stale connection a number of times, then answers."""

    def __init__(self, times: int) -> None:
        self.times = times
        self.opened = 0

    def open(self, request: Exchange) -> AbstractAsyncContextManager[Events]:
        self.opened += 1
        if self.opened > self.times:
            return RecordingBackend(FINE).open(request)
        error = UpstreamDisconnected("closed")
        error.stale = True
        raise error


@pytest.mark.parametrize(
    ("times", "attempts", "opened", "code"),
    [
        (1, 1, 2, None),
        (2, 1, 2, "upstream_disconnected"),
        (2, 2, 3, None),
        (3, 2, 3, "upstream_disconnected"),
    ],
)
def test_a_stale_connection_is_retried_at_once_and_counted(
    times: int, attempts: int, opened: int, code: str | None
) -> None:
    stale, seen = Stale(times), list[tuple[str, str]]()
    response = read_response(failover(stale, attempts=attempts, seen=seen))
    assert (response.code, stale.opened, len(seen)) == (code, opened, opened)
    assert response.attempts == opened


def test_a_call_with_fallback_models_has_its_own_limit_of_attempts() -> None:
    request, failing_request = exchange(max_attempts=1), exchange(max_attempts=1)
    assert read_response(failover(Stale(1)), request).texts == {0: "fine"}
    assert (request.attempts.count, request.attempts.stale) == (2, 1), "the repeat takes no attempt of another model"
    assert read_response(failover(failing("upstream_error"), RecordingBackend(FINE)), failing_request).attempts == 1


def test_a_repeat_that_the_retry_budget_refuses_is_not_counted_as_made() -> None:
    request, budget = exchange(), RetryBudget(0.0, clock=lambda: 1000.0)
    while budget.take():
        pass
    response = read_response(replace(failover(Stale(1)), budget=budget), request)
    assert (response.code, request.attempts.count, request.attempts.stale) == ("upstream_disconnected", 1, 0)
    assert response.error is not None
    assert response.error.retried


def test_a_stale_connection_is_retried_at_the_same_target() -> None:
    stale, other = Stale(1), RecordingBackend(FINE)
    response = read_response(failover(stale, other))
    assert response.log == ("m/0", 2, 1)


async def test_each_call_starts_at_the_next_target() -> None:
    backends = [RecordingBackend(FINE) for _ in range(3)]
    stack = failover(*backends)
    assert [(await read_response_async(stack)).log[0] for _ in range(4)] == ["m/0", "m/1", "m/2", "m/0"]


def test_nothing_is_retried_once_the_answer_has_begun() -> None:
    first, second = RecordingBackend(["Hel", {"error": "upstream_disconnected"}]), RecordingBackend(FINE)
    response = read_response(failover(first, second))
    assert (response.texts, response.code, len(second.exchanges)) == ({0: "Hel"}, "upstream_disconnected", 0)


def test_an_answer_without_content_is_retried_at_another_target_and_closed() -> None:
    slow, fine = RecordingBackend([{"pause": 9}, "late"]), RecordingBackend(FINE)
    response = read_response(failover(slow, fine, wait=0.03))
    assert (response.texts, response.log) == ({0: "fine"}, ("m/1", 2, 1))
    assert (slow.active, slow.left_early) == (0, 1)


class Refusing:
    """A backend whose error has a ``retry_after``, which a script cannot have."""

    def __init__(self, error: type[UpstreamOverloaded | UpstreamRateLimited], retry_after: float) -> None:
        self.calls = 0
        self._error, self._retry_after = error, retry_after

    def open(self, exchange: object) -> Backend:
        self.calls += 1
        raise self._error("come back later", retry_after=self._retry_after)


def refused(backend: Refusing) -> Response:
    return read_response(failover(backend))  # type: ignore[arg-type]


def test_a_single_target_is_retried_after_its_retry_after() -> None:
    backend = Refusing(UpstreamOverloaded, 0.1)
    response = refused(backend)
    assert (response.code, backend.calls) == ("upstream_overloaded", 2)
    assert response.seconds == pytest.approx(0.1)


def test_a_long_retry_after_is_returned_to_the_client() -> None:
    backend = Refusing(UpstreamOverloaded, 30.0)
    response = refused(backend)
    assert response.error is not None
    assert (response.error.retry_after, response.attempts, backend.calls) == (30.0, 1, 1)
    assert response.seconds == 0.0  # without a pause


@pytest.mark.parametrize("count", [0, 1, 2], ids=["before", "during", "after the first event"])
def test_leaving_early_releases_the_target(count: int) -> None:
    inner = RecordingBackend(["a", "b", "c", {"finish": "stop"}])
    leave_after(failover(inner), count)
    assert (inner.active, inner.left_early, len(inner.exchanges)) == (0, 1, 1)


def test_cancelling_during_a_retry_opens_no_other_target() -> None:
    first, second = failing("upstream_unreachable"), RecordingBackend([{"pause": 9}, "late"])
    third = RecordingBackend(FINE)
    cancel_after(failover(first, second, third), 0.03)
    assert (second.active, second.left_early, len(third.exchanges)) == (0, 1, 0)


@pytest.mark.parametrize("attempts", [1, 3], ids=["at the first target", "in the pause before a repeat"])
def test_a_timed_out_call_records_its_attempts_and_target(attempts: int) -> None:
    refusing = Refusing(UpstreamOverloaded, 1.0) if attempts == 3 else RecordingBackend([{"pause": 9}, "late"])
    response = read_response(Timeouts(failover(refusing, attempts=attempts, wait=5.0), 5.0, 0.05, Recorder()))  # type: ignore[arg-type]
    assert (response.code, response.log) == ("upstream_timeout", ("m/0", 1, 0))


def test_a_target_whose_whole_answers_never_arrive_is_avoided() -> None:
    backend = failover(RecordingBackend([{"pause": 9}, "late"]))
    (target,) = backend.balancer.replicas
    timed = Timeouts(backend, 5.0, 0.05, Recorder())
    for _ in range(target.breaker.policy.failures):
        assert target.breaker.state == "closed"
        assert read_response(timed, exchange(stream=False)).code == "upstream_timeout"
    assert (target.breaker.state, target.breaker.in_flight) == ("open", 0)


def test_a_target_is_not_avoided_because_earlier_turns_used_the_time() -> None:
    backend = failover(RecordingBackend([{"pause": 9}, "late"]))
    (target,) = backend.balancer.replicas

    async def turn(left: float) -> Response:
        request = exchange(stream=False, deadline=asyncio.get_running_loop().time() + left)
        return await read_response_async(Timeouts(backend, 5.0, 1.0, Recorder()), request)

    for _ in range(target.breaker.policy.failures):
        assert run_virtual(turn(0.4)).code == "deadline_exceeded"
    assert (target.breaker.state, target.breaker.in_flight) == ("closed", 0)
    for _ in range(target.breaker.policy.failures):
        assert run_virtual(turn(0.99)).code == "upstream_timeout"
    assert target.breaker.state == "open"


def test_a_target_is_not_avoided_because_a_failed_attempt_used_the_time() -> None:
    calls = BreakerPolicy().failures - 1
    scripts: list[Script] = [[{"pause": 0.6}, {"error": "upstream_error"}], [{"pause": 9}, "late"]]
    backend = failover(RecordingBackend(*scripts * calls))
    (target,) = backend.balancer.replicas
    for _ in range(calls):  # each has one failure that counts
        response = read_response(Timeouts(backend, 5.0, 1.0, Recorder()), exchange(stream=False))
        assert (response.code, response.attempts) == ("upstream_timeout", 2)
    assert (target.breaker.state, target.breaker.in_flight) == ("closed", 0)


def test_a_target_is_not_avoided_because_clients_leave() -> None:
    backend = failover(RecordingBackend([{"pause": 9}, "late"]))
    (target,) = backend.balancer.replicas
    for _ in range(target.breaker.policy.failures):
        cancel_after(Timeouts(backend, 5.0, 9.0, Recorder()), 0.03, exchange(stream=False))
    assert (target.breaker.state, target.breaker.in_flight) == ("closed", 0)


def test_a_cancelled_call_records_its_attempts_and_target() -> None:
    request = exchange()
    cancel_after(failover(failing("upstream_unreachable"), RecordingBackend([{"pause": 9}, "late"])), 0.03, request)
    assert (request.attempts.target, request.attempts.count) == ("m/1", 2)
