"""Equal requests at the same time: one call, and no request fails with another one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import replace
from typing import Any

import pytest

from gateway.backend.scripted import Script
from gateway.core.caller import Caller
from gateway.core.errors import GatewayError, UpstreamIgnoredParameter
from gateway.core.exchange import Events, Exchange
from gateway.policy.deliver.cache import MAX_ANSWER, Cache
from gateway.policy.deliver.coalescing import Coalescing
from gateway.storage.cache_store import SqliteStore
from metatemplate.values.events import Delta
from tests.policy.responses import Response, exchange, read_response_async
from tests.policy.test_cache import HELLO, model
from tests.support.recording_backend import RecordingBackend
from tests.support.virtual_clock import run as run_virtual

SLOW: Script = ["hel", {"pause": 60}, "lo", {"finish": "stop"}, {"usage": [3, 2]}]


def request(name: str = "req-1", **changes: Any) -> Exchange:
    return replace(exchange(params={"temperature": 0}), request_id=name, **changes)


async def together(layer: Coalescing, requests: Sequence[Exchange]) -> list[Response]:
    """The responses to requests that are sent in order, at the same time."""
    return await asyncio.gather(*[read_response_async(layer, one) for one in requests])


@pytest.mark.parametrize("stream", [True, False], ids=["streams", "whole answers"])
def test_a_hundred_equal_requests_make_one_call_and_get_one_answer(stream: bool) -> None:
    inner, results = RecordingBackend(SLOW), list[str]()
    layer = Coalescing(inner, model(), results.append)
    requests = [request(f"req-{number}", stream=stream) for number in range(100)]
    first, *others = run_virtual(together(layer, requests))
    assert len(inner.exchanges) == 1
    assert [event for event in others[0].events if event not in others[0].begun] == first.events[1:]
    assert first.begun[0].notices == ()
    assert all(one.events == others[0].events for one in others)
    assert others[0].begun == [replace(first.begun[0], notices=("coalesced: req-0",))]
    assert results == ["hit"] * 99
    assert [one.attempts.cache for one in requests] == ["", *["hit"] * 99]
    assert {(one.target, one.count) for one in [each.attempts for each in requests[1:]]} == {("scripted/0", 0)}


async def test_a_request_after_the_call_is_a_hit_of_the_cache() -> None:
    store = SqliteStore(None, 1024 * 1024)
    layer = Coalescing(Cache(RecordingBackend(HELLO), store, model()), model())
    requests = [request() for _ in range(3)]
    await together(layer, requests[:2])
    await read_response_async(layer, requests[2])
    await store.aclose()
    assert [one.attempts.cache for one in requests] == ["miss", "hit", "hit"]


ALONE: dict[str, list[Exchange]] = {
    "no temperature": [exchange(), exchange()],
    "a temperature above 0": [exchange(params={"temperature": 0.1}), exchange(params={"temperature": 0.1})],
    "another key": [request(), request(caller=Caller(key="bob"))],
    "another repeat": [request(), request(repeat=1)],
    "another prompt": [request(), request(prompts=("ho",))],
}


@pytest.mark.parametrize("requests", ALONE.values(), ids=ALONE)
def test_requests_that_differ_or_may_have_different_answers_make_calls_of_their_own(requests: list[Exchange]) -> None:
    inner = RecordingBackend(SLOW)
    run_virtual(together(Coalescing(inner, model()), requests))
    assert len(inner.exchanges) == 2


def test_a_seed_makes_requests_deterministic() -> None:
    inner = RecordingBackend(SLOW)
    run_virtual(together(Coalescing(inner, model()), [exchange(params={"temperature": 1, "seed": 5})] * 2))
    assert len(inner.exchanges) == 1


NO_ANSWER: dict[str, Script] = {
    "a failure": [{"pause": 60}, {"error": "upstream_error"}],
    "a failure after its beginning": ["hel", {"pause": 60}, {"error": "upstream_error"}],
    "no end": ["hel", {"pause": 60}],
    "too large": ["x" * MAX_ANSWER, {"pause": 60}, {"finish": "stop"}],
}


@pytest.mark.parametrize("script", NO_ANSWER.values(), ids=NO_ANSWER)
def test_requests_that_wait_for_a_call_without_a_complete_answer_make_their_own(script: Script) -> None:
    inner = RecordingBackend(script, HELLO)
    _, *others = run_virtual(together(Coalescing(inner, model()), [request() for _ in range(4)]))
    assert [one.texts for one in others] == [{0: "hello"}] * 3
    assert [one.begun[0].notices for one in others] == [()] * 3
    assert len(inner.exchanges) == 4


@pytest.mark.parametrize("left", [0, 2], ids=["the first request", "a request that waits"])
@pytest.mark.parametrize("when", [0, 1], ids=["before the call is open", "after the first event"])
@pytest.mark.virtual_clock
async def test_a_client_that_leaves_ends_no_other_request(left: int, when: int) -> None:
    inner = RecordingBackend(SLOW)
    layer = Coalescing(inner, model())
    tasks = [asyncio.create_task(read_response_async(layer, request())) for _ in range(4)]
    await asyncio.sleep(when)
    tasks[left].cancel()
    responses = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(responses.pop(left), asyncio.CancelledError)
    assert [one.texts for one in responses if isinstance(one, Response)] == [{0: "hello"}] * 3
    assert len(inner.exchanges) == 1
    assert (inner.active, inner.left_early) == (0, 0)


@pytest.mark.virtual_clock
async def test_the_call_is_closed_when_the_last_client_leaves_and_the_next_request_makes_its_own() -> None:
    inner = RecordingBackend(SLOW)
    layer = Coalescing(inner, model())
    tasks = [asyncio.create_task(read_response_async(layer, request())) for _ in range(3)]
    await asyncio.sleep(1)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert (inner.active, inner.left_early) == (0, 1)
    assert (await read_response_async(layer, request())).begun[0].notices == ()
    assert len(inner.exchanges) == 2


@pytest.mark.virtual_clock
async def test_a_first_request_that_is_cut_at_a_stop_ends_no_other_request() -> None:
    inner = RecordingBackend(SLOW)
    layer = Coalescing(inner, model())
    async with layer.open(request()) as events:
        await events.next_batch()
        others = [asyncio.create_task(read_response_async(layer, request())) for _ in range(3)]
        await asyncio.sleep(1)
    assert [one.texts for one in await asyncio.gather(*others)] == [{0: "hello"}] * 3
    assert (len(inner.exchanges), inner.left_early) == (1, 0)


LEAVING: list[GatewayError | None] = [None, UpstreamIgnoredParameter("no log probabilities")]


@pytest.mark.parametrize("error", LEAVING, ids=["cut at a stop", "refused"])
def test_a_call_with_one_request_is_closed_with_the_error_of_this_request(error: GatewayError | None) -> None:
    closed = list[BaseException | None]()

    class Inner(RecordingBackend):
        @asynccontextmanager
        async def open(self, exchange: Exchange) -> AsyncIterator[Events]:
            try:
                async with super().open(exchange) as events:
                    yield events
            except BaseException as raised:
                closed.append(raised)
                raise
            closed.append(None)

    async def run() -> None:
        async with Coalescing(Inner(SLOW), model()).open(request()) as events:
            await events.next_batch()
            if error:
                raise error

    with pytest.raises(UpstreamIgnoredParameter) if error else nullcontext():
        run_virtual(run())
    assert closed == [error]


@pytest.mark.virtual_clock
async def test_a_first_request_that_stops_reading_delays_no_other_request() -> None:
    inner = RecordingBackend(SLOW)
    layer = Coalescing(inner, model())
    async with layer.open(request("req-0")) as events:
        first = [*await events.next_batch()]
        other = await read_response_async(layer, request())
        assert inner.active == 0
        while batch := await events.next_batch():
            first += batch
    assert (other.texts, Response(first).texts) == ({0: "hello"}, {0: "hello"})
    assert (other.seconds, other.begun[0].notices) == (60, ("coalesced: req-0",))


@pytest.mark.virtual_clock
async def test_an_answer_that_is_too_large_is_read_only_as_fast_as_its_first_request() -> None:
    inner = RecordingBackend(["x" * (MAX_ANSWER + 1), "y", {"finish": "stop"}], HELLO)
    layer = Coalescing(inner, model())
    async with layer.open(request()) as events:
        other = await read_response_async(layer, request())
        await asyncio.sleep(100)
        assert inner.active == 1
        size = 0
        while batch := await events.next_batch():
            size += sum(len(event.text) for event in batch if isinstance(event, Delta))
    assert (other.texts, size) == ({0: "hello"}, MAX_ANSWER + 2)


async def test_an_answer_that_its_only_request_refuses_is_not_kept() -> None:
    """It may lack what the request needs, such as log probabilities."""
    store = SqliteStore(None, 1024 * 1024)
    layer = Coalescing(Cache(RecordingBackend(HELLO), store, model()), model())

    async def refuse() -> None:
        async with layer.open(request()) as events:
            while await events.next_batch():
                pass
            raise UpstreamIgnoredParameter("no log probabilities")

    with pytest.raises(UpstreamIgnoredParameter):
        await refuse()
    last = request()
    await read_response_async(layer, last)
    await store.aclose()
    assert last.attempts.cache == "miss"


@pytest.mark.virtual_clock
async def test_waiting_counts_for_the_total_time_of_a_call() -> None:
    inner = RecordingBackend([{"pause": 1000}, {"finish": "stop"}], HELLO)
    total = model().policy.delivery.timeout.total
    begin = asyncio.get_running_loop().time()
    await together(Coalescing(inner, model()), [request(), request()])
    deadline = inner.exchanges[1].deadline
    assert deadline is not None
    assert (deadline - begin) == total
