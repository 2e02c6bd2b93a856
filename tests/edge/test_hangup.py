"""Who is told what when the client leaves, when the process leaves, or when somebody else stops the work?"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest

from gateway.core.errors import ServerDraining
from gateway.core.exchange import Backend, Events, Exchange
from gateway.edge.cancellation import Cancellation, ClientGone
from gateway.policy.deliver.timeouts import Timeouts
from tests.policy.responses import exchange
from tests.recording_backend import RecordingBackend


def ended(
    work: Callable[[Cancellation], Awaitable[str]], then: Callable[[Cancellation], None] = lambda work: None
) -> str:
    """How ``work`` ends when ``then`` happens as soon as it waits."""

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

    return asyncio.run(run())


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
    "the client leaves before the process": (gone_then_drained, "ClientGone"),
    "somebody else stops it": (stopped, "cancelled"),
    "the client leaves and somebody else stops it": (both, "cancelled"),
}  # fmt: skip


@pytest.mark.parametrize(("then", "how"), THEN.values(), ids=THEN)
def test_the_reason_comes_out_of_the_work(then: Callable[[Cancellation], None], how: str) -> None:
    assert ended(long, then) == how


def test_work_that_nobody_ends_is_done() -> None:
    async def work(job: Cancellation) -> str:
        await asyncio.sleep(0)
        job.commit()
        return "done"

    assert ended(work) == "done"


def test_a_client_that_leaves_before_the_work_begins_ends_it() -> None:
    async def run() -> str:
        job = Cancellation()

        async def owner() -> None:
            raise AssertionError("nobody is there to work for")

        task = asyncio.create_task(owner())
        job.task = task
        gone(job)
        await asyncio.wait([task])
        return "cancelled" if task.cancelled() else "ran"

    assert asyncio.run(run()) == "cancelled"


def test_a_client_that_leaves_as_the_work_is_done_is_noticed() -> None:
    async def work(job: Cancellation) -> str:
        gone(job)  # its cancellation would come at the next wait, and there is none
        job.commit()
        return "done"

    assert ended(work) == "ClientGone"


def test_a_lost_cancellation_is_noticed_when_the_work_is_done() -> None:
    async def work(job: Cancellation) -> str:
        with suppress(asyncio.CancelledError):  # as a careless library does
            await asyncio.sleep(10)
        job.commit()
        return "done"

    assert ended(work, gone) == "ClientGone"


def test_a_client_that_leaves_after_the_last_byte_is_an_ordinary_end() -> None:
    async def work(job: Cancellation) -> str:
        job.commit()
        gone(job)
        await asyncio.sleep(0)
        return "done"

    assert ended(work) == "done"


def test_a_client_that_leaves_a_failure_that_is_being_told_changes_nothing() -> None:
    async def work(job: Cancellation) -> str:
        job.shield()
        gone(job)
        await asyncio.sleep(0)
        return "told"

    assert ended(work) == "told"


@pytest.mark.parametrize("clock_first", [True, False])
def test_a_clock_that_rings_as_the_client_leaves_does_not_hide_it(clock_first: bool) -> None:
    """The two cancellations are counted apart (``asyncio.timeout`` takes back its own only)."""

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


def test_a_clock_that_rings_in_the_work_is_no_hangup() -> None:
    async def work(job: Cancellation) -> str:
        try:
            async with asyncio.timeout(0.01):
                await asyncio.sleep(10)
        except TimeoutError:
            return "late"
        return "done"

    assert ended(work) == "late"


TOTAL = 0.05


class ClosesSlowly:
    """A backend that plays nothing, and takes its time to be closed."""

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
def test_a_total_that_is_up_as_somebody_leaves_hides_nobody(
    when: str, listens: bool, leaves: Callable[[Cancellation], None]
) -> None:
    """Our clock takes back its own cancellation, once."""

    async def work(job: Cancellation) -> str:
        loop = asyncio.get_running_loop()
        engine = ClosesSlowly(RecordingBackend(["a", {"pause": 9}]))
        async with Timeouts(engine, 60, TOTAL).open(exchange()) as events:
            await events.next_batch()
            await events.next_batch()
            loop.call_later(2 * TOTAL if when == "while it closes" else TOTAL, leaves, job)
            if when == "with it":
                time.sleep(2 * TOTAL)  # noqa: ASYNC251  # so that both come in one turn of the loop
            await (events.next_batch() if listens else asyncio.sleep(9))
        return "done"

    assert ended(work) == ("ClientGone" if leaves is gone else "ServerDraining")
