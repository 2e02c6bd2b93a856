"""Backend for OpenAI-compatible servers that accept messages and render the prompt themselves."""

from __future__ import annotations

from typing import Any

from gateway.backend.engines import CHAT_PARAMS
from gateway.backend.http_client.client import HttpClient
from gateway.backend.openai.answer.events import CHAT_FORMAT
from gateway.backend.openai.base import OpenAIBackend
from gateway.backend.openai.request.request_body import add_common_fields, check_fields, stops_notice
from gateway.config.snapshot import TargetSpec
from gateway.core.errors import UnsupportedParameter
from gateway.core.exchange import Exchange


class ChatBackend(OpenAIBackend):
    """Backend of a target with ``speaks: chat``."""

    path = "/chat/completions"
    format = CHAT_FORMAT

    def __init__(self, target: TargetSpec, client: HttpClient, connect_timeout: float = 2.0) -> None:
        """For the parameters see ``OpenAIBackend``."""
        super().__init__(target, client, connect_timeout)
        self._known = CHAT_PARAMS | self.capabilities.sampling | self.capabilities.chat

    def request_body(self, exchange: Exchange) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Return the body of a chat request, and notices. Raises ``UnsupportedParameter`` for a raw prompt."""
        if not exchange.messages:
            raise UnsupportedParameter("this model's target accepts messages, not a raw prompt", param="prompt")
        exchange, notices = check_fields(exchange, self._known)
        max_stops = self.capabilities.chat_stops
        body = {"model": self.model, **exchange.params, "messages": list(exchange.messages)}
        add_common_fields(body, exchange, self.capabilities, max_stops)
        return body, stops_notice(exchange, max_stops) + notices
