"""HTTP requests to loopback: readiness checks, control of the mock upstream, and requests as bytes."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from typing import Any

from bench.processes import MeasurementError

TIMEOUT = 10.0
"""Seconds for one request."""


def send_request(
    port: int, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
) -> tuple[int, bytes]:
    """Status and body of one response; the method is POST if there is a body. Raises ``OSError``."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT)
    try:
        connection.request("GET" if body is None else "POST", path, body, dict(headers or {}))
        response = connection.getresponse()
        return response.status, response.read()
    except http.client.HTTPException as error:
        raise ConnectionError(f"invalid HTTP response: {error!r}") from None
    finally:
        connection.close()


def request_json(port: int, path: str, body: object = None) -> Any:
    """The JSON body of a response. Raises ``OSError``, and ``MeasurementError`` for any status but 200."""
    status, content = send_request(port, path, None if body is None else json.dumps(body).encode())
    if status != 200:
        raise MeasurementError(f"{path} responded with status {status}")
    return json.loads(content)


def request_bytes(method: str, port: int, path: str, body: bytes, headers: Mapping[str, str]) -> bytes:
    """One HTTP/1.1 request with a JSON body."""
    lines = [f"{method} {path} HTTP/1.1", f"host: 127.0.0.1:{port}", "content-type: application/json"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, f"content-length: {len(body)}", "", ""]).encode() + body
