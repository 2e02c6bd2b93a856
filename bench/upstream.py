"""What stands behind the proxy? An engine that computes nothing: canned answers, and streams at a given pace.

Each event's text is the sender's monotonic clock in nanoseconds, so a reader on the same machine knows to the
microsecond how long the event was under way. ``POST /bench/pace`` sets the pace of later streams, ``GET
/bench/counters`` tells what has happened.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from time import monotonic_ns

import httptools
import uvloop

from bench.answers import MODEL, USAGE, WHOLE, text_of

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s"
STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
NOT_FOUND = b"HTTP/1.1 404 Not Found\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"
END = b"0\r\n\r\n"


def _event(shape: str, choice: str, usage: str = "") -> bytes:
    """An event with ``%d`` where the clock goes."""
    kind, name = ("text_completion", "cmpl") if shape == "text" else ("chat.completion.chunk", "chatcmpl")
    head = f'{{"id":"{name}-bench","object":"{kind}","created":1760000000,"model":"{MODEL}",'
    return f'data: {head}"choices":[{choice}]{usage}}}\n\n'.encode()


USAGE_FIELD = f',"usage":{json.dumps(USAGE, separators=(",", ":"))}'
SHAPES = {
    # path → (before the first token, one token, the finish, the usage)
    "/v1/completions": (
        b"",
        _event("text", '{"index":0,"text":"%d","logprobs":null,"finish_reason":null,"stop_reason":null}'),
        _event("text", '{"index":0,"text":"","logprobs":null,"finish_reason":"length","stop_reason":null}'),
        _event("text", "", USAGE_FIELD),
    ),
    "/v1/chat/completions": (
        _event(
            "chat",
            '{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}',
        ),
        _event("chat", '{"index":0,"delta":{"content":"%d"},"logprobs":null,"finish_reason":null}'),
        _event("chat", '{"index":0,"delta":{"content":""},"logprobs":null,"finish_reason":"length"}'),
        _event("chat", "", USAGE_FIELD),
    ),
}
DONE = b"data: [DONE]\n\n"
CANNED = {path.encode(): HEAD % (len(text), text) for path, text in ((p, text_of(p).encode()) for p in WHOLE)}


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


class Book:
    """The pace of streams, and what has happened so far."""

    def __init__(self) -> None:
        self.events, self.gap = 50, 0.02
        self.hits: dict[str, int] = {}
        self.active = self.early = self.sent = self.last_early = 0

    def counters(self) -> dict[str, object]:
        """What ``/bench/counters`` answers; ``early`` counts streams whose reader left before their end."""
        counts = {"active": self.active, "early": self.early, "sent": self.sent, "last_early_ns": self.last_early}
        return {"hits": self.hits, **counts}


class Engine(asyncio.Protocol):
    """One connection."""

    def __init__(self, book: Book, loop: asyncio.AbstractEventLoop) -> None:
        self._book = book
        self._loop = loop
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport
        self._url = b""
        self._body: list[bytes] = []
        self._timer: asyncio.TimerHandle | None = None
        self._streaming = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A proxy has connected."""
        self._transport = transport  # type: ignore[assignment]

    def connection_lost(self, exc: Exception | None) -> None:
        """The proxy is gone; what it left unread ends here."""
        if self._timer is not None:
            self._timer.cancel()
        if self._streaming:
            self._book.early += 1
            self._book.last_early = monotonic_ns()
            self._book.active -= 1

    def data_received(self, data: bytes) -> None:
        """Bytes of a request."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._transport.close()

    def on_message_begin(self) -> None:
        """The next request on this connection."""
        self._url, self._body = b"", []

    def on_url(self, url: bytes) -> None:
        """Its path."""
        self._url += url

    def on_body(self, body: bytes) -> None:
        """A piece of its body."""
        self._body.append(body)

    def on_message_complete(self) -> None:
        """Answer it."""
        path = self._url.partition(b"?")[0]
        name = path.decode("ascii", "replace")
        if name.startswith("/bench/"):
            return self._control(name)
        hits = self._book.hits
        hits[name] = hits.get(name, 0) + 1
        shape = SHAPES.get(name)
        # Enough of a look: these bodies are our own, and JSON inside a string escapes its quotes.
        body = b"".join(self._body)
        if shape is not None and (b'"stream":true' in body or b'"stream": true' in body):
            return self._stream(shape, b'"include_usage":true' in body or b'"include_usage": true' in body)
        return self._transport.write(CANNED.get(path, NOT_FOUND))

    def _control(self, name: str) -> None:
        book = self._book
        if name == "/bench/pace":
            asked = json.loads(b"".join(self._body))
            book.events, book.gap = int(asked["events"]), float(asked["gap_ms"]) / 1000
        answer = json.dumps(book.counters()).encode()
        self._transport.write(HEAD % (len(answer), answer))

    def _stream(self, shape: tuple[bytes, bytes, bytes, bytes], usage: bool) -> None:
        book, loop, write = self._book, self._loop, self._transport.write
        first, token, finish, counts = shape
        left, gap = book.events, book.gap
        due = loop.time()
        self._streaming = True
        book.active += 1
        size = len(token) - 2 + len(str(monotonic_ns()))  # the clock does not grow a digit during a run
        framed = b"%x\r\n%s\r\n" % (size, token)
        write(STREAM_HEAD + (_chunk(first) if first else b""))

        def step() -> None:
            nonlocal left, due
            if self._transport.is_closing():
                return
            if left:
                left -= 1
                book.sent += 1
                write(framed % monotonic_ns())
                due += gap
                self._timer = loop.call_at(due, step)
                return
            self._timer, self._streaming = None, False
            book.active -= 1
            write(_chunk(finish) + (_chunk(counts) if usage else b"") + _chunk(DONE) + END)

        step()


async def serve(port: int) -> None:
    """Serve until killed."""
    loop, book = asyncio.get_running_loop(), Book()
    server = await loop.create_server(lambda: Engine(book, loop), "127.0.0.1", port, backlog=4096)
    await server.serve_forever()


def main() -> None:
    """``python -m bench.upstream --port 8101``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    uvloop.run(serve(parser.parse_args().port))


if __name__ == "__main__":
    main()
