"""``/v1/models`` and the entries of models."""

from __future__ import annotations

import pytest

from tests.support.serving import Gateway
from tests.support.world import HELLO, gateway_fixture

CONFIG = """
models:
  full:
    {template: chat, description: Adds numbers., max_model_len: 64, targets: [{speaks: scripted, script: hello.yaml}]}
  org/bare: {template: chat, targets: [{speaks: scripted, script: hello.yaml}]}
"""


served = gateway_fixture(CONFIG, HELLO)


def card(served: Gateway, path: str) -> dict[str, object]:
    answer: dict[str, object] = served.http.get(path).json()
    assert isinstance(answer.pop("created"), int)
    return answer


FULL = {
    "id": "full",
    "object": "model",
    "owned_by": "meta-gateway",
    "description": "Adds numbers.",
    "max_model_len": 64,
}
BARE = {"id": "org/bare", "object": "model", "owned_by": "meta-gateway"}

CARDS = {
    "/v1/models/full": FULL,
    "/v1/models/org/bare": BARE,
    "/v1/models/org%2fbare": BARE,
    "/full/v1/models/full": FULL,
    "/full/v1/models/org/bare": BARE,
    "/org/bare/v1/models/org/bare": BARE,
    "/org%2Fbare/v1/models/full": FULL,
}


@pytest.mark.parametrize(("path", "expected"), CARDS.items(), ids=CARDS)
def test_a_model_has_an_entry_under_every_base_path(served: Gateway, path: str, expected: dict[str, object]) -> None:
    assert card(served, path) == expected


@pytest.mark.parametrize("base", ["", "/full", "/org/bare"])
@pytest.mark.parametrize("slash", ["", "/"])
def test_the_list_contains_the_entries(served: Gateway, base: str, slash: str) -> None:
    cards = served.http.get(f"{base}/v1/models{slash}").json()["data"]
    assert [{key: value for key, value in one.items() if key != "created"} for one in cards] == [FULL, BARE]


@pytest.mark.parametrize(
    "path",
    [
        "/v1/models/nobody",
        "/nobody/v1/models",
        "/nobody/v1/models/full",
        "/full/v1/models/nobody",
    ],
)
def test_unknown_paths_and_models_are_not_found(served: Gateway, path: str) -> None:
    answer = served.http.get(path)
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "model_not_found")


def test_the_error_about_a_path_that_begins_with_no_model_names_the_base_url(served: Gateway) -> None:
    message = served.http.get("/api/v1/models").json()["error"]["message"]
    assert message.startswith('no model "api"')
    assert (
        f"; the path begins with this name; a client's base_url must end in one /v1, such as {served.url};" in message
    )


@pytest.mark.parametrize("body", [{}, {"model": None}, {"model": "full"}], ids=["absent", "null", "the same"])
def test_the_path_gives_the_model_if_the_body_has_none(served: Gateway, body: dict[str, object]) -> None:
    asked = {"messages": [{"role": "user", "content": "hi"}], **body}
    answer = served.http.post("/full/v1/chat/completions", json=asked)
    assert (answer.status_code, answer.json()["model"]) == (200, "full")


def test_a_script_without_a_document_cannot_embed(served: Gateway) -> None:
    answer = served.http.post("/v1/embeddings", json={"model": "full", "input": "hi"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "upstream_invalid_response")
