"""How is an OpenAI-compatible server asked? One POST, whatever the endpoint."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any

import orjson

from gateway.backend.answers import Answer, Shape
from gateway.backend.bodies import EVENT_STREAM, read_document, read_events
from gateway.backend.http import HttpAnswer, HttpClient
from gateway.backend.statuses import MAX_ERROR_BODY, error_for_status, parse_retry_after
from gateway.config.snapshot import TargetSpec
from gateway.core.errors import GatewayError, InvalidUnicode, InvalidValue, UpstreamError
from gateway.core.events import Event
from gateway.core.exchange import Exchange

PATHS = {"completions": "/completions", "chat": "/chat/completions", "embeddings": "/embeddings"}


class Upstream:
    """One target behind an OpenAI-compatible address.

    ``connect_timeout`` is in seconds; every other clock belongs to ``policy/deliver``.
    """

    def __init__(self, target: TargetSpec, client: HttpClient, connect_timeout: float) -> None:
        self._target = target
        self._client = client
        self._connect_timeout = connect_timeout

    @asynccontextmanager
    async def complete(
        self, exchange: Exchange, path: str, body: Mapping[str, Any], shape: Shape, notices: tuple[str, ...] = ()
    ) -> AsyncIterator[AsyncIterator[Event]]:
        """Ask for a completion; the events of its answer."""
        asked = max(len(exchange.prompts), 1) * exchange.n
        async with self._ask(exchange, path, body) as http:
            answer = Answer(shape, self._target.label, asked, notices)
            async with aclosing(read_events(http, answer)) as events:
                yield events

    @asynccontextmanager
    async def embed(self, exchange: Exchange) -> AsyncIterator[AsyncIterator[Event]]:
        """Ask for embeddings; ``exchange.params`` is the body, beside the model."""
        async with self._ask(exchange, PATHS["embeddings"], exchange.params) as http:
            document: AsyncGenerator[Event, None] = read_document(http, self._target.label)
            async with aclosing(document) as events:
                yield events

    @asynccontextmanager
    async def _ask(self, exchange: Exchange, path: str, body: Mapping[str, Any]) -> AsyncIterator[HttpAnswer]:
        content = serialise({"model": self._target.model, **body})
        url = self._target.url.rstrip("/") + path
        headers = self._headers(exchange)
        async with self._client.request(url, content, headers, self._connect_timeout) as http:
            if not 200 <= http.status < 300:
                raise await _refusal(http)
            yield http

    def _headers(self, exchange: Exchange) -> dict[str, str]:
        """Everything that goes up: nothing of the client's but the id of its request."""
        headers = {
            "content-type": "application/json",
            "accept": EVENT_STREAM if exchange.stream else "application/json",
            "user-agent": "meta-gateway",
            "x-request-id": exchange.request_id,
        }
        if self._target.key is not None:
            headers["authorization"] = f"Bearer {self._target.key.reveal()}"
        return headers


def serialise(body: Mapping[str, Any]) -> bytes:
    """A body as JSON; what JSON in UTF-8 cannot say is the client's to mend."""
    try:
        return orjson.dumps(body, default=_plain)
    except TypeError as error:
        if "surrogate" in str(error):
            raise InvalidUnicode("the request holds a lone surrogate; send whole characters") from None
        raise InvalidValue(
            "the request holds a value that JSON cannot carry, such as a number beyond 64 bits"
        ) from None


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"no JSON for {type(value).__name__}")


async def _refusal(http: HttpAnswer) -> GatewayError:
    """The error that a reply without success stands for, however its body fares."""
    retry_after = parse_retry_after(http.header("retry-after"), http.header("retry-after-ms"))
    try:
        body = await http.read(MAX_ERROR_BODY)
    except UpstreamError:
        body = b""  # the status alone has to do
    return error_for_status(http.status, body, http.content_type, retry_after)
