"""One request to a model's server, as a context manager. Entry sends the request; exit releases the connection."""

from __future__ import annotations

import re
import uuid
from types import TracebackType
from typing import Self

from gateway.backend.http_client.client import HttpEndpoint
from gateway.backend.http_client.connection import Connection
from gateway.backend.openai.error_mapping import MAX_ERROR_BODY, error_for_status, parse_retry_after
from gateway.core.errors import GatewayError, UpstreamError, UpstreamInvalidResponse, UpstreamTooLarge

MAX_BODY = 16 * 1024 * 1024
"""The maximum size of a response that is read as a whole, in bytes."""


class UpstreamRequest:
    """One request. Entering the context waits for a successful response. Subclasses turn the response into events."""

    __slots__ = ("_content", "_endpoint", "_headers", "_http", "_target")

    _http: Connection
    """The connection of the request; set when the context is entered."""

    def __init__(self, endpoint: HttpEndpoint, content: bytes, headers: str, target: str) -> None:
        """``headers``: the header lines of this request only. ``target``: the target's label."""
        self._endpoint = endpoint
        self._content = content
        self._headers = headers
        self._target = target

    async def __aenter__(self) -> Self:
        self._http = http = await self._endpoint.post(self._content, self._headers)
        self._content = b""  # at least 4 KiB (orjson), which a long stream would keep
        if not http.is_plain_success:
            try:
                if not 200 <= http.status < 300:
                    raise await self._error(http)
                refuse_encoded(http)
            except BaseException:
                http.release()
                raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.release()

    async def _error(self, http: Connection) -> GatewayError:
        """Return the error for an unsuccessful response. If the body cannot be read, only the status is used."""
        retry_after = parse_retry_after(http.header("retry-after"), http.header("retry-after-ms"))
        try:
            refuse_encoded(http)
            body = await read_body(http, MAX_ERROR_BODY)
        except UpstreamError:
            body = b""
        private, location = self._endpoint.private, http.header("location")
        return error_for_status(
            http.status, body, http.content_type, retry_after, target=self._target, private=private, location=location
        )


_DIGITS = re.compile(r"(?:req_)?([0-9a-f]{8})-?([0-9a-f]{4})-?([0-9a-f]{4})-?([0-9a-f]{4})-?([0-9a-f]{12})").fullmatch


def upstream_id(request_id: str) -> str:
    """Return the ``x-request-id`` for a model's server: always a UUID, because llama-cpp-python accepts nothing else.

    For an id made by the gateway and for a UUID of the client, the result has the same hexadecimal digits. Any other
    id is converted to a UUID of version 5 in the namespace for object identifiers (RFC 9562, 6.6).
    """
    digits = _DIGITS(request_id.lower())
    return "-".join(digits.groups()) if digits is not None else str(uuid.uuid5(uuid.NAMESPACE_OID, request_id))


def refuse_encoded(http: Connection) -> None:
    """Raise ``UpstreamInvalidResponse`` for a compressed body. The request did not allow compression."""
    encoding = http.header("content-encoding")
    if encoding is not None and encoding.strip().lower() not in ("", "identity"):
        raise UpstreamInvalidResponse("the model's server sent a compressed body, which was not requested")


async def read_body(http: Connection, limit: int = MAX_BODY, first: bytes = b"") -> bytes:
    """Read the whole body. ``first``: bytes already read. Raises ``UpstreamTooLarge`` for more than ``limit`` bytes."""
    pieces = [first] if first else []
    size = len(first)
    while piece := await http.read():
        pieces.append(piece)
        size += len(piece)
        if size > limit:
            raise UpstreamTooLarge(f"the model's server sent more than {limit} bytes")
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)
