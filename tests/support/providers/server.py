"""Fake providers on loopback: one HTTP server, one dialect per file.

::

    with Providers() as up:
        up.url("gemini")        # http://127.0.0.1:PORT/gemini
        up.received[-1].body    # what the provider was sent

Each dialect answers as the provider's public API reference describes. The text of the last user message names the
scene (``scenes.py``): an answer, a refusal, a stream that breaks off. Nothing is random and nothing is remembered.
"""

from __future__ import annotations

import json
import select
import socket
import threading
import time
from collections.abc import Callable, Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

from tests.support.providers import anthropic, gemini, ollama, openai
from tests.support.providers.scenes import Reply, Request

DIALECTS: dict[str, Callable[[Request], Reply]] = {
    "openai": openai.reply,
    "azure": openai.reply,
    "vllm": openai.reply,
    "anthropic": anthropic.reply,
    "gemini": gemini.reply,
    "ollama": ollama.reply,
}

HANG = 20.0
"""Seconds after which a hanging reply gives up, should its client never leave."""


class Providers:
    """All fakes behind one port; use it as a context manager."""

    def __init__(self) -> None:
        self.received: list[Request] = []
        """Every request, in order of arrival."""
        received = self.received

        class Handler(_Handler):
            def record(self, request: Request) -> None:
                received.append(request)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def url(self, dialect: str) -> str:
        """The base address of one provider."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/{dialect}"

    def __enter__(self) -> Providers:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def record(self, request: Request) -> None:
        """Keep the request for the test."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        _, dialect, path = self.path.split("/", 2)
        request = Request(path, {name.lower(): value for name, value in self.headers.items()}, body)
        self.record(request)
        reply = DIALECTS[dialect](request)
        if isinstance(reply.body, dict | str):
            self._whole(reply)
        else:
            self._stream(reply, reply.body)

    def _whole(self, reply: Reply) -> None:
        data = (reply.body if isinstance(reply.body, str) else json.dumps(reply.body)).encode()
        if reply.end == "hang":
            self._wait_until_the_client_leaves()
            return
        self._head(reply, ("content-length", str(len(data) + (9 if reply.end == "break" else 0))))
        self.wfile.write(data)

    def _stream(self, reply: Reply, chunks: Iterable[str]) -> None:
        self._head(reply, ("transfer-encoding", "chunked"))
        for chunk in chunks:
            data = chunk.encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        if reply.end == "hang":
            self._wait_until_the_client_leaves()
        elif reply.end != "break":
            self.wfile.write(b"0\r\n\r\n")

    def _head(self, reply: Reply, framing: tuple[str, str]) -> None:
        self.send_response(reply.status)
        # One call for each connection: LiteLLM's pools would outlive the gateway's event loop, which warns of that.
        self.close_connection = True
        for name, value in (
            ("content-type", reply.content_type),
            ("connection", "close"),
            framing,
            *reply.headers,
        ):
            self.send_header(name, value)
        self.end_headers()

    def _wait_until_the_client_leaves(self) -> None:
        self.close_connection = True
        end = time.monotonic() + HANG
        while time.monotonic() < end:
            readable, _, _ = select.select([self.connection], [], [], 0.1)
            if readable and not self.connection.recv(1, socket.MSG_PEEK):
                return

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing on standard error."""
