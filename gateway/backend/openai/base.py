"""Base class of the backends for OpenAI-compatible servers: one POST for each call."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractAsyncContextManager
from typing import Any, ClassVar

from gateway.backend.engines import ENGINES
from gateway.backend.http_client.client import HttpClient, HttpEndpoint, json_headers
from gateway.backend.openai.embeddings import EmbeddingsEvents
from gateway.backend.openai.events import ChoiceFormat
from gateway.backend.openai.request_body import serialise
from gateway.backend.openai.response_body import EVENT_STREAM, BodyEvents
from gateway.config.snapshot import TargetSpec
from gateway.core.exchange import Events, Exchange

EMBEDDINGS_PATH = "/embeddings"


class OpenAIBackend(ABC):
    """One target at an OpenAI-compatible address."""

    path: ClassVar[str]
    """The path of the completions endpoint, below the target's URL."""
    format: ClassVar[ChoiceFormat]

    def __init__(self, target: TargetSpec, client: HttpClient, connect_timeout: float = 2.0) -> None:
        """``connect_timeout`` is in seconds; all other timeouts belong to ``policy/deliver``."""
        self.capabilities = ENGINES[target.engine]
        self._target = target
        self.model = target.model
        """The model's name at the server."""
        self._label = target.label
        self._client = client
        self._connect_timeout = connect_timeout
        self._endpoints: dict[tuple[str, bool], HttpEndpoint] = {}
        """The endpoints by (path, whether a stream is requested)."""

    @abstractmethod
    def request_body(self, exchange: Exchange) -> tuple[dict[str, Any], tuple[str, ...]]:
        """The body of a completion request, and notices; raises ``RequestError``."""

    def open(self, exchange: Exchange) -> AbstractAsyncContextManager[Events]:
        """See ``Backend``."""
        if exchange.endpoint == "embeddings":
            content = serialise({"model": self.model, **exchange.params})
            return EmbeddingsEvents(self._endpoint(EMBEDDINGS_PATH, False), content, exchange.request_id, self._label)
        stream = exchange.stream
        body, notices = self.request_body(exchange)
        endpoint = self._endpoints.get((self.path, stream)) or self._endpoint(self.path, stream)
        choices = (len(exchange.prompts) or 1) * exchange.n
        return BodyEvents(endpoint, serialise(body), exchange.request_id, self._label, self.format, choices, notices)

    def _endpoint(self, path: str, stream: bool) -> HttpEndpoint:
        """Create the endpoint at the first request: an invalid address must fail calls, not the configuration."""
        url = self._target.url.rstrip("/") + path
        accept = EVENT_STREAM if stream else "application/json"
        endpoint = open_endpoint(self._client, self._target, url, self._connect_timeout, accept)
        self._endpoints[path, stream] = endpoint
        return endpoint


def open_endpoint(
    client: HttpClient,
    target: TargetSpec,
    url: str,
    connect_timeout: float,
    accept: str = "application/json",
    method: str = "POST",
) -> HttpEndpoint:
    """An endpoint of a target's server, with its key. A client's headers are not passed on."""
    key = None if target.key is None else target.key.get_secret_value()
    secrets = () if key is None else (key,)
    return client.endpoint(url, json_headers(key, accept), connect_timeout, secrets, method)
