"""Many deadlines, one timer: none rings early, none is forgotten, and nothing ticks when there is none."""

from __future__ import annotations

import asyncio

import pytest

from gateway.core.errors import UpstreamTimeout
from gateway.policy.deliver.ticker import SLOTS, STEP, Clock, Ticker

LATE = 0.2
"""Seconds that a busy machine may add."""


class Alarm(Clock):
    """Rings at a time, and notes when it was looked at."""

    def __init__(self, ticker: Ticker, after: float) -> None:
        super().__init__()
        self.loop = asyncio.get_running_loop()
        self.due = self.loop.time() + after
        self.looks: list[float] = []
        self.ticker = ticker
        ticker.set(self, self.due, self.loop)

    def look(self, now: float) -> None:
        self.looks.append(now)
        if now < self.due:
            self.ticker.set(self, self.due, self.loop)
        else:
            self.ring(UpstreamTimeout("time is up"))


async def rung(ticker: Ticker, after: float) -> Alarm:
    """Wait for longer than the alarm allows."""
    alarm = Alarm(ticker, after)
    try:
        await asyncio.sleep(after + 9)
    except asyncio.CancelledError as error:
        with pytest.raises(UpstreamTimeout):
            alarm.convert(error)
    return alarm


@pytest.mark.parametrize("after", [-1.0, 0.0, STEP / 2, STEP, 5.5 * STEP, (SLOTS + 3) * STEP])
def test_a_clock_rings_once_and_never_early(after: float) -> None:
    alarm = asyncio.run(rung(Ticker(), after))
    assert alarm.looks[-1] >= alarm.due
    assert alarm.looks[-1] - max(alarm.due, alarm.looks[0] - STEP) < STEP + LATE
    assert [look >= alarm.due for look in alarm.looks].count(True) == 1


def test_many_clocks_ring_each_at_its_time() -> None:
    async def run() -> None:
        ticker = Ticker()
        alarms = await asyncio.gather(*(rung(ticker, at * 0.007) for at in range(40)))
        for alarm in alarms:
            assert 0 <= alarm.looks[-1] - alarm.due < STEP + LATE

    asyncio.run(run())


def test_a_stopped_clock_is_not_looked_at_and_the_ticker_rests() -> None:
    async def run() -> None:
        ticker = Ticker()
        stopped = Alarm(ticker, 2 * STEP)
        stopped.stop()
        await asyncio.sleep(6 * STEP)
        assert stopped.looks == []
        assert await rung(ticker, STEP)  # it starts again for the next

    asyncio.run(run())


def test_the_same_ticker_serves_the_next_loop() -> None:
    ticker = Ticker()

    async def leave() -> None:
        Alarm(ticker, 9)

    asyncio.run(leave())
    assert asyncio.run(rung(ticker, STEP)).looks


def test_a_cancellation_of_somebody_else_is_no_timeout() -> None:
    async def wait(alarms: list[Alarm]) -> None:
        alarm = Alarm(Ticker(), 9)
        alarms.append(alarm)
        try:
            await asyncio.sleep(9)
        except asyncio.CancelledError as error:
            alarm.convert(error)
            raise

    async def run() -> None:
        alarms: list[Alarm] = []
        task = asyncio.create_task(wait(alarms))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()

    asyncio.run(run())
