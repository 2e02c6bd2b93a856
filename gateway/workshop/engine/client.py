"""Requests to the engine that is checked. They are counted, and each has a time limit."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from gateway.backend.http_client.client import HttpClient
from gateway.backend.openai.base import open_endpoint
from gateway.backend.openai.chat import ChatBackend
from gateway.backend.openai.completions import CompletionsBackend
from gateway.backend.openai.tokenizer_client import TokenizerClient
from gateway.cli.connecting.engine import CONNECT_SECONDS, ServedModel, served_models
from gateway.config.snapshot import TargetSpec
from gateway.core.errors import UpstreamTimeout
from gateway.core.exchange import Exchange
from gateway.stream.completion_builder import CompletionBuilder
from metatemplate.values.events import Completion

MAX_TIMEOUTS = 2
"""After this number of requests without an answer, no further request is sent."""
BACKENDS = {"chat": ChatBackend, "completions": CompletionsBackend}

T = TypeVar("T")


@dataclass(slots=True)
class EngineClient:
    """Sends requests to one engine, up to the number that was announced. Methods raise ``GatewayError``."""

    target: TargetSpec
    seconds: float
    """The seconds that one request may take."""
    max_requests: int
    sent: int = 0
    """The number of requests so far."""
    timeouts: int = 0
    """The number of requests that got no answer in time."""

    async def models(self) -> tuple[ServedModel, ...]:
        """Return the models that the engine lists."""
        url = f"{self.target.url.rstrip('/')}/models"
        opened = partial(open_endpoint, target=self.target, url=url, connect_timeout=CONNECT_SECONDS, method="GET")
        return await self._counted(lambda client: served_models(opened(client), self.target.label))

    async def ask(self, path: str, fields: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the JSON object that a path outside ``/v1`` answers. See ``TokenizerClient.ask``."""
        opened = partial(TokenizerClient, self.target, connect_timeout=CONNECT_SECONDS, timeout=self.seconds)
        return await self._counted(lambda client: opened(client=client).ask(path, fields))

    async def complete(self, exchange: Exchange) -> Completion:
        """Return the answer of the completions or the chat endpoint, with its events."""
        return await self._counted(partial(self._complete, exchange))

    async def _complete(self, exchange: Exchange, client: HttpClient) -> Completion:
        builder = CompletionBuilder(keep_events=True)
        async with BACKENDS[exchange.endpoint](self.target, client, CONNECT_SECONDS).open(exchange) as events:
            while batch := await events.next_batch():
                for event in batch:
                    builder.add(event)
        return builder.result()

    async def _counted(self, request: Callable[[HttpClient], Awaitable[T]]) -> T:
        if self.timeouts >= MAX_TIMEOUTS or self.sent >= self.max_requests:
            raise UpstreamTimeout("not asked: requests got no answer, or all announced requests are used")
        self.sent += 1
        client = HttpClient()  # a new connection for each request: none is repeated because an old one was closed
        try:
            async with asyncio.timeout(self.seconds):
                return await request(client)
        except (TimeoutError, UpstreamTimeout):
            self.timeouts += 1
            raise UpstreamTimeout(f"the engine did not answer within {self.seconds:g} s") from None
        finally:
            await client.aclose()
