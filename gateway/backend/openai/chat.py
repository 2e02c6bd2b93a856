"""How does a chat server get the conversation? As messages; its own template renders them."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from gateway.backend.engines import CHAT_PARAMS, ENGINES
from gateway.backend.http_client.client import HttpClient
from gateway.backend.openai.backend import PATHS, Upstream
from gateway.backend.openai.events import CHAT
from gateway.backend.openai.request_body import common_fields, unsent_stops, unverified
from gateway.config.snapshot import TargetSpec
from gateway.core.errors import UnsupportedParameter
from gateway.core.exchange import Events, Exchange


class ChatBackend:
    """``speaks: chat``: an OpenAI-compatible server that takes messages."""

    def __init__(self, target: TargetSpec, client: HttpClient, connect_timeout: float = 2.0) -> None:
        self._upstream = Upstream(target, client, connect_timeout)
        capabilities = self.capabilities = ENGINES[target.engine]
        self._known = CHAT_PARAMS | capabilities.sampling | capabilities.chat

    def open(self, exchange: Exchange) -> AbstractAsyncContextManager[Events]:
        """Ask the server; ``UnsupportedParameter`` for a raw prompt, which messages cannot say."""
        if exchange.endpoint == "embeddings":
            return self._upstream.embed(exchange)
        if not exchange.messages:
            raise UnsupportedParameter("this model's target takes messages, not a prompt", param="prompt")
        capabilities = self.capabilities
        shared = common_fields(exchange, capabilities, capabilities.chat_stops)
        body = {**exchange.params, "messages": list(exchange.messages), **shared}
        notices = (*unsent_stops(exchange, capabilities.chat_stops), *unverified(exchange, self._known))
        return self._upstream.complete(exchange, PATHS["chat"], body, CHAT, notices)
