"""The HTTP/1.1 server with a few simple handlers, tested with raw bytes."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest
import uvloop

from gateway.core.errors import GatewayError
from gateway.edge.http1.connection import MAX_DISCARDED, MAX_FIELDS, MAX_QUEUED
from gateway.edge.http1.request import MAX_BUFFERED
from gateway.edge.http1.server import HttpServer
from gateway.edge.http1.state import ConnectionTimeouts
from gateway.edge.http_request import HttpRequest
from tests.edge.raw import Reply, closes, exchange, read_all, read_reply, send
from tests.support.serving import WAIT_SECONDS, eventually

TYPE = b"content-type: text/plain\r\n"
LIMIT = 1000
LONG = 512 * 1024


class Served:
    """A server in a thread, and records of its handlers."""

    def __init__(self) -> None:
        self.port = 0
        self.said: list[str] = []
        self.written = 0
        self.ends: list[str] = []
        self.listener: HttpServer | None = None
        self.do: Callable[[Callable[[], object]], object] = lambda what: None
        """Run a function in the server's event loop."""
        self.leave: Callable[[], object] = lambda: None
        """Start the drain."""
        self.released = asyncio.Event()
        """Set: the handler ``held`` answers."""
        self.other = socket.socket()
        """A client's connection, on which the handler ``knock`` sends a request."""

    async def app(self, asked: HttpRequest) -> None:
        self.said.append(f"{asked.method} {asked.path}")
        try:
            await getattr(self, asked.path.strip("/*") or "echo")(asked)
        except GatewayError as error:
            asked.send_error(error) if not asked.status else asked.end(b"!" + error.code.encode())
        except asyncio.CancelledError:
            try:
                asked.reraise()
            except GatewayError as why:
                self.ends.append(why.code)
                asked.send_error(why) if not asked.status else asked.end(b"!" + why.code.encode())
            except Exception as why:
                self.ends.append(type(why).__name__)

    async def echo(self, asked: HttpRequest) -> None:
        asked.reply(200, TYPE, await asked.body(LIMIT))

    async def large(self, asked: HttpRequest) -> None:
        asked.reply(200, TYPE, b"%d" % len(await asked.body(8 * LONG)))

    async def head(self, asked: HttpRequest) -> None:
        fields = sorted(asked.headers.items())
        asked.reply(200, TYPE, b"\n".join(name + b"=" + value for name, value in fields))

    async def unread(self, asked: HttpRequest) -> None:
        asked.reply(200, TYPE, b"not asked for")

    async def stream(self, asked: HttpRequest) -> None:
        asked.start(200, TYPE)
        for part in (b"one ", b"two "):
            await asked.write(part, 10)
            await asyncio.sleep(0.01)
        asked.end(b"three")

    async def slow(self, asked: HttpRequest) -> None:
        await asyncio.sleep(0.2)
        asked.reply(200, TYPE, b"slow")

    async def held(self, asked: HttpRequest) -> None:
        await self.released.wait()
        asked.reply(200, TYPE, b"held")

    async def knock(self, asked: HttpRequest) -> None:
        self.other.sendall(get(b"/unread"))
        asked.reply(200, TYPE, b"knocked")

    async def endless(self, asked: HttpRequest) -> None:
        asked.start(200, TYPE)
        while True:
            await asked.write(b"x" * 65536, 10)
            self.written += 65536
            await asyncio.sleep(0)

    async def drip(self, asked: HttpRequest) -> None:
        asked.start(200, TYPE)
        while True:
            await asked.write(b".", 10)
            await asyncio.sleep(0.02)

    async def heavy(self, asked: HttpRequest) -> None:
        asked.reply(200, TYPE, b"h" * 200_000)

    async def never(self, asked: HttpRequest) -> None:
        await asyncio.sleep(60)


@contextmanager
def listening(timeouts: ConnectionTimeouts, check: float = 0.05, drain: float = 0.2) -> Iterator[Served]:
    served, ready = Served(), threading.Event()

    async def main() -> None:
        loop, over = asyncio.get_running_loop(), asyncio.Event()
        bound = socket.socket()
        bound.bind(("127.0.0.1", 0))
        served.listener = HttpServer(served.app, timeouts, check)
        await served.listener.open([bound])
        served.port = bound.getsockname()[1]
        served.do = loop.call_soon_threadsafe
        served.leave = lambda: served.do(over.set)
        ready.set()
        await over.wait()
        served.listener.drain()
        await served.listener.wait_closed(drain)

    def run() -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(main())

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert ready.wait(WAIT_SECONDS)
    try:
        yield served
    finally:
        with suppress(RuntimeError):  # the loop is closed already
            served.leave()
        thread.join(WAIT_SECONDS)
        assert not thread.is_alive()


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with listening(ConnectionTimeouts()) as one:
        yield one


def get(path: bytes = b"/echo", *lines: bytes, version: bytes = b"1.1") -> bytes:
    return b"\r\n".join([b"GET " + path + b" HTTP/" + version, b"Host: x", *lines]) + b"\r\n\r\n"


def post(body: bytes, *lines: bytes, path: bytes = b"/echo") -> bytes:
    first = b"POST " + path + b" HTTP/1.1"
    return b"\r\n".join([first, b"Host: x", b"Content-Length: %d" % len(body), *lines]) + b"\r\n\r\n" + body


def connect(served: Served) -> socket.socket:
    return socket.create_connection(("127.0.0.1", served.port), timeout=30)


# ---------------------------------------------------------------- requests


def test_a_request_is_read_in_any_two_pieces(served: Served) -> None:
    sent = post(b"hello", b"X-Long: " + b"v" * 20, b"Connection: close")
    for at in range(1, len(sent)):
        with connect(served) as link:
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            link.sendall(sent[:at])
            time.sleep(0.0005)
            link.sendall(sent[at:])
            reply = read_reply(link)
        assert (reply.status, reply.body, reply.closed) == (200, b"hello", True), at


def test_a_request_is_read_byte_by_byte(served: Served) -> None:
    reply = exchange(served.port, *[bytes([byte]) for byte in post(b"hello")])
    assert (reply.status, reply.body, reply.closed) == (200, b"hello", False)


def test_a_connection_serves_several_requests(served: Served) -> None:
    with connect(served) as link:
        for text in (b"first", b"second", b"third"):
            link.sendall(post(text))
            assert read_reply(link).body == text


def test_pipelined_requests_are_answered_in_order(served: Served) -> None:
    paths = [b"/slow", b"/stream", b"/unread", b"/slow", b"/echo"]
    sent = b"".join(get(path) for path in paths) + post(b"last", b"Connection: close")
    said = read_all(served.port, sent)
    order = [b"slow", b"three", b"not asked for", b"slow", b"last"]
    places = [said.index(word) for word in order[:3]] + [said.rindex(word) for word in order[3:]]
    assert said.count(b"HTTP/1.1 200 OK") == 6
    assert places == sorted(places)


def test_many_pipelined_requests_are_all_answered(served: Served) -> None:
    sent = get(b"/unread") * 3000 + get(b"/unread", b"Connection: close")
    assert read_all(served.port, sent).count(b"HTTP/1.1 200 OK") == 3001


OFFER = (b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: AA")


def test_pipelined_requests_of_many_connections_do_not_delay_another_connection() -> None:
    ahead, with_knock = get(b"/echo") * 20, get(b"/knock")
    with listening(ConnectionTimeouts()) as served:
        links = [connect(served) for _ in range(30)]
        served.other = connect(served)
        for link in links:
            link.sendall(get(b"/held") + ahead + (with_knock if link is links[0] else b"") + ahead)
        assert eventually(lambda: served.said.count("GET /held") == 30)
        served.do(served.released.set)
        assert read_reply(served.other).body == b"not asked for"
        assert served.said.index("GET /unread") - served.said.index("GET /knock") < 10
        for link in (*links, served.other):
            link.close()


def test_many_pipelined_upgrade_requests_are_all_answered(served: Served) -> None:
    sent = get(b"/unread", *OFFER) * 3000 + get(b"/unread", b"Connection: close")
    assert read_all(served.port, sent).count(b"HTTP/1.1 200 OK") == 3001


@pytest.mark.parametrize("short", [1, 5, 6, 30, 80])
def test_earlier_requests_do_not_count_towards_the_head_limit(served: Served, short: int) -> None:
    last = post(b"hello", b"X-Last: yes", b"Connection: close")
    sent = post(b"hello") * 3000 + last
    said = read_all(served.port, sent[:-short], sent[-short:])
    assert said.count(b"HTTP/1.1 200 OK") == 3001


def test_requests_after_connection_close_are_not_served(served: Served) -> None:
    before = len(served.said)
    said = read_all(served.port, get(b"/unread", b"Connection: close") + get(b"/unread"))
    assert said.count(b"HTTP/1.1") == 1
    assert len(served.said) == before + 1


def test_repeated_header_fields_are_joined_and_trailers_ignored(served: Served) -> None:
    said = exchange(served.port, get(b"/head", b"A: 1", b"a: 2", b"B: 3")).body
    assert said == b"a=1, 2\nb=3\nhost=x"
    chunked = get(b"/head", b"Transfer-Encoding: chunked").replace(b"GET", b"POST")
    trailer = b"2\r\nab\r\n0\r\nAuthorization: x\r\n\r\n"
    both = read_all(served.port, chunked + trailer + get(b"/head", b"Connection: close"))
    assert both.count(b"host=x") == 2
    assert b"authorization" not in both


def test_the_query_is_not_part_of_the_path(served: Served) -> None:
    exchange(served.port, get(b"/unread?a=b#c"))
    exchange(served.port, get(b"http://other/unread?a=b"))
    assert served.said[-2:] == ["GET /unread", "GET /unread"]


def test_expect_100_continue_gets_100_continue(served: Served) -> None:
    with connect(served) as link:
        link.sendall(post(b"hello", b"Expect: 100-continue")[:-5])
        assert link.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        link.sendall(b"hello")
        assert read_reply(link).body == b"hello"


def test_expect_100_continue_without_a_read_body_closes_the_connection(served: Served) -> None:
    reply = exchange(served.port, post(b"hello", b"Expect: 100-continue", path=b"/unread")[:-5])
    assert (reply.status, reply.headers["connection"], reply.closed) == (200, "close", True)


def test_an_unread_body_is_skipped(served: Served) -> None:
    with connect(served) as link:
        for _ in range(2):
            link.sendall(post(b"x" * LONG, path=b"/unread"))
            assert read_reply(link).body == b"not asked for"


def test_a_large_body_is_read_whole(served: Served) -> None:
    assert exchange(served.port, post(b"x" * 7 * LONG, path=b"/large")).body == b"%d" % (7 * LONG)


# ---------------------------------------------------------------- refusals

FILL = b"X-Fill: " + b"v" * 70_000
HEADS = {
    "one long field": [get(b"/echo", FILL)],
    "a long target": [get(b"/" + b"p" * 70_000)],
    "many long fields": [get(b"/echo", *[b"X-%d: " % i + b"v" * 1000 for i in range(70)])],
    "a long field that never ends": [get(b"/echo", FILL)[:-4]],
    "too many fields": [get(b"/echo", *[b"X-%d: v" % i for i in range(MAX_FIELDS)])],
    "too many of one field": [get(b"/echo", *[b"X: v"] * MAX_FIELDS)],
    "in pieces": [get(b"/echo", FILL)[at : at + 9000] for at in range(0, 70_000, 9000)],
    "endless trailers": [
        get(b"/echo", b"Transfer-Encoding: chunked") + b"0\r\n",
        *[b"X: " + b"v" * 9000 + b"\r\n"] * 8,
    ],
}


@pytest.mark.parametrize("sent", HEADS.values(), ids=HEADS)
def test_an_invalid_or_too_large_head_is_refused(served: Served, sent: list[bytes]) -> None:
    with connect(served) as link:
        for part in sent:
            link.sendall(part)
            time.sleep(0.005)
        reply = read_reply(link)
    assert (reply.status, reply.json()["error"]["code"]) == (431, "head_too_large")
    assert reply.headers["connection"] == "close"


CHUNKED = get(b"/large", b"Transfer-Encoding: chunked").replace(b"GET", b"POST")
LARGE_CHUNK = b"ffff\r\n" + b"x" * 0xFFFF + b"\r\n"
FRAMINGS = {
    "chunks of one byte": [CHUNKED, b"1\r\nx\r\n" * 100_000],
    "a long extension": [CHUNKED, b"1;" + b"e" * 200_000 + b"\r\nx\r\n"],
    "an extension for each chunk": [CHUNKED, *[b"10;" + b"e" * 9000 + b"\r\n" + b"x" * 16 + b"\r\n"] * 20],
    "many trailers behind a large body": [CHUNKED, LARGE_CHUNK + b"0\r\n", *[b"X: " + b"v" * 9000 + b"\r\n"] * 20],
    "a long trailer": [CHUNKED, b"1\r\nx\r\n0\r\nX: " + b"v" * 200_000 + b"\r\n\r\n"],
}


@pytest.mark.parametrize("sent", FRAMINGS.values(), ids=FRAMINGS)
def test_invalid_body_framing_is_refused(served: Served, sent: list[bytes]) -> None:
    with connect(served) as link:
        send(link, sent)
        reply = read_reply(link)
    assert (reply.status, reply.json()["error"]["code"]) == (431, "head_too_large")
    assert reply.closed


@pytest.mark.parametrize(("size", "count"), [(1, 4000), (4, 15_000), (16, 4000), (128, 2000), (1000, 200)])
def test_a_body_of_small_chunks_is_read_whole(served: Served, size: int, count: int) -> None:
    chunk = b"%x\r\n%b\r\n" % (size, b"x" * size)
    reply = exchange(served.port, CHUNKED, chunk * count + b"0\r\n\r\n")
    assert (reply.status, reply.body) == (200, b"%d" % (count * size))


def test_a_pipelined_head_that_is_too_long_is_refused_in_its_turn(served: Served) -> None:
    said = read_all(served.port, get(b"/slow") + get(b"/echo", FILL))
    assert said.index(b"HTTP/1.1 200 OK") < said.index(b"HTTP/1.1 431 Request Header Fields Too Large")


def test_a_pipelined_head_in_two_reads_is_not_longer_than_one_in_one_read(served: Served) -> None:
    head = get(b"/echo", FILL)
    with connect(served) as link:
        send(link, [get(b"/echo") + head[: len(head) // 2]])
        assert read_reply(link).status == 200
        send(link, [head[len(head) // 2 :]])
        assert read_reply(link).status == 431


def test_a_head_of_many_fields_below_the_bound_is_read(served: Served) -> None:
    assert exchange(served.port, get(b"/echo", *[b"X-%d: v" % i for i in range(MAX_FIELDS - 1)])).status == 200


def test_a_pipelined_invalid_request_is_refused_in_its_turn(served: Served) -> None:
    said = read_all(served.port, get(b"/slow") + b"NONSENSE\r\n\r\n")
    assert said.index(b"HTTP/1.1 200 OK") < said.index(b"HTTP/1.1 400 Bad Request")


def test_a_disconnect_after_pipelined_requests_is_detected(served: Served) -> None:
    gone = served.ends.count("ClientGone")
    with connect(served) as link:
        link.sendall(get(b"/never") + get(b"/unread") * (MAX_QUEUED + 2))
        assert eventually(lambda: served.said[-1:] == ["GET /never"])
    assert eventually(lambda: served.ends.count("ClientGone") == gone + 1)


def test_an_invalid_chunk_ends_the_request(served: Served) -> None:
    with connect(served) as link:
        link.sendall(get(b"/echo", b"Transfer-Encoding: chunked") + b"2\r\nab\r\n")
        time.sleep(0.05)
        link.sendall(b"zz\r\n")
        reply = read_reply(link)
    assert (reply.status, reply.closed) == (400, True)
    assert eventually(lambda: served.ends[-1:] == ["ClientGone"])


# ---------------------------------------------------------------- answers


def test_a_stream_over_http_1_1_is_chunked_and_keeps_the_connection(served: Served) -> None:
    with connect(served) as link:
        link.sendall(get(b"/stream") + get(b"/unread", b"Connection: close"))
        said = b""
        while more := link.recv(65536):
            said += more
    head, _, body = said.partition(b"\r\n\r\n")
    assert b"transfer-encoding: chunked" in head
    assert b"connection" not in head
    assert body.startswith(b"4\r\none \r\n4\r\ntwo \r\n5\r\nthree\r\n0\r\n\r\nHTTP/1.1 200 OK")


def test_a_stream_over_http_1_0_ends_with_the_connection(served: Served) -> None:
    said = read_all(served.port, get(b"/stream", b"Connection: keep-alive", version=b"1.0"))
    head, _, body = said.partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in head
    assert b"connection: close" in head
    assert body == b"one two three"


@pytest.mark.parametrize("path", [b"/unread", b"/stream"])
def test_head_gets_no_body(served: Served, path: bytes) -> None:
    sent = get(path).replace(b"GET", b"HEAD") + get(b"/unread", b"Connection: close")
    said = read_all(served.port, sent)
    assert said.count(b"not asked for") == 1
    assert b"one" not in said
    assert said.count(b"HTTP/1.1 200 OK") == 2


def test_a_response_has_a_date_and_a_request_id(served: Served) -> None:
    reply = exchange(served.port, get(b"/unread", b"X-Request-Id: mine"))
    assert reply.headers["x-request-id"] == "mine"
    assert reply.headers["openai-version"] == "2020-10-01"
    assert reply.headers["date"].endswith(" GMT")
    odd = exchange(served.port, get(b"/unread", b"X-Request-Id: not plain"))
    assert odd.headers["x-request-id"].startswith("req_")


def test_a_slow_client_applies_back_pressure(served: Served) -> None:
    with connect(served) as link:
        link.sendall(get(b"/endless"))
        link.recv(100)
        before = -1
        while served.written != before:
            before = served.written
            time.sleep(0.2)
        assert before < 64 * 2**20
        while served.written == before:
            link.recv(2**20)
    assert eventually(lambda: served.ends[-1:] == ["ClientGone"])


def test_connections_use_tcp_nodelay(served: Served) -> None:
    found: list[int] = []

    def check() -> None:
        assert served.listener is not None
        for line in served.listener.connections:
            sock = line.transport.get_extra_info("socket")
            found.append(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))

    with connect(served) as link:
        link.sendall(get())
        read_reply(link)
        served.do(check)
        assert eventually(lambda: found)
    assert set(found) == {1}


@pytest.mark.parametrize("path", [b"/never", b"/drip", b"/endless"])
def test_a_disconnect_cancels_the_handler(served: Served, path: bytes) -> None:
    served.ends.clear()
    with connect(served) as link:
        link.sendall(get(path))
        time.sleep(0.05)
    assert eventually(lambda: served.ends == ["ClientGone"])


# ---------------------------------------------------------------- timeouts (rows D08, D09), and the end (E02)


def only(**short: float) -> ConnectionTimeouts:
    """These timeouts in seconds, the others longer than the test waits."""
    return ConnectionTimeouts(**{"head": 1000.0, "body": 1000.0, "idle": 1000.0, **short})


WAITS: dict[
    str, tuple[ConnectionTimeouts, bytes, bytes]
] = {  # the short timeout, bytes sent, the response before the close
    "half a head": (only(head=0.2), get()[:-2], b"HTTP/1.1 408"),
    "half a head behind a request": (only(head=0.2), get() + get()[:-2], b"HTTP/1.1 408"),
    "half a head behind a body": (only(head=0.2), post(b"hello") + get()[:-2], b"HTTP/1.1 408"),
    "half a body": (only(body=0.2), post(b"hello")[:-2], b"HTTP/1.1 408"),
    "half of an unread body": (only(body=0.2), post(b"hello", path=b"/unread")[:-2], b"HTTP/1.1 200"),
    "nothing": (only(idle=0.5), b"", b""),
    "nothing more": (only(idle=0.5), get(), b"HTTP/1.1 200"),
}


@pytest.mark.parametrize(("timeouts", "sent", "answer"), WAITS.values(), ids=WAITS)
def test_a_connection_is_closed_at_its_timeouts(timeouts: ConnectionTimeouts, sent: bytes, answer: bytes) -> None:
    with listening(timeouts) as served:
        said = read_all(served.port, sent)
        assert said[said.rfind(b"HTTP/1.1 ") :].startswith(answer) if answer else said == b""
        if b"408" in answer:
            assert b'"code":"request_timeout"' in said
        if "head" not in str(answer):
            assert served.listener is not None
            assert eventually(lambda: not served.listener.connections)


UNFINISHED = {
    "a body that is too large": b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 50000000\r\n\r\n"
    + b"x" * LIMIT * 2,
    "invalid input": b"GET / HTTP/1.1 x\r\n\r\n",
    "a head that is too large": b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 2**17,
}


@pytest.mark.parametrize("sent", UNFINISHED.values(), ids=UNFINISHED)
def test_a_client_that_sends_all_before_it_reads_gets_the_refusal(served: Served, sent: bytes) -> None:
    for _ in range(10):
        with connect(served) as link:
            link.sendall(sent)
            for _ in range(300):
                link.sendall(b"x" * 65536)
            assert read_reply(link).status in (400, 413, 431)


def test_a_lingering_close_ends_at_its_timeout() -> None:
    with listening(only(linger=0.2)) as served, connect(served) as link:
        link.sendall(UNFINISHED["a body that is too large"])
        assert read_reply(link).status == 413
        assert served.listener is not None
        assert eventually(lambda: not served.listener.connections)


def test_a_lingering_close_discards_a_limited_number_of_bytes() -> None:
    with listening(only(linger=1000.0)) as served, connect(served) as link:
        link.sendall(UNFINISHED["a body that is too large"])
        assert read_reply(link).status == 413
        with pytest.raises(ConnectionError):
            link.sendall(b"x" * 2 * MAX_DISCARDED)


def test_a_lingering_close_does_not_delay_the_drain() -> None:
    with listening(only(linger=1000.0), drain=1000.0) as served, connect(served) as link:
        link.sendall(UNFINISHED["a body that is too large"])
        assert read_reply(link).status == 413


def test_a_slow_handler_is_not_an_idle_connection() -> None:
    with listening(ConnectionTimeouts(0.5, 0.5, 0.5), check=0.01) as served, connect(served) as link:
        link.sendall(get(b"/held"))
        time.sleep(0.8)
        served.do(served.released.set)
        assert read_reply(link).body == b"held"


def test_idle_connections_do_not_block_new_ones(served: Served) -> None:
    links = [connect(served) for _ in range(400)]
    for link in links[:100]:
        link.sendall(get()[:-2])
    assert exchange(served.port, get(b"/unread")).status == 200
    for link in links:
        link.close()


def drained(served: Served) -> None:
    assert served.listener is not None
    served.leave()
    assert eventually(lambda: served.listener._state.closing)


def test_draining_closes_idle_connections_and_finishes_responses() -> None:
    with listening(ConnectionTimeouts(), drain=30) as served, connect(served) as idle, connect(served) as busy:
        idle.sendall(get())
        read_reply(idle)
        busy.sendall(get(b"/held"))
        assert eventually(lambda: served.said[-1:] == ["GET /held"])
        drained(served)
        assert closes(idle, WAIT_SECONDS)
        served.do(served.released.set)
        reply: Reply = read_reply(busy)
        assert (reply.body, reply.headers["connection"], reply.closed) == (b"held", "close", True)


def test_requests_that_outlast_the_drain_get_server_draining() -> None:
    with listening(ConnectionTimeouts(), drain=0.2) as served, connect(served) as begun, connect(served) as waiting:
        begun.sendall(get(b"/drip"))
        waiting.sendall(get(b"/never"))
        assert eventually(lambda: len(served.said) == 2)
        drained(served)
        reply = read_reply(waiting)
        assert (reply.status, reply.json()["error"]["code"], reply.closed) == (503, "server_draining", True)
        said = b""
        while more := begun.recv(65536):
            said += more
        assert said.endswith(b"\r\n10\r\n!server_draining\r\n0\r\n\r\n")


# ---------------------------------------------------------------- clients that do not behave


def test_requests_of_a_client_that_reads_no_responses_are_not_read(served: Served) -> None:
    asked, before = 400, len(served.said)
    with connect(served) as link:
        sending = threading.Thread(target=link.sendall, args=(get(b"/heavy") * asked,))
        sending.start()
        time.sleep(0.5)
        assert len(served.said) - before < asked / 2  # the other requests were not read
        taken = 0
        while taken < asked * 200_000:
            more = link.recv(1 << 20)
            assert more
            taken += len(more)
        sending.join(WAIT_SECONDS)
    assert eventually(lambda: len(served.said) - before == asked)


def test_a_client_that_reads_nothing_is_disconnected_at_the_write_timeout(served: Served) -> None:
    with listening(ConnectionTimeouts(idle=0.3)) as short:
        link = connect(short)
        link.sendall(get(b"/heavy") * 60)
        assert eventually(lambda: short.listener is not None and not short.listener.connections)
        link.close()


@pytest.mark.parametrize("ahead", [1, 3])
def test_a_disconnect_with_pipelined_requests_is_detected(served: Served, ahead: int) -> None:
    ends = len(served.ends)
    link = connect(served)
    link.sendall(get(b"/never") * (1 + ahead))
    assert eventually(lambda: served.said[-1:] == ["GET /never"])
    link.close()
    assert eventually(lambda: served.ends[ends:] == ["ClientGone"])


def test_a_disconnect_after_a_large_body_is_detected(served: Served) -> None:
    body = b"x" * (MAX_BUFFERED + 1)  # one byte over the limit: reading pauses with a complete body
    for _ in range(20):
        ends, link = len(served.ends), connect(served)
        link.sendall(post(body, path=b"/never"))
        time.sleep(0.02)
        link.close()
        assert eventually(lambda: served.ends[ends:] == ["ClientGone"])  # noqa: B023  # used at once


def test_an_invalid_body_after_an_early_response_gets_no_second_response(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    with connect(served) as link:
        link.sendall(b"POST /unread HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        assert read_reply(link).status == 200
        link.sendall(b"ZZZ\r\n")
        assert link.recv(100) == b""
    assert [record for record in caplog.records if record.name == "asyncio"] == []
