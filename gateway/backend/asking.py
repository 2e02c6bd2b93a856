"""How is one request held? Entered when its answer can be read, left by any road: then its connection is free."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from gateway.backend.http import HttpAnswer, HttpTarget, read_whole, refuse_encoded
from gateway.backend.statuses import MAX_ERROR_BODY, error_for_status, parse_retry_after
from gateway.core.errors import GatewayError, UpstreamError


class Asking:
    """One request under way; what it becomes when its answer is good, the class below says.

    One object for the request and for the events of its answer: nothing stands between them.
    """

    __slots__ = ("_content", "_http", "_request_id", "_way")

    _http: HttpAnswer
    """Set once it is entered."""

    def __init__(self, way: HttpTarget, content: bytes, request_id: str) -> None:
        self._way = way
        self._content = content
        self._request_id = request_id

    async def __aenter__(self) -> Self:
        self._http = http = await self._way.post(self._content, {"x-request-id": self._request_id})
        if not http.plain:
            try:
                if not 200 <= http.status < 300:
                    raise await _refusal(http)
                refuse_encoded(http)
            except BaseException:
                http.leave()
                raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.leave()


async def _refusal(http: HttpAnswer) -> GatewayError:
    """The error that a reply without success stands for, however its body fares."""
    retry_after = parse_retry_after(http.header("retry-after"), http.header("retry-after-ms"))
    try:
        refuse_encoded(http)
        body = await read_whole(http, MAX_ERROR_BODY)
    except UpstreamError:
        body = b""  # the status alone has to do
    return error_for_status(http.status, body, http.content_type, retry_after)
