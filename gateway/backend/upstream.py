"""How is an OpenAI-compatible server asked? One POST, whatever the endpoint."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any

import orjson

from gateway.backend.answers import Answer, Shape
from gateway.backend.bodies import EVENT_STREAM, BodyEvents, read_document
from gateway.backend.http import HttpAnswer, HttpClient, read_whole, refuse_encoded
from gateway.backend.statuses import MAX_ERROR_BODY, error_for_status, parse_retry_after
from gateway.config.snapshot import TargetSpec
from gateway.core.errors import GatewayError, InvalidUnicode, InvalidValue, UpstreamError
from gateway.core.events import Event
from gateway.core.exchange import Exchange

PATHS = {"completions": "/completions", "chat": "/chat/completions", "embeddings": "/embeddings"}


Read = Callable[[HttpAnswer], AsyncIterator[Event]]


class Upstream:
    """One target behind an OpenAI-compatible address.

    ``connect_timeout`` is in seconds; every other clock belongs to ``policy/deliver``.
    """

    def __init__(self, target: TargetSpec, client: HttpClient, connect_timeout: float) -> None:
        self._target = target
        self._client = client
        self._connect_timeout = connect_timeout
        self._url = target.url.rstrip("/")

    def complete(
        self, exchange: Exchange, path: str, body: Mapping[str, Any], shape: Shape, notices: tuple[str, ...] = ()
    ) -> Asking:
        """Ask for a completion; the events of its answer."""
        choices = max(len(exchange.prompts), 1) * exchange.n
        answer = Answer(shape, self._target.label, choices, notices)
        return self._ask(exchange, path, body, lambda http: BodyEvents(http, answer))

    def embed(self, exchange: Exchange) -> Asking:
        """Ask for embeddings; ``exchange.params`` is the body, beside the model."""
        path = PATHS["embeddings"]
        return self._ask(exchange, path, exchange.params, lambda http: read_document(http, self._target.label))

    def _ask(self, exchange: Exchange, path: str, body: Mapping[str, Any], read: Read) -> Asking:
        content = serialise({"model": self._target.model, **body})
        headers = self._headers(exchange)
        return Asking(self._client.request(self._url + path, content, headers, self._connect_timeout), read)

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


class Asking:
    """One request under way; entered when its answer can be read. Leaving releases the connection."""

    __slots__ = ("_read", "_request")

    def __init__(self, request: AbstractAsyncContextManager[HttpAnswer], read: Read) -> None:
        self._request = request
        self._read = read

    async def __aenter__(self) -> AsyncIterator[Event]:
        http = await self._request.__aenter__()
        try:
            if not 200 <= http.status < 300:
                raise await _refusal(http)
            refuse_encoded(http)
        except BaseException as error:
            await self._request.__aexit__(type(error), error, error.__traceback__)
            raise
        return self._read(http)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._request.__aexit__(kind, error, trace)


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
        refuse_encoded(http)
        body = await read_whole(http, MAX_ERROR_BODY)
    except UpstreamError:
        body = b""  # the status alone has to do
    return error_for_status(http.status, body, http.content_type, retry_after)
