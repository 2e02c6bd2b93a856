"""The share of calls that may be retried."""

from __future__ import annotations

from gateway.policy.deliver.targets.retry_budget import FREE_PER_SECOND, WINDOW, RetryBudget

FREE = FREE_PER_SECOND * WINDOW


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def granted(budget: RetryBudget, tries: int) -> int:
    return sum(budget.take() for _ in range(tries))


def test_a_few_retries_are_always_allowed() -> None:
    assert granted(RetryBudget(0.0, clock=Clock()), 100) == FREE


def test_calls_allow_retries_by_their_share() -> None:
    clock, refused = Clock(), list[int]()
    budget = RetryBudget(0.2, lambda: refused.append(1), clock)
    for _ in range(1000):
        budget.count_call()
    assert granted(budget, 500) == FREE + 200
    assert len(refused) == 500 - FREE - 200


def test_the_budget_returns_as_seconds_pass() -> None:
    clock = Clock()
    budget = RetryBudget(0.0, clock=clock)
    assert granted(budget, 100) == FREE
    clock.now += WINDOW - 1
    assert granted(budget, 100) == 0
    clock.now += 1
    assert granted(budget, 100) == FREE


def test_after_a_long_pause_nothing_is_counted() -> None:
    clock = Clock()
    budget = RetryBudget(0.5, clock=clock)
    for _ in range(100):
        budget.count_call()
    granted(budget, 100)
    clock.now += 86_400
    assert granted(budget, 100) == FREE


def test_a_share_of_everything_allows_every_retry() -> None:
    assert granted(RetryBudget(1.0, clock=Clock()), 10_000) == 10_000


def test_retries_amplify_the_load_by_at_most_a_fifth() -> None:
    """Row T3: all targets are down, 200 calls a second for 60 s, and each call wants two retries."""
    clock = Clock()
    budget, attempts = RetryBudget(0.2, clock=clock), 0
    for number in range(200 * 60):
        clock.now = 1000 + number / 200
        budget.count_call()
        attempts += 1
        while budget.take() and attempts % 3:
            attempts += 1
    assert attempts <= 200 * 60 * 1.2 + FREE_PER_SECOND * (60 + WINDOW)
