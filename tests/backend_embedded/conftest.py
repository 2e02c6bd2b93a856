"""The demo model, loaded once, and a way to ask it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gateway.backend.embedded.backend import EmbeddedBackend
from gateway.backend.embedded.cache import EngineCache
from gateway.config.snapshot import TargetSpec
from gateway.core.exchange import Exchange, RawPrompt
from metatemplate.values.events import Begun, Delta, Event, Finish, TokenLogprob, Usage
from tests.support.events import each_event

DEMO = Path(__file__).parents[2] / "demo" / "model"
RIGHT = "<HUMAN>: {}=?<eoh>\n<BOT>: "


@dataclass(frozen=True, slots=True)
class Heard:
    """What came back of one exchange."""

    events: tuple[Event, ...]

    def text(self, index: int = 0) -> str:
        return "".join(event.text for event in self.events if isinstance(event, Delta) and event.index == index)

    def logprobs(self, index: int = 0) -> list[TokenLogprob]:
        deltas = [event for event in self.events if isinstance(event, Delta) and event.index == index]
        return [entry for delta in deltas for entry in delta.logprobs or ()]

    def finish(self, index: int = 0) -> Finish:
        [finish] = [event for event in self.events if isinstance(event, Finish) and event.index == index]
        return finish

    @property
    def usage(self) -> Usage:
        [usage] = [event for event in self.events if isinstance(event, Usage)]
        return usage


def exchange(*prompts: RawPrompt, stops: Sequence[str] = (), n: int = 1, **params: Any) -> Exchange:
    fields = ("answer_format", "bos", "stop_token_ids", "stream", "stream_options", "endpoint")
    own = {key: params.pop(key) for key in fields if key in params}
    own.setdefault("endpoint", "completions")
    return Exchange(request_id="test", prompts=prompts, stops=tuple(stops), n=n, params=params, **own)


async def hear(backend: EmbeddedBackend, asked: Exchange) -> Heard:
    async with backend.open(asked) as events:
        heard = Heard(tuple([event async for event in each_event(events)]))
    assert isinstance(heard.events[0], Begun)
    return heard


def demo_target(label: str = "demo/0", **fields: Any) -> TargetSpec:
    return TargetSpec(label=label, speaks="embedded", path=DEMO, **fields)


@pytest.fixture(scope="session")
def cache() -> EngineCache:
    return EngineCache()


@pytest.fixture(scope="session")
def demo(cache: EngineCache) -> EmbeddedBackend:
    target = demo_target()
    return EmbeddedBackend(target, cache.get(target))


@pytest.fixture(scope="session")
def ask(demo: EmbeddedBackend) -> Callable[..., Heard]:
    """Ask the demo model and hear everything it says."""
    return lambda *prompts, **options: asyncio.run(hear(demo, exchange(*prompts, **options)))
