"""Base class of the backends for OpenAI-compatible servers: one POST for each call."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractAsyncContextManager
from importlib import import_module
from typing import Any, ClassVar

from gateway.backend.engines import ENGINES
from gateway.backend.http_client.client import ConnectionPool, HttpClient, HttpEndpoint, PoolFactory, json_headers
from gateway.backend.openai.answer.events import ChoiceFormat, ChunkReader
from gateway.backend.openai.answer.response_body import EVENT_STREAM, BodyEvents
from gateway.backend.openai.embeddings import EmbeddingsEvents
from gateway.backend.openai.request.request_body import serialise
from gateway.backend.openai.upstream_request import upstream_id
from gateway.config.snapshot import TargetSpec
from gateway.core.exchange import Events, Exchange

EMBEDDINGS_PATH = "/embeddings"


class OpenAIBackend(ABC):
    """One target at an OpenAI-compatible address."""

    path: ClassVar[str]
    """The path of the completions endpoint, below the target's URL."""
    format: ClassVar[ChoiceFormat]

    def __init__(self, target: TargetSpec, client: HttpClient, connect_timeout: float = 2.0) -> None:
        """``connect_timeout`` is in seconds; the layers in ``policy/deliver`` apply all other timeouts."""
        self.capabilities = ENGINES[target.engine]
        self._target = target
        self.model = target.model
        """The name of the model at the server."""
        self._client = client
        self._connect_timeout = connect_timeout
        if target.proxy or target.authorities:
            import_module("gateway.backend.http_client.network")  # for ``open_endpoint``
        self._endpoints: dict[bool | None, HttpEndpoint] = {}
        """Whether a completion is a stream, None for embeddings → the endpoint."""

    @abstractmethod
    def request_body(self, exchange: Exchange) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Return the body of a completion request, and notices. Raises ``RequestError`` for an unsupported field."""

    def open(self, exchange: Exchange) -> AbstractAsyncContextManager[Events]:
        """Send the exchange to the server. See ``Backend.open``."""
        headers = f"x-request-id: {upstream_id(exchange.request_id)}\r\n"
        if trace := exchange.caller.trace:
            headers += "".join([f"{name}: {value}\r\n" for name, value in trace.items()])
        if exchange.endpoint == "embeddings":
            content = serialise({"model": self.model, **exchange.params})
            endpoint = self._endpoints.get(None) or self._endpoint(None)
            return EmbeddingsEvents(endpoint, content, headers, self._target.label)
        body, notices = self.request_body(exchange)
        endpoint = self._endpoints.get(exchange.stream) or self._endpoint(exchange.stream)
        choices = (len(exchange.prompts) or 1) * exchange.n
        reader = ChunkReader(self.format, self._target.label, choices, notices, endpoint.private)
        return BodyEvents(endpoint, serialise(body), headers, self._target.label, reader)

    def _endpoint(self, stream: bool | None) -> HttpEndpoint:
        """Create an endpoint at its first request, so that an invalid address fails calls and not the configuration."""
        url = self._target.url.rstrip("/") + (EMBEDDINGS_PATH if stream is None else self.path)
        accept = EVENT_STREAM if stream else "application/json"
        endpoint = open_endpoint(self._client, self._target, url, self._connect_timeout, accept)
        self._endpoints[stream] = endpoint
        return endpoint


def open_endpoint(
    client: HttpClient,
    target: TargetSpec,
    url: str,
    connect_timeout: float,
    accept: str = "application/json",
    method: str = "POST",
) -> HttpEndpoint:
    """Return an endpoint of a target's server. All requests contain the target's key, and no headers of the client."""
    key = None if target.key is None else target.key.get_secret_value()
    secrets: tuple[str, ...] = () if key is None else (key,)
    new_pool: PoolFactory = ConnectionPool
    if target.proxy or target.authorities:
        from gateway.backend.http_client.network import Network

        auth = "" if target.proxy_auth is None else target.proxy_auth.get_secret_value()
        new_pool = network = Network(target.proxy, auth, target.authorities)
        secrets += tuple(filter(None, (auth, auth.partition(":")[2], network.credentials)))
    return client.endpoint(url, json_headers(key, accept), connect_timeout, secrets, method, new_pool)
