"""The cache: what is the same request, and which answers are kept. Stores in memory and in a file."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway.backend.scripted import Script
from gateway.config.snapshot import CachePolicy, CacheSpec, Engine, ModelSpec, PolicySpec, StoreSpec, TargetSpec
from gateway.core.caller import Caller
from gateway.core.errors import UpstreamIgnoredParameter
from gateway.core.exchange import Exchange
from gateway.policy.deliver.cache import MAX_ANSWER, Cache, cache_key, target_identity
from gateway.storage.cache_store import (
    CacheStore,
    SqliteStore,
    StoredAnswer,
)
from gateway.storage.open_store import cache_store
from gateway.wire.json import dump_json
from gateway.wire.stored_events import load_events, named_events
from metatemplate.templates.spec import TemplateSpec
from metatemplate.values.events import Begun, Delta, Document, Event, Finish, TokenLogprob, Usage
from tests.policy.responses import Response, exchange, read_response_async
from tests.support.recording_backend import RecordingBackend

HELLO: Script = ["hel", "lo", {"finish": "stop"}, {"usage": [3, 2]}]
DAY = 24 * 3600.0


def model(mode: Any = "on", ttl: float = DAY, engine: Engine = "vllm", name: str = "m", place: str = "a") -> ModelSpec:
    return ModelSpec(
        name=name,
        template=TemplateSpec(name="chat", kind="chat"),
        policy=PolicySpec(name="cached", cache=CachePolicy(mode=mode, ttl=ttl)),
        targets=(TargetSpec(label="scripted/0", speaks="completions", url=f"http://{place}/v1", engine=engine),),
    )


class Clock:
    """Seconds since the epoch, set by the test."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[CacheStore]:
    spec = CacheSpec(path=tmp_path / "answers.sqlite" if request.param == "sqlite" else None, max_size=1024 * 1024)
    store = cache_store(spec, StoreSpec(), {})
    yield store
    asyncio.run(store.aclose())


async def asked(cache: Cache, request: Exchange | None = None) -> tuple[str, Response]:
    """The result of the look-up, and the answer."""
    request = request or exchange()
    response = await read_response_async(cache, request)
    return request.attempts.cache, response


async def test_the_second_of_two_equal_requests_is_a_hit_with_the_same_events(store: CacheStore) -> None:
    inner, results, clock = RecordingBackend(HELLO), list[str](), Clock()
    cache = Cache(inner, store, model(), results.append, clock)
    first, second = exchange(), exchange()
    one = await read_response_async(cache, first)
    clock.seconds += 61
    two = await read_response_async(cache, second)
    assert two.events == one.events
    assert len(inner.exchanges) == 1
    assert results == [first.attempts.cache, second.attempts.cache] == ["miss", "hit"]
    assert (second.attempts.cache_age, second.attempts.target, second.attempts.count) == (61.0, "scripted/0", 0)


DIFFERENT: dict[str, dict[str, Any]] = {
    "another prompt": {"prompts": ("ho",)},
    "an explicit temperature": {"params": {"temperature": 0}},
    "a float": {"params": {"temperature": 0.0}},
    "a seed": {"params": {"seed": 1}},
    "another stop": {"stops": ("x",)},
    "a stop token": {"stop_token_ids": (2,)},
    "two choices": {"n": 2},
    "no stream": {"stream": False},
    "token ids": {"prompts": ((1, 2),)},
    "a BOS": {"bos": "add"},
    "another key": {"caller": Caller(key="bob")},
    "another repeat": {"repeat": 1},
}


def test_any_difference_of_the_request_is_another_key() -> None:
    targets = target_identity(model())
    keys = {cache_key(replace(exchange(), **change), targets) for change in DIFFERENT.values()}
    assert len(keys | {cache_key(exchange(), targets)}) == len(DIFFERENT) + 1


def test_parameters_in_another_order_hints_the_session_the_request_id_and_limits_of_a_call_change_no_key() -> None:
    targets = target_identity(model())
    one = exchange(params={"seed": 1, "top_p": 1})
    limits: dict[str, Any] = {"deadline": 1.0, "total": 5.0, "max_attempts": 1}
    hints = {"prompt_cache_key": "k", "metadata": {"run": "7"}}
    two = replace(
        one, params={**hints, "top_p": 1, "seed": 1}, caller=Caller(session="s"), request_id="req-2", **limits
    )
    assert cache_key(one, targets) == cache_key(two, targets)


def test_another_model_engine_or_address_is_another_key() -> None:
    models = (model(), model(engine="sglang"), model(name="n"), model(place="b"))
    assert len({cache_key(exchange(), target_identity(one)) for one in models}) == 4


async def test_each_repeat_keeps_its_own_answer(store: CacheStore) -> None:
    cache = Cache(RecordingBackend(["a", {"finish": "stop"}], ["b", {"finish": "stop"}]), store, model())
    answers = [(await asked(cache, exchange(repeat=number)))[1].texts[0] for number in (0, 1, 0, 1)]
    assert answers == ["a", "b", "a", "b"]


async def test_an_answer_older_than_the_ttl_is_a_miss_and_is_replaced(store: CacheStore) -> None:
    clock = Clock()
    cache = Cache(
        RecordingBackend(["a", {"finish": "stop"}], ["b", {"finish": "stop"}]), store, model(ttl=10), now=clock
    )
    await asked(cache)
    clock.seconds += 11
    assert (await asked(cache))[0] == "miss"
    result, response = await asked(cache)
    assert (result, response.texts) == ("hit", {0: "b"})


async def test_the_first_of_two_answers_at_the_same_time_stays(store: CacheStore) -> None:
    cache = Cache(RecordingBackend(["a", {"finish": "stop"}], ["b", {"finish": "stop"}]), store, model())
    async with cache.open(exchange()) as events:
        await events.next_batch()
        assert (await read_response_async(cache)).texts == {0: "b"}
        while await events.next_batch():
            pass
    assert (await asked(cache))[1].texts == {0: "b"}


async def test_an_answer_has_been_stored_when_its_call_ends(tmp_path: Path) -> None:
    """Another process, here another store of the same file, finds the answer at once."""
    one, other = [SqliteStore(tmp_path / "answers.sqlite", 1024 * 1024) for _ in range(2)]
    caches = [Cache(RecordingBackend(HELLO), store, model()) for store in (one, other)]
    requests = [exchange(str(number // 2)) for number in range(100)]
    for number, request in enumerate(requests):
        await read_response_async(caches[number % 2], request)
    await one.aclose()
    await other.aclose()
    assert [request.attempts.cache for request in requests] == ["miss", "hit"] * 50


async def test_write_only_replaces_an_answer(store: CacheStore) -> None:
    inner = RecordingBackend(["a", {"finish": "stop"}], ["b", {"finish": "stop"}])
    answers = [(await asked(Cache(inner, store, model(mode))))[1].texts[0] for mode in ("on", "write_only", "on")]
    assert answers == ["a", "b", "b"]


async def test_read_only_keeps_nothing_and_write_only_looks_nothing_up(store: CacheStore) -> None:
    inner = RecordingBackend(HELLO)
    caches = {mode: Cache(inner, store, model(mode)) for mode in ("read_only", "write_only", "on")}
    results = [
        (await asked(caches[mode]))[0] for mode in ("read_only", "read_only", "write_only", "write_only", "read_only")
    ]
    assert results == ["miss", "miss", "bypass", "bypass", "hit"]


INCOMPLETE: dict[str, tuple[Script, dict[str, Any]]] = {
    "no finish": (["a"], {}),
    "a failure": (["a", {"error": "upstream_error"}], {}),
    "one of two choices": (["a", {"finish": "stop"}], {"n": 2}),
    "one of two prompts": (["a", {"finish": "stop"}], {"prompts": ("p", "q")}),
    "too large": (["a" * MAX_ANSWER, {"finish": "stop"}], {}),
}


@pytest.mark.parametrize(("script", "change"), INCOMPLETE.values(), ids=INCOMPLETE)
async def test_only_complete_answers_are_kept(script: Script, change: dict[str, Any]) -> None:
    store = SqliteStore(None, MAX_ANSWER * 4)
    cache = Cache(RecordingBackend(script), store, model())
    assert [(await asked(cache, exchange(**change)))[0] for _ in range(2)] == ["miss", "miss"]
    await store.aclose()


async def test_an_answer_that_its_caller_refuses_is_not_kept(store: CacheStore) -> None:
    """It may lack what the request needs, such as log probabilities."""
    cache = Cache(RecordingBackend(HELLO), store, model())

    async def refuse() -> None:
        async with cache.open(exchange()) as events:
            while await events.next_batch():
                pass
            raise UpstreamIgnoredParameter("no log probabilities")

    with pytest.raises(UpstreamIgnoredParameter):
        await refuse()
    assert (await asked(cache))[0] == "miss"


async def test_an_answer_whose_client_left_is_not_kept_and_its_upstream_is_closed(store: CacheStore) -> None:
    inner = RecordingBackend(HELLO)
    cache = Cache(inner, store, model())
    async with cache.open(exchange()) as events:
        await events.next_batch()
    assert (inner.active, inner.left_early) == (0, 1)
    assert (await asked(cache))[0] == "miss"


EVENTS: tuple[Event, ...] = (
    Begun("m/0", fields={"system_fingerprint": "fp"}, notices=("split_calls: 2",)),
    Delta(0, "\U0001f600 and \ufffd", (TokenLogprob("a", -0.1, (("b", -2.5, (98,)), ("c", -3.0, None)), (97,), 4),)),
    Delta(1, "", (TokenLogprob("first", None),), fields={"tool_calls": [{"index": 0}]}, extras={"token_ids": [2**63]}),
    Finish(0, "stop", matched="\n", source="gateway"),
    Finish(1, "length", extras={"stop_reason": None}),
    Usage(3, 2, details={"prompt_tokens_details": {"cached_tokens": 1}}),
    Document({"data": [{"embedding": [0.1, 1e-300]}]}),
)


def test_events_are_read_as_they_were_written() -> None:
    text = dump_json(named_events(EVENTS))
    assert load_events(text) == EVENTS
    assert text.isascii()


async def test_the_size_of_a_store_changes_when_a_configuration_becomes_active() -> None:
    stores: dict[Path | StoreSpec | None, CacheStore] = {}
    store = cache_store(CacheSpec(max_size=1024 * 1024), StoreSpec(), stores)

    async def is_kept(key: bytes) -> bool:
        await store.put(key, StoredAnswer(0.0, [Delta(0, "x")]), DAY)
        return await store.get(key) is not None

    assert cache_store(CacheSpec(max_size=1), StoreSpec(), stores) is store
    assert await is_kept(b"a")
    store.resize(1)
    assert not await is_kept(b"b")
    await store.aclose()


async def test_memory_removes_the_oldest_answers_and_takes_at_most_max_size() -> None:
    store, events = SqliteStore(None, 256 * 1024), [Delta(0, "x" * 4000)]
    for number in range(200):
        await store.put(b"%d" % number, StoredAnswer(0.0, events), DAY)
    kept = [number for number in range(200) if await store.get(b"%d" % number)]
    await store.aclose()
    assert kept == list(range(kept[0], 200))
    assert 16 <= len(kept) <= 64


async def test_a_file_has_mode_0600_survives_a_restart_and_stays_within_its_size(tmp_path: Path) -> None:
    path = tmp_path / "answers.sqlite"
    events = [Delta(0, "x" * 4000)]

    async def fill(store: SqliteStore) -> None:
        for number in range(200):
            await store.put(b"%d" % number, StoredAnswer(0.0, events), DAY)
        await store.aclose()

    await fill(SqliteStore(path, 256 * 1024))
    assert path.stat().st_mode & 0o777 == 0o600
    database = sqlite3.connect(path)
    numbers = [int(key) for (key,) in database.execute("SELECT key FROM answers ORDER BY id")]
    database.close()
    assert numbers == list(range(numbers[0], 200))
    assert 16 <= len(numbers) <= 64

    store = SqliteStore(path, 256 * 1024)
    found = await store.get(b"199")
    await store.aclose()
    assert found is not None
    assert list(found.events) == events


async def test_a_store_that_cannot_be_read_or_written_costs_hits_and_no_calls(tmp_path: Path) -> None:
    path = tmp_path / "answers.sqlite"
    path.write_bytes(b"this is no database" * 100)
    store, inner = SqliteStore(path, 1024), RecordingBackend(HELLO)
    cache = Cache(inner, store, model())
    answers = [await asked(cache) for _ in range(2)]
    await store.aclose()
    assert [(result, response.texts) for result, response in answers] == [("error", {0: "hello"})] * 2
