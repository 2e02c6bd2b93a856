"""Ask a backend around scripted ones, and leave it at any moment."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from gateway.core.errors import GatewayError
from gateway.core.events import Begun, Delta, Event, Finish, Usage
from gateway.core.exchange import Backend, Exchange
from tests.events import each_event


@dataclass
class Heard:
    """The events of one exchange, and the error that ended it, if any."""

    events: list[Event] = field(default_factory=list)
    error: GatewayError | None = None
    seconds: float = 0.0
    log: tuple[str, int, int] = ("", 0, 0)
    """The last target, attempts, and retries among them."""

    @property
    def attempts(self) -> int:
        return self.log[1]

    @property
    def code(self) -> str | None:
        return self.error.code if self.error else None

    @property
    def texts(self) -> dict[int, str]:
        """Index → text, in order of first appearance."""
        texts: dict[int, str] = {}
        for event in self.events:
            if isinstance(event, Delta):
                texts[event.index] = texts.get(event.index, "") + event.text
        return texts

    @property
    def finishes(self) -> list[tuple[int, str]]:
        return [(event.index, event.reason) for event in self.events if isinstance(event, Finish)]

    @property
    def begun(self) -> list[Begun]:
        return [event for event in self.events if isinstance(event, Begun)]

    @property
    def usages(self) -> list[Usage]:
        return [event for event in self.events if isinstance(event, Usage)]


def exchange(*prompts: str, **changes: Any) -> Exchange:
    """A streaming completions exchange."""
    given = {"prompts": prompts or ("hi",), "prompt_is_list": len(prompts) > 1, "stream": True, **changes}
    return Exchange(endpoint="completions", request_id="req-1", **given)


def ask(backend: Backend, asked: Exchange | None = None) -> Heard:
    """One exchange from beginning to end."""
    return asyncio.run(listen(backend, asked))


async def listen(backend: Backend, asked: Exchange | None = None) -> Heard:
    """One exchange inside a running loop."""
    heard, asked = Heard(), asked or exchange()
    loop = asyncio.get_running_loop()
    start = loop.time()
    try:
        async with asyncio.timeout(10), backend.open(asked) as events:
            async for event in each_event(events):
                heard.events.append(event)
    except GatewayError as error:
        heard.error = error
    heard.seconds = loop.time() - start
    heard.log = (asked.attempts.target, asked.attempts.count, asked.attempts.retries)
    return heard


def leave_after(backend: Backend, count: int, asked: Exchange | None = None) -> None:
    """Take ``count`` events, then leave."""

    async def run() -> None:
        async with backend.open(asked or exchange()) as events:
            await _take(each_event(events), count)

    asyncio.run(run())


def cancel_after(backend: Backend, seconds: float, asked: Exchange | None = None) -> None:
    """Be cancelled while waiting for the first or a later event, as a client's hang-up does."""

    async def run() -> None:
        task = asyncio.create_task(listen(backend, asked))
        await asyncio.sleep(seconds)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()

    asyncio.run(run())


async def _take(events: AsyncIterator[Event], count: int) -> None:
    for _ in range(count):
        await anext(events)
