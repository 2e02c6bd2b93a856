"""How does the suite itself talk HTTP? One small request at a time, by the standard library."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from typing import Any

from bench.processes import Unfit


def ask(
    port: int,
    path: str,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    seconds: float = 10.0,
) -> tuple[int, bytes]:
    """Status and body of one request to loopback; POST where there is a body. Raises ``OSError``."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=seconds)
    try:
        connection.request("GET" if body is None else "POST", path, body, dict(headers or {}))
        answer = connection.getresponse()
        return answer.status, answer.read()
    except http.client.HTTPException as error:
        raise ConnectionError(f"no HTTP answer: {error!r}") from None
    finally:
        connection.close()


def ask_json(port: int, path: str, body: object = None) -> Any:
    """The JSON answer of one of our own servers."""
    status, answer = ask(port, path, None if body is None else json.dumps(body).encode())
    if status != 200:
        raise Unfit(f"{path} answered {status}")
    return json.loads(answer)
