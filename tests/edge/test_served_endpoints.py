"""``server.endpoints``: the endpoints that a gateway serves."""

from __future__ import annotations

from pathlib import Path

from gateway.calls.endpoints.table import ENDPOINTS
from gateway.config import snapshot
from gateway.server.greeting import greeting
from tests.support.serving import Gateway, gateway
from tests.support.world import HELLO, gateway_fixture

MODEL = "models: {talk: {template: chatml, targets: [{speaks: scripted, script: hello.yaml}]}}"
served = gateway_fixture(f"server: {{endpoints: [chat]}}\n{MODEL}", HELLO)
BODY = {"model": "talk", "messages": [{"role": "user", "content": "hi"}]}


def test_the_setting_knows_all_endpoints() -> None:
    assert tuple(dict.fromkeys(endpoint.name for endpoint in ENDPOINTS)) == snapshot.ENDPOINTS


def test_an_endpoint_that_is_listed_answers(served: Gateway) -> None:
    for path in ("/v1/chat/completions", "/talk/v1/chat/completions"):
        assert served.http.post(path, json=BODY).json()["choices"][0]["message"]["content"] == "Hello"


def test_an_endpoint_that_is_not_listed_is_no_path(served: Gateway) -> None:
    for path, name in (("/v1/render", "render"), ("/talk/v1/render", "render"), ("/talk/tokenize", "tokenize")):
        answer = served.http.post(path, json=BODY)
        assert answer.status_code == 404
        assert f"server.endpoints does not list {name}" in answer.json()["error"]["message"]
    assert served.http.get("/tokenizer_info").status_code == 404


def test_the_documents_list_the_served_paths_only(served: Gateway) -> None:
    posts = {path for path, row in served.http.get("/openapi.json").json()["paths"].items() if "post" in row}
    assert posts == {"/v1/chat/completions"}
    page = served.http.get("/").text
    assert "/v1/chat/completions" in page
    assert "/v1/render" not in page
    assert "tokenizer_info" not in page


def test_a_command_is_suggested_only_for_an_endpoint_that_is_served(tmp_path: Path) -> None:
    files = {"hello.yaml": HELLO["hello.yaml"]}
    for endpoints, is_suggested in (("chat", True), ("completions", False)):
        config = f"server: {{endpoints: [{endpoints}]}}\n{MODEL}"
        with gateway(tmp_path, config, files=files) as one:
            assert ("curl" in one.http.get("/").text) is is_suggested
            assert ("curl" in greeting(one.runtime.state.stack.snapshot, 8000)) is is_suggested
