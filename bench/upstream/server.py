"""Mock engine: fixed responses, and streams with a given number of events at a given interval.

The text of each event is the time of its sending on the monotonic clock, in nanoseconds, so a client on the same
machine can compute its delay. ``POST /bench/streams`` sets the events and the interval of later streams; ``GET
/bench/counters`` returns the counters.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from time import monotonic_ns

import httptools
import uvloop

from bench.upstream.responses import MODEL, RESPONSES, USAGE, response_json

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s"
STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
NOT_FOUND = b"HTTP/1.1 404 Not Found\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"
LAST_CHUNK = b"0\r\n\r\n"


def _event(endpoint: str, choice: str, usage: str = "") -> bytes:
    """One SSE event; ``%d`` in ``choice`` is the place of the clock."""
    kind, name = ("text_completion", "cmpl") if endpoint == "text" else ("chat.completion.chunk", "chatcmpl")
    head = f'{{"id":"{name}-bench","object":"{kind}","created":1760000000,"model":"{MODEL}",'
    return f'data: {head}"choices":[{choice}]{usage}}}\n\n'.encode()


USAGE_FIELD = f',"usage":{json.dumps(USAGE, separators=(",", ":"))}'
STREAM_EVENTS = {
    # path → (event before the first token, token, finish, usage)
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
RESPONSE_BYTES = {
    path.encode(): HEAD % (len(body), body) for path, body in ((p, response_json(p).encode()) for p in RESPONSES)
}


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


class UpstreamState:
    """Stream settings and counters, shared by all connections."""

    def __init__(self) -> None:
        self.events, self.interval = 50, 0.02
        self.requests: dict[str, int] = {}
        self.active_streams = self.last_abort_ns = 0

    def counters(self) -> dict[str, object]:
        """The body of ``/bench/counters``: requests by path, active streams, time of the last aborted stream."""
        return {"requests": self.requests, "active_streams": self.active_streams, "last_abort_ns": self.last_abort_ns}


class UpstreamConnection(asyncio.Protocol):
    """One connection of a proxy."""

    def __init__(self, state: UpstreamState, loop: asyncio.AbstractEventLoop) -> None:
        self._state = state
        self._loop = loop
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport
        self._url = b""
        self._body: list[bytes] = []
        self._timer: asyncio.TimerHandle | None = None
        self._streaming = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = transport  # type: ignore[assignment]

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the stream; a stream that has not finished counts as aborted."""
        if self._timer is not None:
            self._timer.cancel()
        if self._streaming:
            self._state.last_abort_ns = monotonic_ns()
            self._state.active_streams -= 1

    def data_received(self, data: bytes) -> None:
        """Parse the bytes of a request."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._transport.close()

    def on_message_begin(self) -> None:
        """Reset the parsed request."""
        self._url, self._body = b"", []

    def on_url(self, url: bytes) -> None:
        """Collect the request target."""
        self._url += url

    def on_body(self, body: bytes) -> None:
        """Collect the body."""
        self._body.append(body)

    def on_message_complete(self) -> None:
        """Write the response or start the stream."""
        path = self._url.partition(b"?")[0]
        name = path.decode("ascii", "replace")
        if name.startswith("/bench/"):
            return self._control(name)
        requests = self._state.requests
        requests[name] = requests.get(name, 0) + 1
        events = STREAM_EVENTS.get(name)
        # A search for bytes suffices: the suite wrote these bodies, and quotes inside JSON strings are escaped.
        body = b"".join(self._body)
        if events is not None and (b'"stream":true' in body or b'"stream": true' in body):
            return self._stream(events, b'"include_usage":true' in body or b'"include_usage": true' in body)
        return self._transport.write(RESPONSE_BYTES.get(path, NOT_FOUND))

    def _control(self, name: str) -> None:
        state = self._state
        if name == "/bench/streams":
            settings = json.loads(b"".join(self._body))
            state.events, state.interval = int(settings["events"]), float(settings["interval_ms"]) / 1000
        body = json.dumps(state.counters()).encode()
        self._transport.write(HEAD % (len(body), body))

    def _stream(self, events: tuple[bytes, bytes, bytes, bytes], include_usage: bool) -> None:
        state, loop, write = self._state, self._loop, self._transport.write
        first, token, finish, usage = events
        remaining, interval = state.events, state.interval
        due = loop.time()
        self._streaming = True
        state.active_streams += 1
        size = len(token) - 2 + len(str(monotonic_ns()))  # the clock keeps its number of digits during a run
        token_chunk = b"%x\r\n%s\r\n" % (size, token)
        write(STREAM_HEAD + (_chunk(first) if first else b""))

        def send_next() -> None:
            nonlocal remaining, due
            if self._transport.is_closing():
                return
            if remaining:
                remaining -= 1
                write(token_chunk % monotonic_ns())
                due += interval
                self._timer = loop.call_at(due, send_next)
                return
            self._timer, self._streaming = None, False
            state.active_streams -= 1
            write(_chunk(finish) + (_chunk(usage) if include_usage else b"") + _chunk(DONE) + LAST_CHUNK)

        send_next()


async def serve(port: int) -> None:
    """Serve until the process is killed."""
    loop, state = asyncio.get_running_loop(), UpstreamState()
    server = await loop.create_server(lambda: UpstreamConnection(state, loop), "127.0.0.1", port, backlog=4096)
    await server.serve_forever()


def main() -> None:
    """``python -m bench.upstream.server --port 8101``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    uvloop.run(serve(parser.parse_args().port))


if __name__ == "__main__":
    main()
