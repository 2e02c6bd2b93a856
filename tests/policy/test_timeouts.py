"""The idle timeout between two pieces of content, and the total timeout."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from gateway.backend.scripted import Script
from gateway.core.errors import GatewayError
from gateway.core.exchange import Events, Exchange
from gateway.core.text_splice import TextSource, TextSplice, text_source
from gateway.policy.deliver.timeouts import Timeouts
from metatemplate.values.events import Delta, Event
from tests.policy.responses import OBSERVER, cancel_after, exchange, leave_after, read_response, read_response_async
from tests.support.recording_backend import RecordingBackend
from tests.support.virtual_clock import run as run_virtual

BEATS: Script = [step for text in "abcde" for step in ({"pause": 0.05}, text)]
EMPTY_BEATS: Script = ["a", *[step for _ in range(20) for step in ({"pause": 0.02}, "")]]

CASES: dict[str, tuple[Script, float, float, str | None, str]] = {
    # name: (script, idle, total, error, text)
    "content in time": ([*BEATS, {"finish": "stop"}], 1, 2, None, "abcde"),
    "each content restarts the idle timeout": ([*BEATS, {"finish": "stop"}], 0.2, 2, None, "abcde"),
    "a stall is an idle timeout": (["a", {"pause": 5}, "b"], 0.05, 2, "upstream_idle_timeout", "a"),
    "empty deltas do not count as content": (EMPTY_BEATS, 0.1, 5, "upstream_idle_timeout", "a"),
    "usage does not count as content": (["a", {"usage": [1, 1]}, {"pause": 5}], 0.05, 2, "upstream_idle_timeout", "a"),
    "the total ends an answer that goes on": (BEATS, 1, 0.15, "deadline_exceeded", "a"),
    "the total covers the wait for the first event": ([{"pause": 5}, "a"], 9, 0.05, "deadline_exceeded", ""),
    "the total is reported if both have passed": ([{"pause": 5}], 0.05, 0.05, "deadline_exceeded", ""),
    "the backend's errors are not changed": (["a", {"error": "upstream_error"}], 1, 1, "upstream_error", "a"),
}


@pytest.mark.parametrize("name", CASES)
def test_an_answer_ends_at_its_timeouts(name: str) -> None:
    script, idle, total, code, text = CASES[name]
    inner = RecordingBackend(script)
    response = read_response(Timeouts(inner, idle, total, OBSERVER))
    assert response.code == code
    assert response.texts.get(0, "").startswith(text)
    assert response.seconds <= total
    assert inner.active == 0


@pytest.mark.parametrize("code", ["upstream_idle_timeout", "deadline_exceeded"])
def test_a_timeout_closes_the_backend_and_names_its_limit(code: str) -> None:
    inner = RecordingBackend(["a", {"pause": 5}, "b"])
    idle, total = (0.03, 1.0) if code == "upstream_idle_timeout" else (1.0, 0.03)
    response = read_response(Timeouts(inner, idle, total, OBSERVER))
    assert response.code == code
    assert response.error is not None
    assert "0.03 s" in response.error.message
    assert response.error.status == 504
    assert (inner.active, inner.left_early) == (0, 1)


def test_calls_that_run_at_the_same_time_end_at_their_own_timeouts() -> None:
    timed = Timeouts(RecordingBackend(["a", {"finish": "stop"}], ["a", {"pause": 5}]), 9, 9, OBSERVER)
    totals = [0.2, 0.3, 0.1, 0.4]

    async def one(total: float) -> float:
        response = await read_response_async(timed, exchange(total=total))
        assert response.code == "deadline_exceeded"
        return response.seconds

    async def run() -> list[float]:
        assert (await read_response_async(timed, exchange(total=0.05))).code is None  # its deadline is not reached
        return await asyncio.gather(*map(one, totals))

    assert run_virtual(run()) == pytest.approx(totals)
    assert run_virtual(one(0.1)) == pytest.approx(0.1)  # in another event loop


@pytest.mark.parametrize("count", [0, 1, 2], ids=["before", "during", "after the first event"])
def test_leaving_early_releases_the_backend(count: int) -> None:
    inner = RecordingBackend(["a", "b", "c"])
    leave_after(Timeouts(inner, 1, 1, OBSERVER), count)
    assert (inner.active, inner.left_early) == (0, 1)


@pytest.mark.parametrize("script", [[{"pause": 5}], ["a", {"pause": 5}]], ids=["at the start", "in between"])
def test_a_cancellation_is_not_a_timeout(script: Script) -> None:
    inner = RecordingBackend(script)
    cancel_after(Timeouts(inner, 9, 9, OBSERVER), 0.03)
    assert (inner.active, inner.left_early) == (0, 1)


class ForwardingBackend:
    """A backend, and its events: it forwards two texts directly, then sends nothing."""

    exhausted = False

    def __init__(self, gap: float) -> None:
        self._gap = gap

    @asynccontextmanager
    async def open(self, exchange: Exchange) -> AsyncIterator[Events]:
        yield self

    async def next_batch(self) -> Sequence[Event]:
        return (Delta(0, "a"),)

    @property
    def text_source(self) -> TextSource:
        return self

    async def forward_text(self, splice: TextSplice) -> None:
        for _ in range(2):
            await asyncio.sleep(self._gap)
            splice.moments.append(splice.now())
        await asyncio.sleep(10)


def test_forwarded_text_restarts_the_idle_timeout() -> None:
    async def run() -> tuple[float, str]:
        loop = asyncio.get_running_loop()
        began, splice = loop.time(), TextSplice(lambda frame: True, {}, loop.time)
        try:
            async with Timeouts(ForwardingBackend(0.15), 0.2, 5, OBSERVER).open(exchange()) as events:
                await events.next_batch()
                source = text_source(events)
                assert source is not None
                await source.forward_text(splice)
        except GatewayError as error:
            return loop.time() - began, error.code
        return 0.0, ""

    seconds, code = run_virtual(run())
    assert (round(seconds, 3), code) == (0.15 + 0.15 + 0.2, "upstream_idle_timeout")


@pytest.mark.parametrize("silent", [False, True], ids=["an engine that continues", "a silent engine"])
def test_the_idle_timeout_excludes_time_without_a_reader(silent: bool) -> None:
    """The idle timeout restarts when the client reads again."""
    script: Script = ["a", {"pause": 5 if silent else 0.1}, "b", {"finish": "stop"}]

    async def run() -> tuple[float, str]:
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            async with Timeouts(RecordingBackend(script), 0.2, 5, OBSERVER).open(exchange()) as events:
                await events.next_batch()
                await asyncio.sleep(0.5)
                while await events.next_batch():
                    pass
        except GatewayError as error:
            return loop.time() - began, error.code
        return loop.time() - began, ""

    seconds, code = run_virtual(run())
    assert (round(seconds, 3), code) == ((0.7, "upstream_idle_timeout") if silent else (0.6, ""))
