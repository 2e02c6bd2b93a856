"""What if HTTP needs more than ``h1.py`` has? The same client on aiohttp, chosen by ``server.http_client``.

See ``http.py`` for the rules both keep.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import aiohttp
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.http_parser import HttpResponseParser, HttpResponseParserPy

from gateway.backend.http import KEEPALIVE, LINGER, MAX_LINE, media_type
from gateway.core.dialogue import NOTHING
from gateway.core.errors import (
    GatewayError,
    UpstreamConnectTimeout,
    UpstreamDisconnected,
    UpstreamDnsError,
    UpstreamInvalidResponse,
    UpstreamUnreachable,
)


@dataclass(slots=True)
class _Attempt:
    """Whether a request went out on a connection that had served before."""

    reused: bool = False


class AioAnswer:
    """See ``HttpAnswer``."""

    __slots__ = ("_client", "_response", "complete", "plain", "status")

    def __init__(self, client: AioClient, response: aiohttp.ClientResponse) -> None:
        self._client = client
        self._response = response
        self.status = response.status
        self.complete = False
        self.plain = 200 <= response.status < 300 and "content-encoding" not in response.headers

    @property
    def content_type(self) -> str:
        """See ``HttpAnswer``."""
        return media_type(self._response.headers.get("content-type") or "")

    def header(self, name: str) -> str | None:
        """See ``HttpAnswer``."""
        return self._response.headers.get(name)

    async def flow(self, take: Callable[[bytes], bool]) -> None:
        """See ``HttpAnswer``: aiohttp wakes whoever reads."""

    async def more(self) -> bytes:
        """See ``HttpAnswer``."""
        try:
            return await self._response.content.readany()
        except (aiohttp.ClientError, HttpProcessingError, OSError) as error:
            raise _named(error) from error

    def whole(self) -> bytes | None:
        """See ``HttpAnswer``."""
        return None

    def leave(self) -> None:
        """See ``HttpAnswer``."""
        if self.complete and not self._response.content.is_eof():
            self._client.linger(self._response)
        else:
            self._response.close()  # after the end of the body this is a no-op: the connection is back in the pool


@dataclass(frozen=True, slots=True)
class AioTarget:
    """See ``HttpTarget``."""

    client: AioClient
    url: str
    headers: Mapping[str, str]
    connect_timeout: float

    async def post(self, body: bytes, headers: Mapping[str, str] = NOTHING) -> AioAnswer:
        """See ``HttpTarget``."""
        response = await self.client.send(self.url, body, {**self.headers, **headers}, self.connect_timeout)
        return AioAnswer(self.client, response)


class AioClient:
    """See ``HttpClient``."""

    def __init__(self) -> None:
        if HttpResponseParser is HttpResponseParserPy:
            # The pure Python parser is slower and has had request-smuggling bugs that the C parser had not.
            raise RuntimeError("aiohttp runs without its C extension; install a wheel for this platform")
        self._pooled: aiohttp.ClientSession | None = None
        self._fresh: aiohttp.ClientSession | None = None
        self._lingering: set[asyncio.Task[None]] = set()

    def target(self, url: str, headers: Mapping[str, str], connect_timeout: float = 2.0) -> AioTarget:
        """See ``HttpClient``."""
        return AioTarget(self, url, headers, connect_timeout)

    async def aclose(self) -> None:
        """See ``HttpClient``."""
        for task in tuple(self._lingering):
            task.cancel()
        for session in (self._pooled, self._fresh):
            if session is not None:
                await session.close()
        self._pooled = self._fresh = None

    async def send(
        self, url: str, body: bytes, headers: Mapping[str, str], connect_timeout: float
    ) -> aiohttp.ClientResponse:
        """POST ``body``; the answer once its headers are there."""
        if self._pooled is None:
            self._pooled = _session(force_close=False)
        attempt = _Attempt()
        try:
            return await _post(self._pooled, url, body, headers, connect_timeout, attempt)
        except aiohttp.ClientConnectorError as error:
            raise _named(error) from error
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
            if not (attempt.reused and _without_an_answer(error)):
                raise _named(error) from error
        except (aiohttp.ClientError, HttpProcessingError, OSError) as error:
            raise _named(error) from error
        # The server closed a pooled connection while our request was on its way: the request was not
        # served, so it goes out once more. aiohttp does that for idempotent methods only.
        if self._fresh is None:
            self._fresh = _session(force_close=True)
        try:
            return await _post(self._fresh, url, body, headers, connect_timeout, attempt)
        except (aiohttp.ClientError, HttpProcessingError, OSError) as error:
            raise _named(error) from error

    def linger(self, response: aiohttp.ClientResponse) -> None:
        """Give the end of a body a moment to arrive, so that its connection can be pooled."""
        task = asyncio.create_task(_await_end(response))
        self._lingering.add(task)
        task.add_done_callback(self._lingering.discard)


async def _await_end(response: aiohttp.ClientResponse) -> None:
    """Give the end of a body a moment to arrive; anything else closes the connection (row C07)."""
    try:
        async with asyncio.timeout(LINGER):
            await response.content.readany()
    except (TimeoutError, aiohttp.ClientError, HttpProcessingError, OSError):
        pass
    finally:
        response.close()


def _session(*, force_close: bool) -> aiohttp.ClientSession:
    trace = aiohttp.TraceConfig()
    trace.on_connection_reuseconn.append(_note_reuse)
    connector = (
        aiohttp.TCPConnector(limit=0, force_close=True)
        if force_close
        else aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEPALIVE)  # calls are limited at admission
    )
    return aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        trust_env=False,
        auto_decompress=False,
        max_line_size=MAX_LINE,
        max_field_size=MAX_LINE,
        skip_auto_headers=("user-agent", "accept", "accept-encoding", "content-type"),
        trace_configs=[trace],
    )


async def _note_reuse(session: aiohttp.ClientSession, context: object, params: object) -> None:
    context.trace_request_ctx.reused = True  # type: ignore[attr-defined]  # the _Attempt given to post()


async def _post(
    session: aiohttp.ClientSession,
    url: str,
    body: bytes,
    headers: Mapping[str, str],
    connect_timeout: float,
    attempt: _Attempt,
) -> aiohttp.ClientResponse:
    return await session.post(
        url,
        data=body,
        headers={"accept-encoding": "identity", **headers},
        allow_redirects=False,
        timeout=aiohttp.ClientTimeout(total=None, connect=connect_timeout),
        trace_request_ctx=attempt,
    )


def _without_an_answer(error: Exception) -> bool:
    """True when not a byte of an answer had come."""
    return not isinstance(error, aiohttp.ServerDisconnectedError) or isinstance(error.message, str)


# Order matters: the first class that fits names the failure.
_NAMES: tuple[tuple[type[BaseException], type[GatewayError], str], ...] = (
    (aiohttp.ConnectionTimeoutError, UpstreamConnectTimeout, "no connection to the model's server in time"),
    (aiohttp.ClientConnectorDNSError, UpstreamDnsError, "the name of the model's server does not resolve"),
    (aiohttp.ClientSSLError, UpstreamUnreachable, "the TLS handshake with the model's server failed"),
    (aiohttp.ClientConnectorError, UpstreamUnreachable, "the model's server does not accept connections"),
    (aiohttp.InvalidURL, UpstreamUnreachable, "the configured address of the model's server is not a valid URL"),
    (
        aiohttp.NonHttpUrlClientError,
        UpstreamUnreachable,
        "the configured address of the model's server is not a valid URL",
    ),
    (aiohttp.ClientPayloadError, UpstreamDisconnected, "the model's server closed the connection inside its answer"),
    (aiohttp.ClientResponseError, UpstreamInvalidResponse, "the model's server does not answer in valid HTTP"),
    (HttpProcessingError, UpstreamInvalidResponse, "the model's server does not answer in valid HTTP"),
    (aiohttp.ClientError, UpstreamDisconnected, "the model's server closed the connection"),
    (OSError, UpstreamDisconnected, "the model's server closed the connection"),
)


def _named(error: BaseException) -> GatewayError:
    """A foreign exception under our own name; no address, no text of the server."""
    if isinstance(error, aiohttp.ServerDisconnectedError) and not _without_an_answer(error):
        return UpstreamInvalidResponse("the model's server closed the connection inside its headers")
    for kind, name, message in _NAMES:
        if isinstance(error, kind):
            return name(message)
    raise error
