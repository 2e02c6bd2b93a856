"""Ask a backend one question and keep everything that comes back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import SecretStr

from gateway.backend.http_client.client import HttpClient
from gateway.backend.openai.chat import ChatBackend
from gateway.backend.openai.completions import CompletionsBackend
from gateway.config.snapshot import TargetSpec
from gateway.core.errors import GatewayError
from gateway.core.exchange import Backend, Exchange
from metatemplate.values.events import Begun, Delta, Event, Finish, Usage
from tests.support.events import each_event

USER = ({"role": "user", "content": "1+1=?"},)


@dataclass
class Heard:
    """What came back: events, and the error that ended them, if any."""

    events: list[Event] = field(default_factory=list)
    error: GatewayError | None = None

    def text(self, index: int = 0) -> str:
        return "".join(event.text for event in self.deltas if event.index == index)

    @property
    def deltas(self) -> list[Delta]:
        return [event for event in self.events if isinstance(event, Delta)]

    @property
    def finishes(self) -> dict[int, str]:
        return {event.index: event.reason for event in self.events if isinstance(event, Finish)}

    @property
    def usage(self) -> Usage | None:
        return next((event for event in self.events if isinstance(event, Usage)), None)

    @property
    def begun(self) -> Begun:
        return next(event for event in self.events if isinstance(event, Begun))

    @property
    def code(self) -> str | None:
        return self.error.code if self.error else None


def target(url: str, **changes: Any) -> TargetSpec:
    return TargetSpec(
        **{"label": "m/0", "speaks": "completions", "url": url, "model": "tiny", "key": SecretStr("sk-op"), **changes}
    )


def exchange(stream: bool = True, **changes: Any) -> Exchange:
    """A completions exchange with one prompt."""
    return Exchange(
        **{"endpoint": "completions", "request_id": "req-1", "prompts": ("1+1=",), "stream": stream, **changes}
    )


def chat_exchange(stream: bool = True, **changes: Any) -> Exchange:
    return Exchange(**{"endpoint": "chat", "request_id": "req-1", "messages": USER, "stream": stream, **changes})


async def listen(backend: Backend, asked: Exchange) -> Heard:
    heard = Heard()
    try:
        async with asyncio.timeout(60), backend.open(asked) as events:
            async for event in each_event(events):
                heard.events.append(event)
    except GatewayError as error:
        heard.error = error
    return heard


def ask(make: Callable[[HttpClient], Backend], *asked: Exchange) -> list[Heard]:
    """The same client and backend, one exchange after the other."""

    async def run() -> list[Heard]:
        client = HttpClient()
        backend = make(client)
        try:
            return [await listen(backend, one) for one in asked]
        finally:
            await client.aclose()

    return asyncio.run(run())


def complete(
    url: str, stream: bool = True, spec: Mapping[str, Any] | None = None, connect_timeout: float = 60.0, **changes: Any
) -> Heard:
    """One completions exchange."""
    spec = spec or {}
    return ask(
        lambda client: CompletionsBackend(target(url, **spec), client, connect_timeout), exchange(stream, **changes)
    )[0]


def chat(url: str, stream: bool = True, spec: Mapping[str, Any] | None = None, **changes: Any) -> Heard:
    """One chat exchange."""
    made = {"speaks": "chat", **(spec or {})}
    return ask(lambda client: ChatBackend(target(url, **made), client, 60.0), chat_exchange(stream, **changes))[0]
