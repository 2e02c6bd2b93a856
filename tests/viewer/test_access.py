"""Who may look: sign-in with a key, the printed token, foreign origins and hosts, proxies."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.edge.session import OPERATOR, SESSION_SECONDS, Signer, viewer_signer
from gateway.policy.access.api_keys import key_digest
from gateway.server.greeting import viewer_address
from tests.support.serving import Gateway, bearer, gateway
from tests.support.world import HELLO, gateway_fixture, key_file
from tests.viewer.browsing import Browser, form_token, token_of

MODELS = """
models:
  open-a: {template: chat, targets: [{speaks: scripted, script: hello.yaml}]}
  secret: {template: chat, targets: [{speaks: scripted, script: hello.yaml}]}
"""
CHAT = {"model": "open-a", "messages": [{"role": "user", "content": "hi"}]}
KEYS = {"gk_some": "models: [open-*]", "gk_all": ""}
OTHER_SITE = {"origin": "http://evil.example", "sec-fetch-site": "cross-site"}

served = gateway_fixture(MODELS, HELLO)
"""A gateway without client keys."""
KEYED_FILES = {**HELLO, "keys.yaml": key_file({"gk_some": "models: [open-*]", "gk_all": "models: ['*']"})}
keyed = gateway_fixture("keys: {file: keys.yaml}\n" + MODELS, KEYED_FILES)
"""A gateway whose key ``gk_some`` may not use the model ``secret``."""


def models_of(browser: Browser) -> list[str]:
    return [model["name"] for model in browser.get("/viewer/models.json").json()["models"]]


# ---------------------------------------------------------------- with client keys


def test_without_a_session_no_model_is_named_and_a_form_asks_for_a_key(keyed: Gateway) -> None:
    browser = Browser(keyed.root)
    assert models_of(browser) == []
    page = browser.get("/viewer/sign-in")
    assert page.status_code == 200
    assert "Client key" in page.text
    assert "open-a" not in browser.get("/viewer").text


def test_a_visitor_sees_the_models_of_the_key(keyed: Gateway) -> None:
    some, every = Browser(keyed.root), Browser(keyed.root)
    assert some.sign_in("gk_some").url.path == "/viewer"
    assert every.sign_in("gk_all").url.path == "/viewer"
    assert models_of(some) == ["open-a"]
    assert models_of(every) == ["open-a", "secret"]


def test_signing_in_leads_back_to_the_page_and_to_no_other_host(keyed: Gateway) -> None:
    browser = Browser(keyed.root)
    assert browser.sign_in("gk_some", "/viewer/sign-in?next=%2Fmodels%3Fa%3Db").url.raw_path == b"/viewer/models?a=b"
    for target in (
        "//evil.example",
        "https://evil.example",
        "/\\evil.example",
        "@evil.example",
        "/%0d%0aset-cookie:a=b",
    ):
        again = Browser(keyed.root)
        page = again.get("/viewer/sign-in")
        again.http.follow_redirects = False
        answer = again.http.post(
            "/viewer/sign-in",
            params={"next": target},
            data={"key": "gk_some", "form_token": form_token(page)},
            headers={"origin": keyed.root},
        )
        assert answer.headers["location"].startswith("/viewer")
        assert not answer.headers["location"].startswith("/viewer@")


def test_a_wrong_key_is_refused_with_the_reason(keyed: Gateway) -> None:
    browser = Browser(keyed.root)
    page = browser.sign_in("gk_wrong")
    assert "no valid key" in page.text
    assert models_of(browser) == []


def test_the_cookie_is_out_of_reach_of_scripts_and_other_sites(keyed: Gateway) -> None:
    browser = Browser(keyed.root)
    browser.http.follow_redirects = False
    cookie = browser.sign_in("gk_some").headers["set-cookie"]
    assert cookie.endswith(f"Path=/; Max-Age={SESSION_SECONDS}; HttpOnly; SameSite=Strict")
    assert "gk_some" not in cookie
    secure = browser.post(
        "/viewer/sign-in",
        {"key": "gk_some", "form_token": form_token(browser.get("/viewer/sign-in"))},
        **{"x-forwarded-proto": "https"},
    )
    assert secure.headers["set-cookie"].endswith("; Secure")


def test_signing_out_ends_the_session(keyed: Gateway) -> None:
    browser = Browser(keyed.root)
    page = browser.sign_in("gk_some")
    browser.post("/viewer/sign-out", {"form_token": form_token(page)})
    assert models_of(browser) == []


def test_a_revoked_key_ends_its_session(tmp_path: Path) -> None:
    with gateway(tmp_path, "keys: {file: keys.yaml}\n" + MODELS, files=KEYED_FILES) as served:
        browser = Browser(served.root)
        browser.sign_in("gk_some")
        assert models_of(browser) == ["open-a"]
        (tmp_path / "keys.yaml").write_text(key_file({"gk_all": "models: ['*']"}))
        assert served.reload()
        assert models_of(browser) == []
        assert send(browser).status_code == 401


def cookie_with(served: Gateway, value: str) -> Browser:
    return Browser(served.root, {"cookie": f"gateway-session-127-0-0-1-{served.port}={value}"})


def test_an_expired_or_changed_session_is_refused(keyed: Gateway) -> None:
    state = keyed.runtime.state
    signer = viewer_signer(state.stack.snapshot.server, state.viewer_secret)
    begun = time.time()
    valid = signer.session(key_digest("gk_some"), begun)
    assert models_of(cookie_with(keyed, valid)) == ["open-a"]
    expired = signer.session(key_digest("gk_some"), begun - SESSION_SECONDS - 1)
    other_secret = Signer(b"x" * 32).session(key_digest("gk_some"), begun)
    operator = signer.session(OPERATOR, begun)
    later = expired.replace(".", ".9", 1)  # an end that is not signed
    for value in (expired, later, other_secret, operator, valid[:-2], valid[:20], "", "%", "=", "AAAA" * 30):
        assert models_of(cookie_with(keyed, value)) == []
        assert send(cookie_with(keyed, value)).status_code == 401


def test_programs_send_their_key_in_the_header(keyed: Gateway) -> None:
    assert models_of(Browser(keyed.root, bearer("gk_some"))) == ["open-a"]
    assert Browser(keyed.root).get("/viewer/models.json", authorization="Bearer no").status_code == 401


# ---------------------------------------------------------------- calls of the pages


def send(browser: Browser, body: Any = None, **headers: str) -> httpx.Response:
    """What a page's script sends."""
    own = {"origin": browser.root, "sec-fetch-site": "same-origin"}
    return browser.http.post("/viewer/api/chat", json=CHAT if body is None else body, headers={**own, **headers})


def test_a_page_sends_with_the_rights_of_the_session(keyed: Gateway) -> None:
    browser = Browser(keyed.root)
    assert send(browser).status_code == 401
    browser.sign_in("gk_some")
    assert send(browser).json()["choices"][0]["message"]["content"] == "Hello"
    assert send(browser, {**CHAT, "model": "secret"}).status_code == 404
    assert keyed.http.post("/v1/chat/completions", json=CHAT, headers=dict(browser.http.headers)).status_code == 401


def test_a_session_is_no_key_for_the_api(keyed: Gateway) -> None:
    browser = Browser(keyed.root)
    browser.sign_in("gk_some")
    assert browser.http.post("/v1/chat/completions", json=CHAT, headers={"origin": keyed.root}).status_code == 401


@pytest.mark.parametrize(
    "headers",
    [
        OTHER_SITE,
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://[x"},
        {"sec-fetch-site": "same-site"},
        {},
    ],
    ids=["other site", "other origin", "no origin", "malformed", "same site", "no header"],
)
def test_a_post_that_is_not_from_a_page_is_refused(served: Gateway, keyed: Gateway, headers: dict[str, str]) -> None:
    for one in (served, keyed):
        browser = Browser(one.root)
        if one is keyed:
            browser.sign_in("gk_some")
        answer = browser.http.post("/viewer/api/chat", json=CHAT, headers=headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "viewer_closed")
        assert browser.http.post("/viewer/sign-in", data={"key": "gk_all"}, headers=headers).status_code == 403


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "HEAD"])
def test_a_call_of_a_page_must_be_a_post(served: Gateway, method: str) -> None:
    answer = served.http.request(method, "/viewer/api/chat", json=CHAT, headers=OTHER_SITE)
    assert answer.status_code == 405


def test_without_keys_a_header_with_a_key_replaces_no_check(served: Gateway) -> None:
    headers = {"authorization": "Bearer x", **OTHER_SITE}
    assert served.http.post("/viewer/api/chat", json=CHAT, headers=headers).status_code == 403
    assert served.http.post("/viewer/models", data={"a": "b"}, headers=headers).status_code == 403


def test_a_form_has_few_fields_and_before_signing_in_few_bytes(keyed: Gateway) -> None:
    browser = Browser(keyed.root)
    own = {"origin": keyed.root, "content-type": "application/x-www-form-urlencoded"}
    assert browser.http.post("/viewer/sign-in", content=b"a&" * 100, headers=own).status_code == 400
    assert browser.http.post("/viewer/sign-in", content=b"a" * 20_000, headers=own).status_code == 413


def test_other_cookies_of_the_host_do_not_end_a_session(keyed: Gateway) -> None:
    browser = Browser(keyed.root)
    browser.sign_in("gk_some")
    (cookie,) = [f"{one.name}={one.value}" for one in browser.http.cookies.jar]
    for other in ('x={"a":1}', "theme=a b", "path=1", "a[b]=1", 'open="'):
        headers = {"cookie": f"{other}; {cookie}; {other}"}
        answer = httpx.get(f"{keyed.root}/viewer/models.json", headers=headers, trust_env=False)
        assert [model["name"] for model in answer.json()["models"]] == ["open-a"]


def test_a_call_of_a_page_must_be_json(served: Gateway) -> None:
    assert send(Browser(served.root), **{"content-type": "text/plain"}).status_code == 415


def test_a_form_without_its_token_is_refused(keyed: Gateway) -> None:
    browser = Browser(keyed.root)
    for token in ("", "A" * 32, form_token(Browser(keyed.root).sign_in("gk_all"))):
        assert browser.post("/viewer/sign-in", {"key": "gk_some", "form_token": token}).status_code == 403


# ---------------------------------------------------------------- without keys


def test_the_printed_token_becomes_a_session_and_leaves_the_address(served: Gateway) -> None:
    browser = Browser(served.root)
    page = browser.get(f"/viewer?token={token_of(served)}&a=b")
    assert page.url.raw_path == b"/viewer?a=b"
    assert len(browser.http.cookies) == 1
    assert len(Browser(served.root).get("/viewer?token=wrong").history) == 0


@pytest.mark.parametrize("header", ["x-forwarded-for", "forwarded", "via", "x-real-ip", "x-forwarded-host"])
def test_without_keys_a_forwarded_request_is_refused(served: Gateway, header: str) -> None:
    browser = Browser(served.root)
    browser.get(f"/viewer?token={token_of(served)}")
    assert browser.get("/viewer/models", **{header: "203.0.113.1"}).status_code == 403
    assert send(browser, **{header: "203.0.113.1"}).status_code == 403
    assert browser.get("/viewer/models").status_code == 200


def test_without_keys_a_host_that_is_not_loopback_is_refused(tmp_path: Path) -> None:
    config = "server: {allowed_hosts: [models.example]}\n" + MODELS
    with gateway(tmp_path, config, files=HELLO) as served:
        browser = Browser(served.root)
        assert served.http.get("/v1/models", headers={"host": "models.example"}).status_code == 200
        answer = browser.get("/viewer/models", host="models.example")
        assert answer.status_code == 403
        assert "http://127.0.0.1" in answer.text
        assert send(browser, host="models.example", origin="http://models.example").status_code == 403
        assert browser.get("/", host="models.example").status_code == 200
        assert "/viewer/prompt" not in browser.get("/", host="models.example").text


def test_a_viewer_that_is_off_leaves_the_list_of_models(tmp_path: Path) -> None:
    with gateway(tmp_path, "server: {viewer: off}\n" + MODELS, files=HELLO) as served:
        browser = Browser(served.root)
        for path in ("/viewer", "/viewer/models", "/viewer/sign-in"):
            assert browser.get(path).status_code == 404
        assert send(browser).status_code == 404
        assert "open-a" in browser.get("/").text
        assert viewer_address(served.runtime.state.stack.snapshot, 1, b"") == ""


def test_gateways_with_one_configured_secret_share_sessions(tmp_path: Path) -> None:
    config = "server: {viewer_secret: 'env:VIEWER'}\nkeys: {file: keys.yaml}\n" + MODELS
    env = {"VIEWER": "a-secret-of-at-least-some-length"}
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with (
        gateway(tmp_path / "a", config, env, files=KEYED_FILES) as one,
        gateway(tmp_path / "b", config, env, files=KEYED_FILES) as other,
    ):
        browser = Browser(one.root)
        browser.sign_in("gk_some")
        (cookie,) = browser.http.cookies.jar
        assert models_of(cookie_with(other, str(cookie.value))) == ["open-a"]
