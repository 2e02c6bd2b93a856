"""Web pages of other origins (``server.cors.origins``), on both servers."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.support.serving import SERVERS, HttpGateway
from tests.support.world import HELLO

MODEL = "models: {hello: {template: chat, targets: [{speaks: scripted, script: hello.yaml}]}}\n"
CONFIGS = {
    "off": MODEL,
    "listed": 'server: {cors: {origins: ["https://chat.example.org", "http://localhost:3000"]}}\n' + MODEL,
    "any": 'server: {cors: {origins: ["*"]}}\n' + MODEL,
}
ORIGIN, OTHER = "https://chat.example.org", "https://other.example.org"
CHAT = "/v1/chat/completions"


@pytest.fixture(scope="module", params=[(server, cors) for server in SERVERS for cors in CONFIGS], ids="-".join)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, HttpGateway]]:
    server, cors = request.param
    folder = tmp_path_factory.mktemp("cors")
    with SERVERS[server](folder, CONFIGS[cors], files=HELLO) as served:
        yield cors, served


def preflight(served: HttpGateway, origin: str) -> tuple[int, dict[str, str]]:
    headers = {
        "origin": origin,
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization,content-type",
    }
    answer = served.http.options(CHAT, headers=headers)
    return answer.status_code, cors_headers(answer.headers)


def cors_headers(headers: httpx.Headers) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.startswith("access-control-")}


GRANTED = {
    "access-control-expose-headers": "*",
    "access-control-allow-methods": "GET, POST",
    "access-control-allow-headers": "authorization,content-type",
    "access-control-max-age": "600",
}


def test_a_preflight_is_granted_to_the_configured_origins_only(case: tuple[str, HttpGateway]) -> None:
    cors, served = case
    assert {origin: preflight(served, origin) for origin in (ORIGIN, OTHER)} == {
        "off": {ORIGIN: (405, {}), OTHER: (405, {})},
        "listed": {ORIGIN: (200, GRANTED | {"access-control-allow-origin": ORIGIN}), OTHER: (400, {})},
        "any": dict.fromkeys((ORIGIN, OTHER), (200, GRANTED | {"access-control-allow-origin": "*"})),
    }[cors]


def test_a_configured_origin_can_read_answers_streams_and_errors(case: tuple[str, HttpGateway]) -> None:
    cors, served = case
    allowed = {"off": None, "listed": ORIGIN, "any": "*"}[cors]
    body = {"model": "hello", "messages": [{"role": "user", "content": "hi"}]}
    headers = {"origin": ORIGIN}
    for answer in (
        served.http.post(CHAT, json=body, headers=headers),
        served.http.post(CHAT, json={**body, "stream": True}, headers=headers),
        served.http.post(CHAT, json={**body, "model": "nobody"}, headers=headers),
        served.http.get("/v1/nothing", headers=headers),
    ):
        assert answer.headers.get("access-control-allow-origin") == allowed


def test_another_origin_can_read_nothing(case: tuple[str, HttpGateway]) -> None:
    cors, served = case
    answer = served.http.get("/v1/models", headers={"origin": OTHER})
    assert answer.headers.get("access-control-allow-origin") == ("*" if cors == "any" else None)
    assert answer.headers.get("vary") == ("origin" if cors == "listed" else None)


def test_a_client_without_an_origin_gets_no_cors_headers(case: tuple[str, HttpGateway]) -> None:
    assert cors_headers(case[1].http.get("/v1/models").headers) == {}
