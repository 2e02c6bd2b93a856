"""The same answers from our own HTTP server and from uvicorn (``server.http_server``)."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.serving import Gateway, eventually, gateway

CONFIG = """\
server: {{http_server: {server}, max_body: 1KiB}}
models:
  quick: {{template: chat, targets: [{{speaks: scripted, script: quick.yaml}}]}}
  slow: {{template: chat, targets: [{{speaks: scripted, script: slow.yaml}}]}}
  broken: {{template: chat, targets: [{{speaks: scripted, script: broken.yaml}}]}}
"""
SCRIPTS = {
    "quick.yaml": "[Hel, lo, {finish: stop}]\n",
    "slow.yaml": "[begun, {pause: 50}, {finish: stop}]\n",
    "broken.yaml": "[begun, {error: upstream_disconnected}]\n",
}


@pytest.fixture(scope="module", params=["h1", "uvicorn"])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    folder = tmp_path_factory.mktemp(request.param)
    for name, text in SCRIPTS.items():
        (folder / name).write_text(text)
    with gateway(folder, CONFIG.format(server=request.param)) as one:
        yield one


def test_a_whole_answer_with_all_its_headers(served: Gateway) -> None:
    answer = served.chat("quick")
    assert answer.json()["choices"][0]["message"]["content"] == "Hello"
    expected = {
        "date", "x-request-id", "openai-version", "content-type", "content-length", "x-gateway-model",
        "x-gateway-template", "x-gateway-prompt-sha256", "x-gateway-policy", "x-gateway-target", "x-gateway-attempts",
        "x-gateway-overhead-ms", "openai-processing-ms",
    }  # fmt: skip
    assert set(answer.headers) == expected
    assert answer.headers["x-gateway-target"] == "quick/0"


def test_a_stream(served: Gateway) -> None:
    answer = served.chat("quick", stream=True)
    assert answer.headers["content-type"] == "text/event-stream"
    assert answer.headers["transfer-encoding"] == "chunked"
    assert "Hel" in answer.text
    assert answer.text.endswith("data: [DONE]\n\n")


def test_a_stream_that_breaks_off_says_so(served: Gateway) -> None:
    answer = served.chat("broken", stream=True)
    assert answer.status_code == 200
    assert '"code":"upstream_disconnected"' in answer.text
    assert answer.text.endswith("data: [DONE]\n\n")


def test_a_refusal_closes_where_reading_on_is_not_worth_it(served: Gateway) -> None:
    answer = served.chat("quick", "x" * 2000)
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "body_too_large")
    assert answer.headers["connection"] == "close"


def test_head_and_wrong_methods(served: Gateway) -> None:
    known, wrong = served.http.head("/v1/models"), served.http.get("/v1/chat/completions")
    assert (known.status_code, known.content, int(known.headers["content-length"]) > 0) == (200, b"", True)
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "POST")


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_ends_its_call(served: Gateway, stream: bool) -> None:
    labels = {"endpoint": "chat", "model": "slow", "outcome": "client_gone"}
    before = served.metric("gateway_requests_total", **labels)
    body = {"model": "slow", "stream": stream, "messages": [{"role": "user", "content": "hi"}]}
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{served.url}/chat/completions", json=body, timeout=0.3, trust_env=False)
    assert eventually(lambda: served.metric("gateway_requests_total", **labels) == before + 1)
    assert served.settled()
