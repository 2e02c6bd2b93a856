"""How is one request held? Entered when its answer can be read, left by any road: then its connection is free."""

from __future__ import annotations

import re
import uuid
from types import TracebackType
from typing import Self

from gateway.backend.http_client.client import H1Target
from gateway.backend.http_client.connection import Connection
from gateway.backend.openai.error_mapping import MAX_ERROR_BODY, error_for_status, parse_retry_after
from gateway.core.errors import GatewayError, UpstreamError, UpstreamInvalidResponse, UpstreamTooLarge

MAX_BODY = 16 * 1024 * 1024
"""Bytes of an answer that is held whole."""


class UpstreamRequest:
    """One request under way; what it becomes when its answer is good, the class below says.

    One object for the request and for the events of its answer: nothing stands between them.
    """

    __slots__ = ("_content", "_http", "_request_id", "_target", "_way")

    _http: Connection
    """Set once it is entered."""

    def __init__(self, way: H1Target, content: bytes, request_id: str, target: str) -> None:
        """``target``: its label."""
        self._way = way
        self._content = content
        self._request_id = request_id
        self._target = target

    async def __aenter__(self) -> Self:
        self._http = http = await self._way.post(self._content, {"x-request-id": upstream_id(self._request_id)})
        if not http.plain:
            try:
                if not 200 <= http.status < 300:
                    raise await self._refusal(http)
                refuse_encoded(http)
            except BaseException:
                http.leave()
                raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.leave()

    async def _refusal(self, http: Connection) -> GatewayError:
        """The error that a reply without success stands for, however its body fares."""
        retry_after = parse_retry_after(http.header("retry-after"), http.header("retry-after-ms"))
        try:
            refuse_encoded(http)
            body = await read_whole(http, MAX_ERROR_BODY)
        except UpstreamError:
            body = b""  # the status alone has to do
        return error_for_status(
            http.status, body, http.content_type, retry_after, target=self._target, private=self._way.private
        )


_DIGITS = re.compile(r"(?:req_)?([0-9a-f]{8})-?([0-9a-f]{4})-?([0-9a-f]{4})-?([0-9a-f]{4})-?([0-9a-f]{12})").fullmatch


def upstream_id(request_id: str) -> str:
    """The ``x-request-id`` of the request to a model's server: always a UUID, as llama-cpp-python's takes no other.

    The digits of an id of the gateway's own, or of a UUID the client sent; for any other id of the client's its UUID
    of version 5 in the namespace for object identifiers (RFC 9562, 6.6).
    """
    digits = _DIGITS(request_id.lower())
    return "-".join(digits.groups()) if digits is not None else str(uuid.uuid5(uuid.NAMESPACE_OID, request_id))


def refuse_encoded(http: Connection) -> None:
    """``UpstreamInvalidResponse`` for a compressed body: identity was asked for, and inflating invites a bomb (B22)."""
    encoding = http.header("content-encoding")
    if encoding is not None and encoding.strip().lower() not in ("", "identity"):
        raise UpstreamInvalidResponse("the model's server sent a compressed body, which was not asked for")


async def read_whole(http: Connection, limit: int = MAX_BODY, ahead: bytes = b"") -> bytes:
    """The whole body, ``ahead`` being what was read of it before; ``UpstreamTooLarge`` beyond ``limit`` bytes."""
    pieces = [ahead] if ahead else []
    size = len(ahead)
    while piece := await http.more():
        pieces.append(piece)
        size += len(piece)
        if size > limit:
            raise UpstreamTooLarge(f"the model's server sent more than {limit} bytes")
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)
