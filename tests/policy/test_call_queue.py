"""Places and waiting calls of one model."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from gateway.config.snapshot import LimitsPolicy, ModelSpec, PolicySpec
from gateway.core.caller import ANONYMOUS
from gateway.core.errors import Overloaded
from gateway.policy.access.call_queue import CallQueue
from gateway.policy.access.limits import Concurrency, Limiter
from gateway.policy.access.rates import Charge, MemoryRates, RateBalance
from gateway.telemetry.metrics import Metrics
from metatemplate.files.template_file import BUILT_IN


def call_queue(slots: int, wait: float, size: int) -> CallQueue:
    queue = CallQueue("m", Metrics().queue_length)
    queue.limit(slots, wait, size)
    return queue


async def test_calls_within_the_limit_enter_at_once_and_others_wait() -> None:
    queue = call_queue(2, 30, 10)
    await queue.enter("a")
    await queue.enter("a")
    third = asyncio.create_task(queue.enter("a"))
    await asyncio.sleep(0)
    assert (queue.running, queue.waiting, third.done()) == (2, 1, False)
    queue.leave()
    await third
    assert (queue.running, queue.waiting) == (2, 0)


async def test_free_slots_go_to_the_keys_in_turn() -> None:
    queue, order = call_queue(1, 30, 10), list[str]()

    async def call(name: str) -> None:
        await queue.enter(name[0])
        order.append(name)
        await asyncio.sleep(0)
        queue.leave()

    await queue.enter("first")
    tasks = []
    for name in ("a1", "a2", "a3", "b1", "c1", "b2"):
        tasks.append(asyncio.create_task(call(name)))
        await asyncio.sleep(0)
    queue.leave()
    await asyncio.gather(*tasks)
    assert (queue.running, queue.waiting) == (0, 0)
    assert order == ["a1", "b1", "c1", "a2", "b2", "a3"]


@pytest.mark.parametrize(("wait", "size"), [(30.0, 0), (0.0, 10)], ids=["no room", "no waiting"])
async def test_a_call_that_may_not_wait_is_refused_at_once(wait: float, size: int) -> None:
    queue = call_queue(1, wait, size)
    await queue.enter("a")
    waits = list[float]()
    with pytest.raises(Overloaded, match=r"limits\.concurrency=1") as refused:
        await queue.enter("b", waits.append)
    assert waits == []
    assert refused.value.shed_reason == "queue_full"


async def test_a_call_waits_no_longer_than_configured() -> None:
    queue, waits = call_queue(1, 0.01, 10), list[float]()
    await queue.enter("a", waits.append)
    with pytest.raises(Overloaded, match=r"0\.01 s") as refused:
        await queue.enter("b", waits.append)
    assert waits[0] == 0.0 < waits[1]
    assert refused.value.shed_reason == "queue_timeout"
    assert (queue.running, queue.waiting) == (1, 0)
    queue.leave()
    await queue.enter("b")


@pytest.mark.parametrize("freed", ["before", "after"])
async def test_a_client_that_leaves_while_it_waits_frees_its_place(freed: str) -> None:
    """``before`` and ``after``: another call ends just before, or just after, the client leaves."""
    queue = call_queue(1, 30, 10)
    await queue.enter("a")
    gone, next_one = asyncio.create_task(queue.enter("b")), asyncio.create_task(queue.enter("c"))
    await asyncio.sleep(0)
    if freed == "before":
        queue.leave()
    gone.cancel()
    if freed == "after":
        queue.leave()
    await asyncio.wait([gone])
    await asyncio.wait_for(next_one, 30)
    assert (gone.cancelled(), queue.running, queue.waiting) == (True, 1, 0)
    queue.leave()
    assert queue.running == 0


async def test_a_shutdown_refuses_the_waiting_calls_and_no_running_one() -> None:
    queue, waits = call_queue(1, 30, 10), list[float]()
    await queue.enter("a")
    waiting = [asyncio.create_task(queue.enter(key, waits.append)) for key in ("a", "a", "b")]
    await asyncio.sleep(0)
    queue.drain()
    errors = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(error) for error in errors] == [Overloaded] * 3
    assert {error.shed_reason for error in errors if isinstance(error, Overloaded)} == {"draining"}
    assert (len(waits), queue.running, queue.waiting) == (3, 1, 0)
    queue.leave()
    assert queue.running == 0


async def test_a_full_queue_refuses_the_last_call_of_the_longest_line_for_a_key_with_none() -> None:
    queue = call_queue(1, 30, 3)
    await queue.enter("a")
    greedy = [asyncio.create_task(queue.enter("a")) for _ in range(3)]
    await asyncio.sleep(0)
    modest = asyncio.create_task(queue.enter("b"))
    await asyncio.wait([greedy[-1]])
    assert isinstance(greedy[-1].exception(), Overloaded)
    assert (queue.running, queue.waiting) == (1, 3)
    with pytest.raises(Overloaded):
        await queue.enter("a")
    for _ in range(2):
        queue.leave()
    await modest
    for _ in range(2):
        queue.leave()
    await asyncio.wait(greedy)
    assert (queue.running, queue.waiting) == (0, 0)


class SlowRates(MemoryRates):
    """Rates that are asked over a network."""

    async def take(self, charges: Sequence[Charge]) -> list[RateBalance] | None:
        await asyncio.sleep(0)
        return await super().take(charges)


async def test_a_call_whose_rates_are_asked_during_a_shutdown_does_not_wait() -> None:
    limits = LimitsPolicy(requests_per_minute=1000, concurrency=1, queue_wait=30, queue_size=5)
    model = ModelSpec(name="m", template=BUILT_IN, policy=PolicySpec(name="p", limits=limits), targets=())
    limiter = Limiter({"m": model}, (), SlowRates(), Concurrency(Metrics().queue_length))
    limiter.activate()
    running = await limiter.admit(ANONYMOUS, model, 1, 1, lambda _: None)
    late = asyncio.create_task(limiter.admit(ANONYMOUS, model, 1, 1, lambda _: None))
    await asyncio.sleep(0)
    limiter.drain()
    with pytest.raises(Overloaded, match="shutting down"):
        await late
    running.end()
