"""How is an OpenAI-compatible server asked? One POST, whatever the endpoint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from gateway.backend.http_client.client import H1Target, HttpClient
from gateway.backend.openai.embeddings import DocumentEvents
from gateway.backend.openai.events import Shape
from gateway.backend.openai.response_body import EVENT_STREAM, BodyEvents
from gateway.config.snapshot import TargetSpec
from gateway.core.errors import GatewayError, InvalidUnicode, InvalidValue
from gateway.core.exchange import Exchange

PATHS = {"completions": "/completions", "chat": "/chat/completions", "embeddings": "/embeddings"}


class Upstream:
    """One target behind an OpenAI-compatible address.

    ``connect_timeout`` is in seconds; every other clock belongs to ``policy/deliver``.
    """

    def __init__(self, target: TargetSpec, client: HttpClient, connect_timeout: float) -> None:
        self._target = target
        self._model = target.model
        self._label = target.label
        self._client = client
        self._connect_timeout = connect_timeout
        self._ways: dict[tuple[str, bool], H1Target] = {}
        """By path, and whether a stream is asked for."""

    def complete(
        self, exchange: Exchange, path: str, body: Mapping[str, Any], shape: Shape, notices: tuple[str, ...] = ()
    ) -> BodyEvents:
        """Ask for a completion; the events of its answer. ``body`` is all of it but the model."""
        stream = exchange.stream
        way = self._ways.get((path, stream)) or self._way(path, stream)
        body = {"model": self._model, **body}
        try:
            content = orjson.dumps(body, default=_plain)
        except TypeError as error:
            raise _unsayable(error) from None
        choices = (len(exchange.prompts) or 1) * exchange.n
        return BodyEvents(way, content, exchange.request_id, shape, self._label, choices, notices)

    def embed(self, exchange: Exchange) -> DocumentEvents:
        """Ask for embeddings; ``exchange.params`` is the body, beside the model."""
        path = PATHS["embeddings"]
        way = self._ways.get((path, exchange.stream)) or self._way(path, exchange.stream)
        content = serialise({"model": self._model, **exchange.params})
        return DocumentEvents(way, content, exchange.request_id, self._label)

    def _way(self, path: str, stream: bool) -> H1Target:
        """All that the requests to one path have in common: nothing of the client's but the id of its request goes up.

        Made by the first request, because an address that is none fails the calls, not the configuration.
        """
        headers = {
            "content-type": "application/json",
            "accept": EVENT_STREAM if stream else "application/json",
            "user-agent": "meta-gateway",
        }
        secrets: tuple[str, ...] = ()
        if self._target.key is not None:
            secrets = (self._target.key.reveal(),)
            headers["authorization"] = f"Bearer {secrets[0]}"
        url = self._target.url.rstrip("/") + path
        way = self._ways[path, stream] = self._client.target(url, headers, self._connect_timeout, secrets)
        return way


def serialise(body: Mapping[str, Any]) -> bytes:
    """A body as JSON; what JSON in UTF-8 cannot say is the client's to mend."""
    try:
        return orjson.dumps(body, default=_plain)
    except TypeError as error:
        raise _unsayable(error) from None


def _unsayable(error: TypeError) -> GatewayError:
    if "surrogate" in str(error):
        return InvalidUnicode("the request holds a lone surrogate; send whole characters")
    return InvalidValue("the request holds a value that JSON cannot carry, such as a number beyond 64 bits")


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"no JSON for {type(value).__name__}")
