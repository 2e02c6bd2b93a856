"""How does a chat server get the conversation? As messages; its own template renders them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager

from gateway.backend.answers import CHAT
from gateway.backend.completions import common_fields
from gateway.backend.engines import ENGINES
from gateway.backend.http import HttpClient
from gateway.backend.upstream import PATHS, Upstream
from gateway.config.snapshot import TargetSpec
from gateway.core.errors import UnsupportedParameter
from gateway.core.events import Event
from gateway.core.exchange import Exchange


class ChatBackend:
    """``speaks: chat``: an OpenAI-compatible server that takes messages."""

    def __init__(self, target: TargetSpec, client: HttpClient, connect_timeout: float = 2.0) -> None:
        self._upstream = Upstream(target, client, connect_timeout)
        self._dialect = ENGINES[target.engine]

    def open(self, exchange: Exchange) -> AbstractAsyncContextManager[AsyncIterator[Event]]:
        """Ask the server; ``UnsupportedParameter`` for a raw prompt, which messages cannot say."""
        if exchange.endpoint == "embeddings":
            return self._upstream.embed(exchange)
        if not exchange.messages:
            raise UnsupportedParameter("this model's target takes messages, not a prompt", param="prompt")
        body = {**exchange.params, "messages": list(exchange.messages), **common_fields(exchange, self._dialect)}
        return self._upstream.complete(exchange, PATHS["chat"], body, CHAT)
