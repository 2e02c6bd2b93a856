"""HTTP requests as raw bytes, which an HTTP client would refuse to send."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

HEAD = b"Host: localhost\r\nContent-Type: application/json\r\n"


@dataclass(frozen=True, slots=True)
class Reply:
    """One response as received."""

    status: int
    headers: dict[str, str]
    body: bytes
    closed: bool
    """The server closed the connection after it."""

    def json(self) -> Any:
        return json.loads(self.body)


def exchange(port: int, *parts: bytes, seconds: float = 30.0) -> Reply:
    """Send ``parts`` one after the other, and read one response."""
    with socket.create_connection(("127.0.0.1", port), timeout=seconds) as link:
        send(link, parts)
        return read_reply(link)


def read_all(port: int, *parts: bytes, seconds: float = 30.0) -> bytes:
    """Send ``parts``, and read until the server closes; for several responses on one connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=seconds) as link:
        send(link, parts)
        data = b""
        while more := link.recv(65536):
            data += more
        return data


def send(link: socket.socket, parts: Iterable[bytes]) -> None:
    """Send; the server may already have responded and closed the connection."""
    with suppress(ConnectionError):
        for part in parts:
            link.sendall(part)


def read_reply(link: socket.socket) -> Reply:
    """Read one response with a content-length; then check whether the connection was closed."""
    data = b""
    while b"\r\n\r\n" not in data:
        more = link.recv(65536)
        assert more, f"closed before an answer: {data!r}"
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    length = int(headers["content-length"]) if "content-length" in headers else 0
    while len(body) < length and (more := link.recv(65536)):
        body += more
    return Reply(
        int(first.split(" ")[1]), headers, body, closes(link, 30.0 if headers.get("connection") == "close" else 0.05)
    )


def closes(link: socket.socket, seconds: float) -> bool:
    """True: the server closed the connection within ``seconds``."""
    before = link.gettimeout()
    link.settimeout(seconds)
    try:
        return link.recv(1) == b""
    except TimeoutError:
        return False
    except ConnectionError:
        return True
    finally:
        link.settimeout(before)
