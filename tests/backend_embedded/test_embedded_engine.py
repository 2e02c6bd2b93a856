"""Batches, hang-ups, sharing: the engine's task seen from outside."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from gateway.backend.embedded.backend import EmbeddedBackend
from gateway.backend.embedded.cache import EngineCache
from gateway.backend.embedded.engine import EmbeddedEngine
from gateway.core.errors import Overloaded
from metatemplate.values.events import Begun, Delta
from tests.backend_embedded.conftest import DEMO, RIGHT, demo_target, exchange, hear
from tests.support.events import each_event

ENDLESS = exchange(RIGHT.format("1+1"), temperature=0, max_tokens=400, ignore_eos=True)


def slow(demo: EmbeddedBackend, delay: float) -> EmbeddedBackend:
    return EmbeddedBackend(demo_target("slow/0", options={"token_delay": delay}), demo.engine)


async def until_idle(engine: EmbeddedEngine, limit: float = 60) -> float:
    """Seconds until the engine has nothing to do; fails after ``limit``."""
    began = time.monotonic()
    while engine.active:
        assert time.monotonic() - began < limit
        await asyncio.sleep(0.002)
    return time.monotonic() - began


def test_a_model_loads_in_a_moment() -> None:
    EmbeddedEngine(DEMO)
    began = time.process_time()
    EmbeddedEngine(DEMO)
    assert time.process_time() - began < 3


def test_eight_at_once_get_what_each_gets_alone(demo: EmbeddedBackend) -> None:
    asked = [exchange(RIGHT.format(f"{i}+{7 * i}") * (i % 3 + 1), temperature=0, max_tokens=24) for i in range(8)]

    async def together() -> list[str]:
        return [heard.text() for heard in await asyncio.gather(*[hear(demo, one) for one in asked])]

    alone = [asyncio.run(hear(demo, one)).text() for one in asked]
    assert asyncio.run(together()) == alone


def test_neighbours_do_not_disturb_a_seed(demo: EmbeddedBackend) -> None:
    seeded = exchange("<HUMAN>: ", seed=11, temperature=1.5, max_tokens=40, ignore_eos=True)
    noise = exchange("<BOT>: ", temperature=2, max_tokens=40, n=4)

    async def crowded() -> str:
        heard, *_ = await asyncio.gather(hear(demo, seeded), *[hear(demo, noise) for _ in range(4)])
        return heard.text()

    assert asyncio.run(crowded()) == asyncio.run(hear(demo, seeded)).text()


LEAVING = {"before the first event": 0, "after the first event": 1, "in the middle": 4}


@pytest.mark.parametrize("when", LEAVING)
async def test_leaving_frees_the_place(demo: EmbeddedBackend, when: str) -> None:
    async with slow(demo, 0.01).open(ENDLESS) as events:
        for _ in range(LEAVING[when]):
            await events.next_batch()
    await until_idle(demo.engine)


async def test_a_cancelled_task_frees_the_place(demo: EmbeddedBackend) -> None:
    task = asyncio.create_task(hear(slow(demo, 0.5), ENDLESS))
    while not demo.engine.active:  # noqa: ASYNC110 - the engine has no event for this
        await asyncio.sleep(0.002)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until_idle(demo.engine)


async def test_a_delayed_choice_is_computed_at_its_pace(demo: EmbeddedBackend) -> None:
    """The engine does not compute ahead of the delay, so the choice still runs while the client reads it."""
    delayed = exchange(RIGHT.format("1+1"), temperature=0, max_tokens=30, ignore_eos=True)
    async with slow(demo, 2.0).open(delayed) as batches:
        events = each_event(batches)
        assert isinstance(await anext(events), Begun)
        assert isinstance(await anext(events), Delta)
        # More steps than the delayed choice has tokens: without the pace it would have ended with these.
        await hear(demo, exchange(RIGHT.format("1+1"), temperature=0, max_tokens=60, ignore_eos=True))
        assert demo.engine.active == 1
    await until_idle(demo.engine)


async def test_a_cancelled_choice_does_not_wait_for_its_delay(demo: EmbeddedBackend) -> None:
    async with slow(demo, 60.0).open(ENDLESS):
        while not demo.engine.active:  # noqa: ASYNC110 - the engine has no event for this
            await asyncio.sleep(0.002)
    await until_idle(demo.engine, limit=30)


async def test_a_step_of_the_prompt_has_no_delay(demo: EmbeddedBackend) -> None:
    """A prompt of three chunks gets its first token before a short prompt gets its second one."""
    delayed, first = slow(demo, 2.0), list[str]()

    async def listen(name: str, prompt: str, deltas: int) -> None:
        asked = exchange(prompt, temperature=0, max_tokens=3, ignore_eos=True)
        async with delayed.open(asked) as batches:
            events = each_event(batches)
            for _ in range(1 + deltas):
                await anext(events)
            first.append(name)

    await asyncio.gather(listen("long", "1+1=?" * 60, 1), listen("short", "1+1=?", 2))
    await until_idle(demo.engine)
    assert first == ["long", "short"]


async def test_delayed_choices_take_no_place_of_others(demo: EmbeddedBackend) -> None:
    crowd = exchange(RIGHT.format("2+2"), n=100, temperature=0)
    async with slow(demo, 60.0).open(crowd):
        assert (await hear(demo, exchange(RIGHT.format("1+1"), temperature=0, stops=["<eob>"]))).text() == "2"
    await until_idle(demo.engine)


async def test_a_cancelled_choice_leaves_the_queue(demo: EmbeddedBackend) -> None:
    patient = slow(demo, 60.0)
    async with patient.open(exchange(RIGHT.format("2+2"), n=32, temperature=0)):
        async with patient.open(exchange(RIGHT.format("2+2"), n=4096, temperature=0)):
            pass
        async with asyncio.timeout(60):
            while demo.engine.active > 32:  # noqa: ASYNC110 - the engine has no event for this
                await asyncio.sleep(0.002)
    await until_idle(demo.engine)


async def test_tokens_come_one_by_one_and_a_slow_target_slows_nobody_else(demo: EmbeddedBackend) -> None:
    async with slow(demo, 1.0).open(ENDLESS) as batches:
        events = each_event(batches)
        assert isinstance(await anext(events), Begun)
        assert isinstance(await anext(events), Delta)
        began = time.monotonic()
        await hear(demo, exchange(RIGHT.format("1+1"), temperature=0, max_tokens=30, ignore_eos=True))
        assert time.monotonic() - began < 20  # thirty tokens at the other's pace take 30
        assert isinstance(await anext(events), Delta)
    await until_idle(demo.engine)


def test_more_choices_than_seats_wait_their_turn(demo: EmbeddedBackend) -> None:
    heard = asyncio.run(hear(demo, exchange(RIGHT.format("2+2"), n=100, temperature=0, stops=["<eob>"])))
    assert [heard.text(index) for index in range(100)] == ["4"] * 100


async def test_a_full_queue_is_overloaded(demo: EmbeddedBackend) -> None:
    crowd = exchange(RIGHT.format("2+2"), n=4096, temperature=0)
    patient = slow(demo, 5.0)
    async with patient.open(crowd):
        with pytest.raises(Overloaded):
            await hear(patient, crowd)
    await until_idle(demo.engine)


def test_the_engine_serves_one_event_loop_after_another() -> None:
    engine = EmbeddedEngine(DEMO)
    backend = EmbeddedBackend(demo_target(), engine)
    asked = exchange(RIGHT.format("1+1"), temperature=0, stops=["<eob>"])
    assert asyncio.run(hear(backend, asked)).text() == "2"
    assert asyncio.run(hear(backend, asked)).text() == "2"


def test_targets_of_one_folder_share_an_engine(cache: EngineCache, demo: EmbeddedBackend) -> None:
    assert cache.get(demo_target("demo-wrong-template/0")) is demo.engine
    shorter = cache.get(demo_target("short/0", options={"max_model_len": 32}))
    assert shorter is not demo.engine
    assert shorter.max_model_len == 32


def test_a_changed_folder_is_another_model(tmp_path: Path) -> None:
    for file in DEMO.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    cache, target = EngineCache(), demo_target()
    target = type(target)(label="mine/0", speaks="embedded", path=tmp_path)
    first = cache.get(target)
    assert cache.get(target) is first
    (tmp_path / "config.json").write_text((tmp_path / "config.json").read_text() + "\n")
    assert cache.get(target) is not first
