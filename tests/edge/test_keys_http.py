"""Client keys over HTTP."""

from __future__ import annotations

import hashlib

import httpx
import pytest

from tests.support.serving import Gateway
from tests.support.world import HELLO, gateway_fixture

KEYS = {"all": "gk_all", "some": "gk_some", "old": "gk_old"}

KEY_FILE = """
all:
  sha256: "{all}"
some:
  sha256: "{some}"
  models: ["open-*", one]
old:
  sha256: "{old}"
  expires: 2020-01-01
"""

CONFIG = """
keys: {file: keys.yaml}
models:
  open-a: {template: chat, targets: [{speaks: scripted, script: hello.yaml}]}
  open-b: {template: chat, targets: [{speaks: scripted, script: hello.yaml}]}
  one: {template: chat, targets: [{speaks: scripted, script: hello.yaml}]}
  secret: {template: chat, targets: [{speaks: scripted, script: hello.yaml}]}
"""


FILES = {
    **HELLO,
    "keys.yaml": KEY_FILE.format(**{name: hashlib.sha256(key.encode()).hexdigest() for name, key in KEYS.items()}),
}
served = gateway_fixture(CONFIG, FILES)


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {KEYS[key]}"}


def call(served: Gateway, headers: dict[str, str], model: str = "open-a") -> httpx.Response:
    body = {"model": model, "messages": [{"role": "user", "content": "hi"}]}
    return served.http.post("/v1/chat/completions", json=body, headers=headers)


REFUSED: dict[str, dict[str, str]] = {
    "no header": {},
    "an empty header": {"authorization": ""},
    "no key": {"authorization": "Bearer"},
    "an unknown key": {"authorization": "Bearer gk_nobody"},
    "another scheme": {"authorization": "Basic gk_all"},
    "a bare key": {"authorization": "gk_all"},
    "a key and more": {"authorization": "Bearer gk_all gk_all"},
    "another header": {"x-api-key": "gk_all"},
    "the digest itself": {"authorization": f"Bearer {hashlib.sha256(b'gk_all').hexdigest()}"},
}


@pytest.mark.parametrize("headers", REFUSED.values(), ids=REFUSED)
def test_every_wrong_key_gets_the_same_answer(served: Gateway, headers: dict[str, str]) -> None:
    reply = call(served, headers)
    assert reply.status_code == 401
    assert reply.headers["content-type"] == "application/json"
    assert reply.json() == call(served, {}).json()
    error = reply.json()["error"]
    assert (error["type"], error["code"], error["param"]) == ("authentication_error", "invalid_api_key", None)


def test_the_bearer_of_an_expired_key_reads_that_it_has_expired(served: Gateway) -> None:
    reply = call(served, {"authorization": "Bearer gk_old"})
    assert (reply.status_code, reply.json()["error"]["code"]) == (401, "invalid_api_key")
    assert reply.json()["error"]["message"] == "this client key has expired; ask the operator for a new one"


def test_a_key_in_the_query_is_refused(served: Gateway) -> None:
    assert served.http.get("/v1/models", params={"api_key": "gk_all"}).status_code == 401


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/embeddings", "/v1/render", "/v1/chat/completions"])
def test_the_key_is_checked_before_the_body_is_read(served: Gateway, path: str) -> None:
    assert served.http.post(path, content=b"{").status_code == 401


@pytest.mark.parametrize("path", ["/v1/models", "/v1/models/open-a", "/v1/models/nobody"])
def test_the_model_list_requires_a_key(served: Gateway, path: str) -> None:
    assert served.http.get(path).status_code == 401


@pytest.mark.parametrize("path", ["/health", "/health/live", "/health/ready"])
def test_health_requires_no_key(served: Gateway, path: str) -> None:
    assert served.http.get(path).status_code == 200


def test_metrics_on_the_main_listener_require_a_key(served: Gateway) -> None:
    assert served.http.get("/metrics").status_code == 401
    answer = served.http.get("/metrics", headers={"authorization": "Bearer gk_all"})
    assert "gateway_requests_total" in answer.text


@pytest.mark.parametrize("spelled", ["Bearer gk_all", "bearer gk_all", "Bearer  gk_all"])
def test_a_valid_key_is_accepted(served: Gateway, spelled: str) -> None:
    assert call(served, {"authorization": spelled}).status_code == 200


def test_the_model_list_shows_the_models_of_the_key(served: Gateway) -> None:
    def names(key: str) -> list[str]:
        return [card["id"] for card in served.http.get("/v1/models", headers=bearer(key)).json()["data"]]

    assert names("all") == ["open-a", "open-b", "one", "secret"]
    assert names("some") == ["open-a", "open-b", "one"]


def test_a_model_the_key_may_not_use_is_not_found(served: Gateway) -> None:
    def answers(name: str) -> list[tuple[int, str]]:
        body = {"model": name, "messages": [{"role": "user", "content": "x"}]}
        replies = (
            call(served, bearer("some"), name),
            served.http.get(f"/v1/models/{name}", headers=bearer("some")),
            served.http.post("/v1/render", json=body, headers=bearer("some")),
        )
        return [(reply.status_code, reply.text.replace(name, "NAME")) for reply in replies]

    assert answers("secret") == answers("nobody")
    assert {status for status, _ in answers("secret")} == {404}


def test_a_model_in_the_path_is_checked_against_the_key(served: Gateway) -> None:
    body = {"messages": [{"role": "user", "content": "hi"}]}
    assert served.http.post("/one/v1/chat/completions", json=body, headers=bearer("some")).status_code == 200
    assert served.http.post("/secret/v1/chat/completions", json=body, headers=bearer("some")).status_code == 404
    assert served.http.post("/one/v1/chat/completions", json=body).status_code == 401


BELOW = {  # requests below a model's path: (method, path, body)
    "chat": ("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}]}),
    "chat, another model in the body": ("POST", "/v1/chat/completions", {"model": "open-a", "messages": []}),
    "chat, no body": ("POST", "/v1/chat/completions", None),
    "completions": ("POST", "/v1/completions", {"prompt": "hi"}),
    "embeddings": ("POST", "/v1/embeddings", {"input": "hi"}),
    "render": ("POST", "/v1/render", {"messages": [{"role": "user", "content": "hi"}]}),
    "models": ("GET", "/v1/models", None),
    "a model": ("GET", "/v1/models/open-a", None),
    "a wrong method": ("GET", "/v1/chat/completions", None),
    "a wrong path": ("GET", "/v1/nowhere", None),
}


@pytest.mark.parametrize(("method", "path", "body"), BELOW.values(), ids=BELOW)
@pytest.mark.parametrize("headers", [{}, bearer("some")], ids=["without a key", "with a key"])
def test_a_path_does_not_reveal_which_models_exist(
    served: Gateway, headers: dict[str, str], method: str, path: str, body: dict[str, object] | None
) -> None:
    def answer(name: str) -> tuple[int, str]:
        reply = served.http.request(method, f"/{name}{path}", json=body, headers=headers)
        return reply.status_code, reply.text.replace(name, "NAME")

    assert answer("secret") == answer("nobody")
    if method == "POST":
        assert answer("secret")[0] == (404 if headers else 401)


def test_a_call_to_a_model_the_key_may_not_use_is_recorded(served: Gateway) -> None:
    before = served.counted("gateway_requests_total", endpoint="chat", model="unknown", outcome="invalid_api_key")
    served.http.post("/secret/v1/chat/completions", json={"messages": []})
    after = served.counted("gateway_requests_total", endpoint="chat", model="unknown", outcome="invalid_api_key")
    assert after == before + 1
