"""Cancellation by a client's disconnect, by a drain, or from elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest

from gateway.calls.endpoints.cancellation import Cancellation, ClientGone
from gateway.core.errors import ServerDraining
from gateway.core.exchange import Backend, Events, Exchange
from gateway.policy.deliver.timeouts import Timeouts
from tests.policy.responses import OBSERVER, exchange
from tests.support.recording_backend import RecordingBackend
from tests.support.virtual_clock import run as run_virtual


def ended(
    work: Callable[[Cancellation], Awaitable[str]], then: Callable[[Cancellation], None] = lambda work: None
) -> str:
    """The result of ``work`` when ``then`` is called as soon as it waits."""

    async def answer(job: Cancellation) -> str:
        try:
            return await work(job)
        except asyncio.CancelledError:
            job.reraise()
            raise

    async def run() -> str:
        job, how = Cancellation(), ["never ended"]

        async def owner() -> None:
            try:
                how[0] = await answer(job)
            except (ClientGone, ServerDraining) as why:
                how[0] = type(why).__name__
            except asyncio.CancelledError:
                how[0] = "cancelled"
                raise

        task = asyncio.create_task(owner())
        job.task = task
        await asyncio.sleep(0)
        then(job)
        await asyncio.wait([task], timeout=5)
        return how[0]

    return run_virtual(run())


async def long(job: Cancellation) -> str:
    await asyncio.sleep(10)
    return "done"


def gone(job: Cancellation) -> None:
    job.cancel(ClientGone())


def stopped(job: Cancellation) -> None:
    assert job.task is not None
    job.task.cancel()


def drained(job: Cancellation) -> None:
    job.cancel(ServerDraining(""))


def gone_then_drained(job: Cancellation) -> None:
    gone(job)
    drained(job)


def both(job: Cancellation) -> None:
    gone(job)
    stopped(job)


THEN: dict[str, tuple[Callable[[Cancellation], None], str]] = {
    "the client leaves": (gone, "ClientGone"),
    "the process leaves": (drained, "ServerDraining"),
    "a disconnect before the drain": (gone_then_drained, "ClientGone"),
    "a cancellation from elsewhere": (stopped, "cancelled"),
    "a disconnect and a cancellation from elsewhere": (both, "cancelled"),
}


@pytest.mark.parametrize(("then", "how"), THEN.values(), ids=THEN)
def test_the_work_raises_the_stored_reason(then: Callable[[Cancellation], None], how: str) -> None:
    assert ended(long, then) == how


def test_work_without_a_cancellation_completes() -> None:
    async def work(job: Cancellation) -> str:
        await asyncio.sleep(0)
        job.commit()
        return "done"

    assert ended(work) == "done"


async def test_a_disconnect_before_the_work_begins_cancels_it() -> None:
    job = Cancellation()

    async def owner() -> None:
        raise AssertionError("the client is gone")

    task = asyncio.create_task(owner())
    job.task = task
    gone(job)
    await asyncio.wait([task])
    assert task.cancelled()


def test_a_disconnect_at_the_end_of_the_work_is_raised() -> None:
    async def work(job: Cancellation) -> str:
        gone(job)  # its cancellation would be raised at the next await, and there is none
        job.commit()
        return "done"

    assert ended(work) == "ClientGone"


def test_a_swallowed_cancellation_is_raised_at_the_end_of_the_work() -> None:
    async def work(job: Cancellation) -> str:
        with suppress(asyncio.CancelledError):  # as some libraries do
            await asyncio.sleep(10)
        job.commit()
        return "done"

    assert ended(work, gone) == "ClientGone"


def test_a_disconnect_after_the_last_byte_is_a_normal_end() -> None:
    async def work(job: Cancellation) -> str:
        job.commit()
        gone(job)
        await asyncio.sleep(0)
        return "done"

    assert ended(work) == "done"


def test_a_disconnect_during_an_error_response_keeps_the_error() -> None:
    async def work(job: Cancellation) -> str:
        job.shield()
        gone(job)
        await asyncio.sleep(0)
        return "error sent"

    assert ended(work) == "error sent"


@pytest.mark.parametrize("clock_first", [True, False])
def test_a_simultaneous_timeout_does_not_hide_a_disconnect(clock_first: bool) -> None:
    """``asyncio.timeout`` uncancels only its own cancellation."""

    async def work(job: Cancellation) -> str:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(60) as clock:
            if not clock_first:
                loop.call_soon(gone, job)
            clock.reschedule(loop.time())
            if clock_first:
                loop.call_soon(gone, job)
            await asyncio.sleep(10)
        return "done"

    assert ended(work) == "ClientGone"


def test_a_timeout_inside_the_work_is_not_a_disconnect() -> None:
    async def work(job: Cancellation) -> str:
        try:
            async with asyncio.timeout(0.01):
                await asyncio.sleep(10)
        except TimeoutError:
            return "late"
        return "done"

    assert ended(work) == "late"


TOTAL = 0.5


class ClosesSlowly:
    """A layer that takes a while to close its backend."""

    def __init__(self, inner: Backend) -> None:
        self._inner = inner

    @asynccontextmanager
    async def open(self, exchange: Exchange) -> AsyncIterator[Events]:
        async with self._inner.open(exchange) as events:
            try:
                yield events
            finally:
                await asyncio.sleep(6 * TOTAL)


@pytest.mark.parametrize("leaves", [gone, lambda job: job.cancel(ServerDraining(""))], ids=["client", "process"])
@pytest.mark.parametrize("listens", [True, False], ids=["waiting for the engine", "waiting for the client"])
@pytest.mark.parametrize("when", ["with it", "while it closes"])
def test_a_simultaneous_total_timeout_does_not_hide_a_cancellation(
    when: str, listens: bool, leaves: Callable[[Cancellation], None]
) -> None:
    """``Timeouts`` uncancels only its own cancellation, once."""

    async def work(job: Cancellation) -> str:
        loop = asyncio.get_running_loop()
        engine = ClosesSlowly(RecordingBackend(["a", {"pause": 9}]))
        async with Timeouts(engine, 60, TOTAL, OBSERVER).open(exchange()) as events:
            await events.next_batch()
            await events.next_batch()
            loop.call_later(2 * TOTAL if when == "while it closes" else TOTAL, leaves, job)
            await (events.next_batch() if listens else asyncio.sleep(9))
        return "done"

    assert ended(work) == ("ClientGone" if leaves is gone else "ServerDraining")
