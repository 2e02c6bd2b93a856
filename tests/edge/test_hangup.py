"""The listener beside the work: who is told what when the client leaves, or when we are stopped."""

from __future__ import annotations

import asyncio

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
