"""The effect of a policy and a client's request on a call, seen by the client and by the model's server."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import pytest

from tests.support.upstream.reply import TEXT
from tests.support.world import World, world_fixture

CONFIG = """
models:
  scored: {{template: chat, policy: eval, targets: [{{speaks: chat, url: "{url}", model: m, engine: vllm}}]}}
  through: {{template: chat, policy: eval, targets: [{{speaks: litellm, url: "{url}", model: openai/m}}]}}
  bounded: {{template: chat, policy: tight, targets: [{{speaks: chat, url: "{url}", model: m}}]}}
  text: {{template: writes-bos, policy: eval, targets: [{{speaks: completions, url: "{url}", engine: llamacpp}}]}}
  talk: {{template: four-stops, targets: [{{speaks: chat, url: "{url}", model: m}}]}}
"""

FILES = {
    "policies/tight.yaml": """
params: {clamp: {max_tokens: 7}, forbid: [stream_options, gateway, continue_final_message]}
""",
    "meta_templates/writes-bos.yaml": r"""
begin: "<s>"
round:
  - {role: HUMAN, begin: "<HUMAN>: ", end: "<eoh>\n"}
  - {role: BOT, begin: "<BOT>: ", end: "<eob>\n", generate: true}
bos: text
bos_text: "<s>"
""",
    "meta_templates/four-stops.yaml": """
kind: chat
stop: [one, two, three, " 1 <"]
""",
}


world = world_fixture(lambda up: CONFIG.format(url=up.url("ok")), FILES)


WITHOUT_LITELLM = pytest.mark.skipif(find_spec("litellm") is None, reason="the litellm extra is not installed")


@pytest.mark.parametrize("model", ["scored", pytest.param("through", marks=WITHOUT_LITELLM)])
def test_an_evaluation_policy_does_not_change_embeddings(world: World, model: str) -> None:
    body = {"model": model, "input": ["a"], "gateway": {"explain": True}}
    answer = world.served.http.post("/v1/embeddings", json=body)
    assert answer.status_code == 200, answer.text
    assert answer.json()["data"][0]["embedding"] == [0.25, -0.5]
    assert world.sent() == {"model": "m", "input": ["a"]}
    explanation = answer.json()["gateway"]
    assert (explanation["model"], explanation["policy"], explanation["params"], explanation["notices"]) == (
        model,
        "eval",
        {},
        [],
    )
    assert explanation["prompt_sha256"] == answer.headers["x-gateway-prompt-sha256"]
    assert (explanation["target"], explanation["attempts"]) == (f"{model}/0", 1)


def test_embeddings_have_no_explanation_by_default(world: World) -> None:
    assert "gateway" not in world.served.http.post("/v1/embeddings", json={"model": "scored", "input": "a"}).json()


def test_a_bound_is_sent_to_a_chat_server_when_the_client_sets_no_limit(world: World) -> None:
    answer = world.served.chat("bounded")
    assert world.sent()["max_tokens"] == 7
    assert answer.headers["x-gateway-notice"] == "clamped_parameter: max_tokens=7"


FORBIDDEN: dict[str, dict[str, Any]] = {
    "stream_options": {"stream": True, "stream_options": {"include_usage": True}},
    "gateway": {"gateway": {"explain": True}},
    "continue_final_message": {"continue_final_message": True},
}


@pytest.mark.parametrize("name", FORBIDDEN)
def test_a_forbidden_field_of_the_gateway_is_refused(world: World, name: str) -> None:
    before = world.up.request_count
    answer = world.served.chat("bounded", **FORBIDDEN[name])
    assert answer.status_code == 400
    assert (answer.json()["error"]["code"], answer.json()["error"]["param"]) == ("forbidden_parameter", name)
    assert world.up.request_count == before


def test_an_explanation_contains_the_values_of_the_headers(world: World) -> None:
    answer = world.served.chat("text", gateway={"explain": True})
    explanation, headers = answer.json()["gateway"], answer.headers
    assert headers["x-gateway-notice"] == "; ".join(explanation["notices"])
    assert "bos_stripped: the engine adds the BOS" in explanation["notices"]
    assert (explanation["target"], str(explanation["attempts"])) == (
        headers["x-gateway-target"],
        headers["x-gateway-attempts"],
    )
    assert 0 < explanation["overhead_ms"] <= float(headers["x-gateway-overhead-ms"])
    assert not world.served.metric("gateway_bos_anomalies_total", model="text")


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_stops_over_the_limit_of_an_api_are_cut_by_the_gateway(world: World, stream: bool) -> None:
    stops = ["four", "five", "six", "ld!"]
    answer = world.served.chat("talk", stop=stops, stream=stream)
    assert len(world.sent()["stop"]) == 4
    assert "stops_enforced_here: 4" in answer.headers["x-gateway-notice"]
    assert "ld!" not in answer.text
    assert "wör" in answer.text
    assert "ld!" in TEXT
