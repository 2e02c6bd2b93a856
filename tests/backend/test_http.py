"""The HTTP client: what it reuses, what it sends once more, and what it sends at all."""

from __future__ import annotations

import asyncio
import json

import pytest

from gateway.backend.http_client.client import HttpClient
from gateway.backend.http_client.connection import MIN_SEPARATE_BODY
from gateway.backend.openai.upstream_request import read_body
from gateway.core.errors import GatewayError, UpstreamDisconnected, UpstreamTooLarge, UpstreamUnreachable
from tests.support.upstream.server import FaultyUpstream

HEADERS = {"content-type": "application/json"}


async def post(client: HttpClient, url: str, limit: int = 1 << 20) -> bytes:
    answer = await client.endpoint(url + "/completions", HEADERS).post(b'{"prompt": "a"}')
    try:
        return await read_body(answer, limit)
    finally:
        answer.release()


def posts(*urls: str) -> list[bytes | GatewayError]:
    """One client, one request after the other."""

    async def run() -> list[bytes | GatewayError]:
        client = HttpClient()
        got: list[bytes | GatewayError] = []
        for url in urls:
            try:
                got.append(await post(client, url))
            except GatewayError as error:
                got.append(error)
        await client.aclose()
        return got

    return asyncio.run(run())


def test_a_whole_answer_leaves_its_connection_for_the_next(up: FaultyUpstream) -> None:
    before = up.connections
    posts(*[up.url("ok")] * 3)
    assert up.connections == before + 1


CLOSES = {  # what the server does with a reused connection: is the connection stale, or did the call fail?
    "stale": True,
    "stale-reset": True,
    "works-and-closes": False,
}


@pytest.mark.parametrize("mode", CLOSES)
def test_a_request_is_sent_once_and_an_immediate_close_is_called_stale(up: FaultyUpstream, mode: str) -> None:
    before = up.request_count
    first, error, third = posts(*[up.url(mode)] * 3)
    assert isinstance(first, bytes)
    assert isinstance(error, UpstreamDisconnected)
    assert error.stale is CLOSES[mode]
    assert third == first
    assert [heard.position for heard in up.requests[before:]] == [0, 1, 0]


async def test_one_stale_connection_empties_the_pool(up: FaultyUpstream) -> None:
    client = HttpClient()
    warm = await asyncio.gather(*[post(client, up.url("slow-ttfb")) for _ in range(3)])
    assert len(warm) == 3
    with pytest.raises(UpstreamDisconnected):
        await post(client, up.url("stale"))
    before = up.connections
    again = await post(client, up.url("stale"))
    await client.aclose()
    assert [up.connections - before, again == warm[0]] == [1, True]


@pytest.mark.parametrize("mode", ["early-close", "reset"])
def test_a_fresh_connection_that_closes_is_not_tried_again(up: FaultyUpstream, mode: str) -> None:
    before = up.request_count
    (error,) = posts(up.url(mode))
    assert isinstance(error, GatewayError)
    assert up.request_count == before + 1


def test_a_connection_with_half_headers_is_not_tried_again(up: FaultyUpstream) -> None:
    before = up.request_count
    _, error = posts(up.url("ok"), up.url("partial-headers"))
    assert isinstance(error, GatewayError)
    assert up.request_count == before + 2


def test_only_our_own_headers_go_up(up: FaultyUpstream) -> None:
    posts(up.url("ok"))
    assert set(up.requests[-1].headers) == {"host", "content-type", "content-length", "accept-encoding"}
    assert up.requests[-1].headers["accept-encoding"] == "identity"


def test_a_proxy_in_the_environment_is_ignored(up: FaultyUpstream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    assert isinstance(posts(up.url("ok"))[0], bytes)


async def test_a_body_beyond_the_limit_is_an_error(up: FaultyUpstream) -> None:
    client = HttpClient()
    with pytest.raises(UpstreamTooLarge):
        await post(client, up.url("ok"), limit=10)
    await client.aclose()


async def test_dribbled_headers_can_be_left(up: FaultyUpstream) -> None:
    """Row B07: the deadline is the caller's, and nothing resets it."""
    client = HttpClient()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.15):
            await post(client, up.url("dribble-headers", ms=10))
    assert await asyncio.to_thread(up.wait, lambda: up.active == 0)
    await client.aclose()


@pytest.mark.parametrize("size", [0, 100, MIN_SEPARATE_BODY - 1, MIN_SEPARATE_BODY, 5 * MIN_SEPARATE_BODY])
async def test_a_body_of_any_size_arrives_whole(up: FaultyUpstream, size: int) -> None:
    body = {"prompt": "x" * size}
    client = HttpClient()
    target = client.endpoint(up.url("ok") + "/completions", HEADERS)
    for number in ("1", "2"):
        answer = await target.post(json.dumps(body).encode(), f"x-request-id: {number}\r\n")
        assert await read_body(answer)
        answer.release()
        assert up.requests[-1].body == body
        assert up.requests[-1].headers["x-request-id"] == number
    await client.aclose()


@pytest.mark.parametrize("url", ["", "nowhere", "ftp://127.0.0.1/v1", "http://127.0.0.1:99999/v1", "http://[/v1"])
def test_an_address_that_is_none_is_unreachable(url: str) -> None:
    (error,) = posts(url)
    assert isinstance(error, UpstreamUnreachable)


FLOWING = {
    # what the server does: whether the body ends well
    "ok": True,
    "one-byte-writes": True,
    "pause-resume": True,
    "comments": True,
    "drop-midstream": False,
    "reset-midstream": False,
}


@pytest.mark.parametrize("refuses", [0, 1, 3], ids=["takes all", "takes none", "takes two of three"])
@pytest.mark.parametrize("mode", FLOWING)
def test_what_flows_and_what_is_read_make_the_body_together(up: FaultyUpstream, mode: str, refuses: int) -> None:
    async def read(flows: bool) -> tuple[bytes, str]:
        client, said, asked = HttpClient(), [], 0

        def take(piece: bytes) -> bool:
            nonlocal asked
            asked += 1
            if refuses and asked % refuses == 0:
                return False
            said.append(piece)
            return True

        answer = await client.endpoint(up.url(mode) + "/completions", HEADERS).post(b'{"prompt": "a", "stream": true}')
        failure = ""
        try:
            while piece := await answer.read():
                said.append(piece)
                if flows:
                    await answer.forward(take)
        except GatewayError as error:
            failure = error.code
        answer.release()
        await client.aclose()
        return b"".join(said), failure

    flowed, read_out = asyncio.run(read(True)), asyncio.run(read(False))
    assert flowed == read_out
    assert (not flowed[1]) is FLOWING[mode]


async def test_a_flow_that_is_left_closes_the_connection(up: FaultyUpstream) -> None:
    client = HttpClient()
    answer = await client.endpoint(up.url("never-ends") + "/completions", HEADERS).post(b'{"stream": true}')
    await answer.read()
    flowing = asyncio.create_task(answer.forward(lambda piece: True))
    await asyncio.sleep(0.05)
    flowing.cancel()
    await asyncio.wait([flowing])
    answer.release()
    assert await asyncio.to_thread(up.wait, lambda: up.active == 0)
    await client.aclose()
