"""How is an OpenAI-compatible server asked? One POST, whatever the endpoint."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Generic, TypeVar

import orjson

from gateway.backend.answers import Answer, Shape
from gateway.backend.bodies import EVENT_STREAM, BodyEvents, DocumentEvents
from gateway.backend.http import HttpAnswer, HttpClient, HttpTarget, read_whole, refuse_encoded
from gateway.backend.statuses import MAX_ERROR_BODY, error_for_status, parse_retry_after
from gateway.config.snapshot import TargetSpec
from gateway.core.errors import GatewayError, InvalidUnicode, InvalidValue, UpstreamError
from gateway.core.exchange import Events, Exchange

PATHS = {"completions": "/completions", "chat": "/chat/completions", "embeddings": "/embeddings"}


class Upstream:
    """One target behind an OpenAI-compatible address.

    ``connect_timeout`` is in seconds; every other clock belongs to ``policy/deliver``.
    """

    def __init__(self, target: TargetSpec, client: HttpClient, connect_timeout: float) -> None:
        self._target = target
        self._client = client
        self._connect_timeout = connect_timeout
        self._ways: dict[tuple[str, bool], HttpTarget] = {}
        """By path, and whether a stream is asked for."""

    def complete(
        self, exchange: Exchange, path: str, body: Mapping[str, Any], shape: Shape, notices: tuple[str, ...] = ()
    ) -> Asking[Answer]:
        """Ask for a completion; the events of its answer."""
        choices = max(len(exchange.prompts), 1) * exchange.n
        return Asking(self._post(exchange, path, body), Answer(shape, self._target.label, choices, notices), BodyEvents)

    def embed(self, exchange: Exchange) -> Asking[str]:
        """Ask for embeddings; ``exchange.params`` is the body, beside the model."""
        request = self._post(exchange, PATHS["embeddings"], exchange.params)
        return Asking(request, self._target.label, DocumentEvents)

    def _post(self, exchange: Exchange, path: str, body: Mapping[str, Any]) -> AbstractAsyncContextManager[HttpAnswer]:
        content = serialise({"model": self._target.model, **body})
        way = self._ways.get((path, exchange.stream)) or self._way(path, exchange.stream)
        return way.post(content, {"x-request-id": exchange.request_id})

    def _way(self, path: str, stream: bool) -> HttpTarget:
        """All that the requests to one path have in common: nothing of the client's but the id of its request goes up.

        Made by the first request, because an address that is none fails the calls, not the configuration.
        """
        headers = {
            "content-type": "application/json",
            "accept": EVENT_STREAM if stream else "application/json",
            "user-agent": "meta-gateway",
        }
        if self._target.key is not None:
            headers["authorization"] = f"Bearer {self._target.key.reveal()}"
        url = self._target.url.rstrip("/") + path
        way = self._ways[path, stream] = self._client.target(url, headers, self._connect_timeout)
        return way


Told = TypeVar("Told")


class Asking(Generic[Told]):
    """One request under way; entered when its answer can be read. Leaving releases the connection."""

    __slots__ = ("_read", "_request", "_told")

    def __init__(
        self,
        request: AbstractAsyncContextManager[HttpAnswer],
        told: Told,
        read: Callable[[HttpAnswer, Told], Events],
    ) -> None:
        """``read`` makes the events of a good answer, with what it was ``told`` of the call."""
        self._request = request
        self._told = told
        self._read = read

    async def __aenter__(self) -> Events:
        http = await self._request.__aenter__()
        try:
            if not 200 <= http.status < 300:
                raise await _refusal(http)
            refuse_encoded(http)
        except BaseException as error:
            await self._request.__aexit__(type(error), error, error.__traceback__)
            raise
        return self._read(http, self._told)

    def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Coroutine[Any, Any, bool | None]:
        return self._request.__aexit__(kind, error, trace)


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
