"""The listener beside the work: who is told what when the client leaves, or when we are stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from gateway.edge.asked import Message
from gateway.edge.hangup import ClientGone, until_hangup


async def stays() -> Message:
    await asyncio.Event().wait()
    raise AssertionError


async def leaves() -> Message:
    return {"type": "http.disconnect"}


async def lets_go_slowly() -> Message:
    """A server that takes a moment to give up waiting."""
    try:
        return await stays()
    finally:
        await asyncio.sleep(0.05)


async def breaks() -> Message:
    raise OSError("the connection broke in an odd way")


def test_a_client_that_leaves_ends_the_work() -> None:
    async def run() -> None:
        async with until_hangup(leaves):
            await asyncio.sleep(10)

    with pytest.raises(ClientGone):
        asyncio.run(run())


def test_a_client_that_stays_changes_nothing() -> None:
    async def run() -> str:
        async with until_hangup(stays):
            return "done"

    assert asyncio.run(run()) == "done"


@pytest.mark.parametrize("moment", [0.0, 0.02], ids=["in the work", "while the listener ends"])
def test_a_cancellation_from_outside_goes_on_its_way(moment: float) -> None:
    async def work() -> str:
        async with until_hangup(lets_go_slowly):
            await asyncio.sleep(0.01)
        return "swallowed"

    async def run() -> bool:
        task = asyncio.create_task(work())
        await asyncio.sleep(moment)
        task.cancel()
        await asyncio.wait([task])
        return task.cancelled()

    assert asyncio.run(run())


def test_a_listener_that_breaks_is_heard_of() -> None:
    async def run() -> None:
        async with until_hangup(breaks):
            await asyncio.sleep(0)

    with pytest.raises(OSError, match="odd way"):
        asyncio.run(run())


class DeadWhenTold:
    """A line of our own server, as far as the work can see it."""

    def __init__(self, *, dead: bool = False) -> None:
        self.on_hangup: Callable[[], None] | None = None
        self._dead = dead

    def dead(self) -> bool:
        return self._dead

    def hang_up(self) -> None:
        if self.on_hangup is not None:
            self.on_hangup()


def test_a_line_that_is_dead_already_ends_the_work_before_it_begins() -> None:
    async def run() -> None:
        async with until_hangup(stays, DeadWhenTold(dead=True)):
            raise AssertionError("nobody is there to work for")

    with pytest.raises(ClientGone):
        asyncio.run(run())


@pytest.mark.parametrize("waits", [True, False], ids=["in the work", "as the work is done"])
def test_a_line_that_goes_dead_ends_the_work(waits: bool) -> None:
    async def run() -> None:
        line = DeadWhenTold()
        async with until_hangup(stays, line):
            line.hang_up()
            if waits:
                await asyncio.sleep(10)

    with pytest.raises(ClientGone):
        asyncio.run(run())


def test_a_line_that_goes_dead_after_the_last_byte_is_an_ordinary_end() -> None:
    async def run() -> str:
        line = DeadWhenTold()
        async with until_hangup(stays, line) as settle:
            settle()
            line.hang_up()
            await asyncio.sleep(0)
        line.hang_up()
        return "done"

    assert asyncio.run(run()) == "done"


def test_a_cancellation_from_outside_is_not_the_client_leaving() -> None:
    async def work() -> None:
        async with until_hangup(stays, DeadWhenTold()):
            await asyncio.sleep(10)

    async def run() -> bool:
        task = asyncio.create_task(work())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        return task.cancelled()

    assert asyncio.run(run())
