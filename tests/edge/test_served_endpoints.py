"""``server.endpoints``: the endpoints that a gateway serves."""

from __future__ import annotations

from gateway.calls.endpoints.table import ENDPOINTS
from gateway.config import snapshot
from tests.support.serving import Gateway
from tests.support.world import HELLO, gateway_fixture

served = gateway_fixture(
    """
server: {endpoints: [chat]}
models: {talk: {template: chatml, targets: [{speaks: scripted, script: hello.yaml}]}}
""",
    HELLO,
)
BODY = {"model": "talk", "messages": [{"role": "user", "content": "hi"}]}


def test_the_setting_knows_all_endpoints() -> None:
    assert tuple(endpoint.name for endpoint in ENDPOINTS) == snapshot.ENDPOINTS


def test_an_endpoint_that_is_listed_answers(served: Gateway) -> None:
    for path in ("/v1/chat/completions", "/talk/v1/chat/completions"):
        assert served.http.post(path, json=BODY).json()["choices"][0]["message"]["content"] == "Hello"


def test_an_endpoint_that_is_not_listed_is_no_path(served: Gateway) -> None:
    answer = served.http.post("/v1/render", json=BODY)
    assert answer.status_code == 404
    assert "server.endpoints does not list render" in answer.json()["error"]["message"]
    for path in ("/talk/v1/render", "/talk/tokenize"):
        assert served.http.post(path, json=BODY).status_code == 404
    assert served.http.get("/tokenizer_info").status_code == 404


def test_the_documents_list_the_served_paths_only(served: Gateway) -> None:
    posts = {path for path, row in served.http.get("/openapi.json").json()["paths"].items() if "post" in row}
    assert posts == {"/v1/chat/completions"}
    page = served.http.get("/").text
    assert "/v1/chat/completions" in page
    assert "/v1/render" not in page
    assert "tokenizer_info" not in page
