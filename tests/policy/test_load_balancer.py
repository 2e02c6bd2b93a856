"""The order in which calls try the targets, by strategy and health."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from gateway.core.caller import Caller
from gateway.core.errors import UpstreamError
from gateway.core.exchange import Exchange
from gateway.policy.deliver.targets.load_balancer import (
    BALANCERS,
    LeastBusy,
    LoadBalancer,
    RoundRobin,
    Sticky,
    Weighted,
)
from metatemplate.values.prompt import Prompt
from tests.policy.responses import exchange, replica
from tests.support.recording_backend import RecordingBackend


def balancer(kind: type[LoadBalancer], *weights: int) -> LoadBalancer:
    return kind([replica(f"m/{number}", RecordingBackend(), weight) for number, weight in enumerate(weights)])


def first(balancer: LoadBalancer, request: Exchange | None = None) -> str:
    return balancer.order(request or exchange())[0].label


def labels(balancer: LoadBalancer, request: Exchange | None = None) -> list[str]:
    return [replica.label for replica in balancer.order(request or exchange())]


def fail(balancer: LoadBalancer, position: int) -> None:
    """Open the breaker of one target."""
    breaker = balancer.replicas[position].breaker
    for _ in range(5):
        breaker.end(UpstreamError("failed"), probe=breaker.begin())


@pytest.mark.parametrize("kind", BALANCERS.values(), ids=BALANCERS)
def test_every_strategy_orders_all_targets(kind: type[LoadBalancer]) -> None:
    three = balancer(kind, 1, 2, 3)
    for number in range(20):
        assert sorted(labels(three, exchange(f"prompt {number}"))) == ["m/0", "m/1", "m/2"]


@pytest.mark.parametrize("kind", BALANCERS.values(), ids=BALANCERS)
def test_a_failing_target_comes_last(kind: type[LoadBalancer]) -> None:
    three = balancer(kind, 1, 1, 1)
    fail(three, 1)
    for number in range(20):
        assert labels(three, exchange(f"prompt {number}"))[-1] == "m/1"


@pytest.mark.parametrize("kind", BALANCERS.values(), ids=BALANCERS)
def test_if_every_target_fails_all_are_used(kind: type[LoadBalancer]) -> None:
    three = balancer(kind, 1, 1, 1)
    for position in range(3):
        fail(three, position)
    assert {first(three, exchange(f"prompt {number}")) for number in range(40)} == {"m/0", "m/1", "m/2"}


def test_round_robin_takes_turns() -> None:
    three = balancer(RoundRobin, 1, 1, 1)
    assert [first(three) for _ in range(5)] == ["m/0", "m/1", "m/2", "m/0", "m/1"]


@pytest.mark.parametrize("kind", [RoundRobin, LeastBusy, Weighted])
@pytest.mark.parametrize("count", [3, 5])
def test_the_share_of_a_failing_target_goes_to_all_others(kind: type[LoadBalancer], count: int) -> None:
    several = balancer(kind, *[1] * count)
    fail(several, 0)
    others = {f"m/{number}": 60 for number in range(1, count)}
    assert Counter(first(several) for _ in range(60 * (count - 1))) == others


def test_the_share_of_a_failing_target_is_divided_by_weight() -> None:
    three = balancer(Weighted, 4, 2, 1)
    fail(three, 0)
    assert Counter(first(three) for _ in range(300)) == {"m/1": 200, "m/2": 100}


@pytest.mark.parametrize("warm_up", [1, 51, 101, 102])
def test_a_failing_target_of_large_weight_leaves_an_even_share_to_the_others(warm_up: int) -> None:
    three = balancer(Weighted, 100, 1, 1)
    for _ in range(warm_up):
        first(three)
    fail(three, 0)
    assert Counter(first(three) for _ in range(6)) == {"m/1": 3, "m/2": 3}


def test_a_target_that_is_used_again_gets_its_own_share() -> None:
    three = balancer(RoundRobin, 1, 1, 1)
    three.replicas[0].breaker.set_reachable(False)
    for _ in range(100):
        first(three)
    three.replicas[0].breaker.set_reachable(True)
    counts = Counter(first(three) for _ in range(30))
    assert max(counts.values()) - min(counts.values()) <= 2, counts


def test_least_busy_prefers_the_target_with_the_fewest_calls() -> None:
    three = balancer(LeastBusy, 1, 1, 1)
    for position, calls in enumerate((2, 0, 1)):
        for _ in range(calls):
            three.replicas[position].breaker.begin()
    assert labels(three) == ["m/1", "m/2", "m/0"]


def test_least_busy_takes_turns_among_equals() -> None:
    three = balancer(LeastBusy, 1, 1, 1)
    assert Counter(first(three) for _ in range(30)) == {"m/0": 10, "m/1": 10, "m/2": 10}


def test_weights_are_the_shares_of_calls_evenly_spread() -> None:
    three = balancer(Weighted, 5, 1, 1)
    assert "".join(first(three)[-1] for _ in range(14)) == "00102000010200"


STICKY: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "session": (
        {"caller": Caller(session="s"), "params": {"user": "a"}},
        {"caller": Caller(session="s"), "params": {"user": "b"}},
    ),
    "prompt_cache_key": ({"params": {"prompt_cache_key": "k", "user": "a"}}, {"params": {"prompt_cache_key": "k"}}),
    "user": ({"params": {"user": "a"}}, {"params": {"user": "a"}}),
    "prefix of the prompt": (
        {"prompts": ("shot " * 200 + "question 1",)},
        {"prompts": ("shot " * 200 + "question 2",)},
    ),
    "prefix of a prompt that is sent as token ids": (
        {"prompts": ((1, 2),), "rendered": Prompt("shot " * 200 + "question 1")},
        {"prompts": ((1, 3),), "rendered": Prompt("shot " * 200 + "question 2")},
    ),
    "prefix of the messages": (
        {"prompts": (), "messages": ({"role": "system", "content": "shot " * 200}, {"role": "user", "content": "1"})},
        {"prompts": (), "messages": ({"role": "system", "content": "shot " * 200}, {"role": "user", "content": "2"})},
    ),
}


@pytest.mark.parametrize("case", STICKY)
def test_calls_with_the_same_key_go_to_the_same_target(case: str) -> None:
    one, other = STICKY[case]
    three = balancer(Sticky, 1, 1, 1)
    if "prompts" not in one:  # different prompts, which must not matter
        one, other = {**one, "prompts": ("a",)}, {**other, "prompts": ("b",)}
    a, b = (Exchange(endpoint="completions", request_id="r", **fields) for fields in (one, other))
    assert {labels(three, a)[0] for _ in range(5)} == {labels(three, b)[0] for _ in range(5)}


def test_different_keys_spread_over_the_targets() -> None:
    three = balancer(Sticky, 1, 1, 1)
    count = Counter(first(three, exchange(caller=Caller(session=f"session {number}"))) for number in range(300))
    assert min(count.values()) > 60


def test_removing_a_target_moves_only_its_own_keys() -> None:
    three, two = balancer(Sticky, 1, 1, 1), balancer(Sticky, 1, 1)
    requests = [exchange(caller=Caller(session=f"session {number}")) for number in range(100)]
    moved = [request for request in requests if first(three, request) != first(two, request)]
    assert {first(three, request) for request in moved} == {"m/2"}


def test_a_target_with_more_than_its_share_is_skipped() -> None:
    three, request = balancer(Sticky, 1, 1, 1), exchange(caller=Caller(session="s"))
    own, then, _ = three.order(request)
    for _ in range(4):
        own.breaker.begin()
    assert first(three, request) == then.label


def test_token_ids_have_no_prefix_and_go_to_the_least_busy_target() -> None:
    three = balancer(Sticky, 1, 1, 1)
    three.replicas[0].breaker.begin()
    assert first(three, Exchange(endpoint="completions", request_id="r", prompts=((1, 2),))) != "m/0"
