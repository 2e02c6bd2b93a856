"""For each ``open``: leaving before, during and after the first event closes the upstream within 250 ms (row C28)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from gateway.backend.http_client.client import DRAIN_TIMEOUT, HttpClient
from gateway.backend.openai.chat import ChatBackend
from gateway.backend.openai.completions import CompletionsBackend
from gateway.core.exchange import Backend, Exchange
from metatemplate.values.events import Event, Finish
from tests.backend.ask import chat_exchange, exchange, target
from tests.support.events import each_event
from tests.support.upstream.server import FaultyUpstream

WITHIN = 20.0
"""Seconds, far more than promised, because other work may delay this machine. ``bench`` measures the promise."""

Doors = Callable[[str, HttpClient], tuple[Backend, Exchange]]


def completions_stream(url: str, client: HttpClient) -> tuple[Backend, Exchange]:
    return CompletionsBackend(target(url), client), exchange()


def completions_json(url: str, client: HttpClient) -> tuple[Backend, Exchange]:
    return CompletionsBackend(target(url), client), exchange(stream=False)


def chat_stream(url: str, client: HttpClient) -> tuple[Backend, Exchange]:
    return ChatBackend(target(url, speaks="chat"), client), chat_exchange()


def embeddings(url: str, client: HttpClient) -> tuple[Backend, Exchange]:
    asked = exchange(stream=False, endpoint="embeddings", prompts=(), params={"input": "a"})
    return CompletionsBackend(target(url), client), asked


async def first_events(backend: Backend, asked: Exchange, count: int) -> list[Event]:
    """Take ``count`` events, then leave."""
    got: list[Event] = []
    async with backend.open(asked) as events:
        if count == 0:
            return got
        async for event in each_event(events):
            got.append(event)
            if len(got) == count:
                break
    return got


def left(up: FaultyUpstream, door: Doors, mode: str, count: int | None) -> float:
    """Seconds from leaving until the upstream saw it; ``count`` None: cancelled while waiting."""
    early = len(up.closed_early)

    async def run() -> float:
        client = HttpClient()
        backend, asked = door(up.url(mode), client)
        task = asyncio.create_task(first_events(backend, asked, 99 if count is None else count))
        if count is None:
            await asyncio.sleep(0.1)
            task.cancel()
        await asyncio.wait({task})
        leaving = time.monotonic()
        await asyncio.to_thread(up.wait, lambda: len(up.closed_early) > early)
        await client.aclose()
        return up.closed_early[-1] - leaving

    return asyncio.run(run())


@pytest.mark.parametrize("door", [completions_stream, completions_json, chat_stream, embeddings])
def test_leaving_before_the_headers_closes_the_upstream(up: FaultyUpstream, door: Doors) -> None:
    assert left(up, door, "hang-headers", None) < WITHIN


def test_leaving_in_a_non_streaming_body_closes_the_upstream(up: FaultyUpstream) -> None:
    assert left(up, completions_json, "hang-body", None) < WITHIN


@pytest.mark.parametrize("door", [completions_stream, chat_stream])
@pytest.mark.parametrize("mode", ["stall-midstream", "keepalive-only"])
def test_leaving_a_stalled_stream_closes_the_upstream(up: FaultyUpstream, door: Doors, mode: str) -> None:
    assert left(up, door, mode, None) < WITHIN


@pytest.mark.parametrize("count", [0, 1, 2, 7], ids=["unread", "at the first event", "after it", "midstream"])
@pytest.mark.parametrize("door", [completions_stream, chat_stream])
def test_leaving_a_running_stream_closes_the_upstream(up: FaultyUpstream, door: Doors, count: int) -> None:
    assert left(up, door, "never-ends", count) < WITHIN


async def fail_inside(backend: Backend, asked: Exchange) -> None:
    async with backend.open(asked) as events:
        await events.next_batch()
        raise ZeroDivisionError


async def test_a_caller_that_fails_closes_the_upstream(up: FaultyUpstream) -> None:
    client = HttpClient()
    backend, asked = completions_stream(up.url("never-ends"), client)
    with pytest.raises(ZeroDivisionError):
        await fail_inside(backend, asked)
    assert await asyncio.to_thread(up.wait, lambda: up.active == 0, WITHIN)
    await client.aclose()


async def test_a_stream_that_has_said_all_ends_at_once_and_closes_soon(up: FaultyUpstream) -> None:
    client = HttpClient()
    backend, asked = completions_stream(up.url("late-close"), client)
    took: list[float] = []
    while min(took, default=DRAIN_TIMEOUT) >= DRAIN_TIMEOUT and len(took) < 50:  # other work may delay some
        started = time.monotonic()
        async with backend.open(asked) as events:
            assert [event async for event in each_event(events) if isinstance(event, Finish)]
        took.append(time.monotonic() - started)
    assert min(took) < DRAIN_TIMEOUT
    assert await asyncio.to_thread(up.wait, lambda: up.active == 0, WITHIN)
    await client.aclose()


async def test_cancel_churn_loses_no_connection(up: FaultyUpstream) -> None:
    """Row T2 in small: many hang-ups, then everything still works."""
    client = HttpClient()
    backend, asked = completions_stream(up.url("never-ends"), client)
    tasks = [asyncio.create_task(first_events(backend, asked, 99999)) for _ in range(40)]
    await asyncio.sleep(0.15)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert await asyncio.to_thread(up.wait, lambda: up.active == 0, WITHIN)
    good, asked = completions_stream(up.url("ok"), client)
    for _ in range(10):
        assert len(await first_events(good, asked, 99)) > 5
    await client.aclose()


async def test_a_finished_stream_leaves_its_connection_for_the_next(up: FaultyUpstream) -> None:
    before = up.connections
    client = HttpClient()
    backend, asked = completions_stream(up.url("ok"), client)
    for _ in range(3):
        await first_events(backend, asked, 99)
        await asyncio.sleep(0.01)
    await client.aclose()
    assert up.connections == before + 1
