"""The answers of every path have the schema that ``/openapi.json`` gives."""

from __future__ import annotations

from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tests.support.serving import ROOT, Gateway
from tests.support.world import gateway_fixture

MODELS = f"""
models:
  demo: {{template: sft-demo, targets: [{{speaks: embedded, path: {ROOT}/demo/model}}]}}
  vectors: {{template: chat, targets: [{{speaks: scripted, script: vectors.yaml}}]}}
"""
VECTORS = "[{document: {object: list, data: [{object: embedding, index: 0, embedding: [0.5]}]}}]"


served = gateway_fixture(MODELS, {"vectors.yaml": VECTORS})


@pytest.fixture(scope="module")
def document(served: Gateway) -> dict[str, Any]:
    found: dict[str, Any] = served.http.get("/openapi.json").json()
    return found


MESSAGES = [{"role": "user", "content": "1+1=?"}]
BODIES: dict[str, list[dict[str, Any]]] = {
    "/v1/chat/completions": [
        {"messages": MESSAGES},
        {"messages": MESSAGES, "logprobs": True, "top_logprobs": 1, "n": 2},
        {"gateway": {"turns": {"questions": ["1+1=?", "2+2=?"]}}},
    ],
    "/v1/completions": [{"prompt": ["1+1=?", "1+2=?"]}, {"prompt": [5, 6], "logprobs": 1, "echo": True}],
    "/v1/embeddings": [{"model": "vectors", "input": "hi"}],
    "/v1/responses": [{"input": "1+1=?"}, {"input": "1+1=?", "max_output_tokens": 1}],
    "/v1/responses/input_tokens": [{"input": "1+1=?", "instructions": "Add."}],
    "/v1/loglikelihood": [{"candidates": {"A": "2", "B": "3"}, "context": "1+1="}],
    "/v1/render": [{"messages": MESSAGES}],
    "/v1/chat/completions/render": [{"messages": MESSAGES}, {"messages": MESSAGES, "stream": True}],
    "/v1/completions/render": [{"prompt": "1+1"}, {"prompt": ["1+1=?", "2+2=?"]}],
    "/v1/tokenize": [{"prompt": "1+1"}, {"messages": MESSAGES, "return_token_strs": True}],
    "/tokenize": [{"prompt": "1+1"}],
    "/v1/detokenize": [{"tokens": [20, 14]}],
    "/detokenize": [{"tokens": [20, 14]}],
}


def check(document: dict[str, Any], operation: dict[str, Any], body: Any) -> None:
    schema = operation["responses"]["200"]["content"]["application/json"]["schema"]
    assert schema.get("items", schema)["required"]
    Draft202012Validator({**document, **schema}).validate(body)


def test_every_post_has_a_case(document: dict[str, Any]) -> None:
    assert {path for path, item in document["paths"].items() if "post" in item} == BODIES.keys()


@pytest.mark.parametrize("path", BODIES)
def test_an_answer_has_its_schema(served: Gateway, document: dict[str, Any], path: str) -> None:
    for body in BODIES[path]:
        answer = served.http.post(path, json={"model": "demo", **body})
        assert answer.status_code == 200, answer.text
        check(document, document["paths"][path]["post"], answer.json())


def test_the_answers_of_get_requests_have_their_schemas(served: Gateway, document: dict[str, Any]) -> None:
    for path, item in document["paths"].items():
        if "get" in item and "application/json" in item["get"]["responses"]["200"]["content"]:
            answer = served.http.get(path.format(model="demo"))
            assert answer.status_code == 200, path
            check(document, item["get"], answer.json())
