"""``server.tls``: HTTPS on our own server, another certificate after a reload, and clients that do not finish."""

from __future__ import annotations

import asyncio
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator

import httpx
import pytest
import uvloop

from gateway.calls.endpoints.cancellation import ClientStalled
from gateway.config.sections.tls import tls_context
from gateway.edge.http1.server import HttpServer
from gateway.edge.http1.state import ConnectionTimeouts
from gateway.edge.http_request import HttpRequest
from gateway.server.sockets import bind
from tests.edge.raw import closes, read_reply
from tests.support.certificates import served_certificate, trusting, write_certificate
from tests.support.serving import WAIT_SECONDS, Gateway, eventually, gateway

CONFIG = """\
server: {tls: {certificate: server.crt, key: server.key}}
models: {m: {template: chat, targets: [{speaks: scripted, script: hello.yaml}]}}
"""
BODY = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
CALL = "/v1/chat/completions"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    folder = tmp_path_factory.mktemp("tls")
    write_certificate(folder, "ec")
    with gateway(folder, CONFIG, files={"hello.yaml": "[Hello, ' there', {finish: stop}]"}) as one:
        yield one


def client(served: Gateway) -> httpx.Client:
    verify = trusting(served.folder / "server.crt")
    limits = httpx.Limits(keepalive_expiry=600)
    url = f"https://localhost:{served.port}"
    return httpx.Client(base_url=url, verify=verify, trust_env=False, timeout=60, limits=limits)


def expires(served: Gateway) -> float:
    """The end of the certificate as a client reads it."""
    plain = socket.create_connection(("127.0.0.1", served.port), timeout=60)
    with trusting(served.folder / "server.crt").wrap_socket(plain, server_hostname="localhost") as link:
        found = link.getpeercert()
    assert found is not None
    return float(ssl.cert_time_to_seconds(str(found["notAfter"])))


def test_answers_and_streams_are_served_over_tls(served: Gateway) -> None:
    with client(served) as https:
        answer = https.post(CALL, json=BODY)
        assert answer.json()["choices"][0]["message"]["content"] == "Hello there"
        assert "data: [DONE]" in https.post(CALL, json={**BODY, "stream": True}).text
        assert f"https://localhost:{served.port}/v1" in https.get("/").text


def test_plain_http_on_the_tls_port_gets_no_answer(served: Gateway) -> None:
    with pytest.raises(httpx.TransportError):
        served.chat("m")
    with client(served) as https:
        assert https.post(CALL, json=BODY).status_code == 200


@pytest.mark.parametrize(("version", "agreed"), [("-tls1_3", True), ("-tls1_2", True), ("-tls1_1", False)])
def test_tls_1_2_and_later_are_offered(served: Gateway, version: str, agreed: bool) -> None:
    said = subprocess.run(
        [
            "openssl",
            "s_client",
            "-connect",
            f"127.0.0.1:{served.port}",
            version,
            "-alpn",
            "h2,http/1.1",
            "-CAfile",
            str(served.folder / "server.crt"),
            "-verify_return_error",
        ],
        input=b"",
        capture_output=True,
        timeout=WAIT_SECONDS,
        check=False,
    )
    assert (said.returncode == 0) is agreed
    assert (b"ALPN protocol: http/1.1" in said.stdout) is agreed


def test_a_reload_replaces_the_certificate_of_new_connections(served: Gateway) -> None:
    folder = served.folder
    first = (folder / "server.crt").read_text()
    assert served.metric("gateway_certificate_expires_seconds") == expires(served)
    with client(served) as before:
        assert before.post(CALL, json=BODY).status_code == 200
        key = (folder / "server.key").read_text()
        (folder / "server.key").write_text("not a key")
        assert not served.reload()
        assert served_certificate(served.port) == first
        (folder / "server.key").write_text(key)
        write_certificate(folder, "rsa")  # another kind of key: a context that loads both offers both
        assert served.reload()
        assert served_certificate(served.port) == (folder / "server.crt").read_text() != first
        assert served.metric("gateway_certificate_expires_seconds") == expires(served)
        assert before.post(CALL, json=BODY).status_code == 200, "an open connection continues"
    with client(served) as after:
        assert after.post(CALL, json=BODY).status_code == 200


# ---------------------------------------------------------------- clients that do not finish


class Served:
    """Our server with a certificate and short timeouts, in a thread."""

    port: int
    server: HttpServer
    leaving: threading.Event
    """Set to drain the server."""


PART, PARTS = b"x" * 65536, 200
"""Of the stream ``/stream``: 13 MB, more than the buffers of both sides hold."""
STALLED: list[int] = []
"""For each stream that its client did not read: the number of parts that were written."""


async def answer(request: HttpRequest) -> None:
    """Answer ``/stream`` with a long stream, and every other path with ``ok``."""
    if request.path != "/stream":
        request.reply(200, b"", b"ok")
        return
    request.start(200, b"content-type: application/octet-stream\r\n")
    for number in range(PARTS):
        try:
            await request.write(PART, 1.0)
        except ClientStalled:
            STALLED.append(number)
            request.abort()
            return
    request.end()


@pytest.fixture
def short(served: Gateway) -> Iterator[Served]:
    one, ready = Served(), threading.Event()
    one.leaving = threading.Event()
    context = tls_context(served.folder / "server.crt", served.folder / "server.key")

    async def serve() -> None:
        bound = bind("127.0.0.1", 0)
        one.port = bound.getsockname()[1]
        one.server = HttpServer(answer, ConnectionTimeouts(head=0.5))
        await one.server.open([bound], context)
        ready.set()
        await asyncio.to_thread(one.leaving.wait)
        one.server.drain()
        await one.server.wait_closed(WAIT_SECONDS)

    thread = threading.Thread(target=lambda: uvloop.run(serve()), daemon=True)
    thread.start()
    assert ready.wait(WAIT_SECONDS)
    try:
        yield one
    finally:
        one.leaving.set()
        thread.join(WAIT_SECONDS)
        assert not thread.is_alive()


def connected(port: int) -> ssl.SSLSocket:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context.wrap_socket(socket.create_connection(("127.0.0.1", port), timeout=60))


def test_a_handshake_that_does_not_end_is_cut_while_others_are_served(short: Served) -> None:
    slow = [socket.create_connection(("127.0.0.1", short.port), timeout=60) for _ in range(20)]
    for link in slow:
        link.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")  # the beginning of a ClientHello
    with connected(short.port) as link:
        link.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert read_reply(link).body == b"ok"
    for link in slow:
        assert closes(link, WAIT_SECONDS)
        link.close()


def test_a_client_that_leaves_while_reading_pauses_does_not_end_the_checks(served: Gateway) -> None:
    context = tls_context(served.folder / "server.crt", served.folder / "server.key")
    trusted = trusting(served.folder / "server.crt")

    async def hold(request: HttpRequest) -> None:
        await asyncio.Event().wait()

    async def run() -> None:
        bound = bind("127.0.0.1", 0)
        port = bound.getsockname()[1]
        server = HttpServer(hold, ConnectionTimeouts(head=0.1), check_seconds=0)  # a check in each loop iteration
        await server.open([bound], context)
        _, leaving = await asyncio.open_connection("127.0.0.1", port, ssl=trusted, server_hostname="localhost")
        leaving.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" * 6)
        assert await asyncio.to_thread(eventually, lambda: any(one.reading_paused for one in tuple(server.connections)))
        leaving.transport.abort()
        assert await asyncio.to_thread(eventually, lambda: not server.connections)
        reader, slow = await asyncio.open_connection("127.0.0.1", port, ssl=trusted, server_hostname="localhost")
        slow.write(b"GET / HT")
        assert (await reader.readline()).startswith(b"HTTP/1.1 408")
        slow.close()
        await server.abort()

    uvloop.run(asyncio.wait_for(run(), WAIT_SECONDS))


def test_a_drain_does_not_wait_for_clients_that_ignore_the_end(short: Served) -> None:
    with connected(short.port) as link:
        link.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert read_reply(link).body == b"ok"
        short.leaving.set()
        assert eventually(lambda: not short.server.connections, 20), "the client has read nothing"


def test_a_stream_waits_for_a_slow_client_and_is_cut_if_the_client_reads_nothing(short: Served) -> None:
    head = b"GET /stream HTTP/1.1\r\nHost: localhost\r\n\r\n"
    STALLED.clear()
    with connected(short.port) as stalled, connected(short.port) as slow:
        stalled.sendall(head)
        slow.sendall(head)
        size, last = 0, b""
        while not last.endswith(b"\r\n0\r\n\r\n"):
            more = slow.recv(65536)
            assert more, "the client that reads is not cut"
            size, last = size + more.count(b"x"), last[-10:] + more
        assert size >= PARTS * len(PART)  # the head has this letter too
        assert eventually(lambda: len(STALLED) == 1)
        assert STALLED[0] < PARTS


def test_a_client_that_sends_all_before_it_reads_gets_the_refusal(served: Gateway) -> None:
    plain = socket.create_connection(("127.0.0.1", served.port), timeout=60)
    with trusting(served.folder / "server.crt").wrap_socket(plain, server_hostname="localhost") as link:
        fields = b"Host: localhost\r\nContent-Type: application/json\r\nContent-Length: 50000000\r\n"
        link.sendall(b"POST /v1/chat/completions HTTP/1.1\r\n" + fields + b"\r\n")
        for _ in range(300):
            link.sendall(b"x" * 65536)
        assert link.recv(12) == b"HTTP/1.1 413"
