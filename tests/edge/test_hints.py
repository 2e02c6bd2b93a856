"""Hints: fields that cannot change an answer, and so never fail a call if they are valid."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

import httpx
import pytest

from gateway.config.snapshot import Engine
from gateway.wire.request_fields import HINTS
from tests.support.serving import ROOT, Gateway
from tests.support.upstream.server import FaultyUpstream
from tests.support.world import World, world_fixture

ENGINES = get_args(Engine)
VALUES: Mapping[str, Any] = {
    "prompt_cache_key": "session-1",
    "prompt_cache_options": {"mode": "implicit"},
    "prompt_cache_retention": "24h",
    "safety_identifier": "ann",
    "metadata": {"run": "7"},
    "client_metadata": {"turn_id": "1", "long": "x" * 1000},
}
OPTIONS = {"stream": True, "stream_options": {"include_obfuscation": False}}
SENT = {"prompt_cache_key", "prompt_cache_options", "prompt_cache_retention", "safety_identifier"}
"""The hints that a chat target receives."""
FILES = {
    "policies/cached.yaml": "cache: {mode: on}",
    "policies/sticky.yaml": "delivery: {balance: sticky}",
    "policies/strict.yaml": "params: {unknown: reject}",
}


def config(up: FaultyUpstream) -> str:
    target = f'url: "{up.url("ok")}"'
    rows = [
        f"text-{engine}: {{template: sft-demo, targets: [{{speaks: completions, {target}, engine: {engine}}}]}}"
        for engine in ENGINES
    ]
    rows += [
        f"chat-{engine}: {{template: chat, targets: [{{speaks: chat, {target}, engine: {engine}}}]}}"
        for engine in ENGINES
        if engine != "llamacpp-python"
    ]
    rows += [f"embedded: {{template: sft-demo, targets: [{{speaks: embedded, path: {ROOT}/demo/model}}]}}"]
    rows += [f"cached: {{template: sft-demo, policy: cached, targets: [{{speaks: completions, {target}}}]}}"]
    rows += [f"strict: {{template: sft-demo, policy: strict, targets: [{{speaks: completions, {target}}}]}}"]
    places = ", ".join([f'{{speaks: completions, url: "{up.url("ok")}"}}'] * 4)
    rows += [f"sticky: {{template: sft-demo, policy: sticky, targets: [{places}]}}"]
    return "models:\n" + "".join(f"  {row}\n" for row in rows)


world = world_fixture(config, FILES)
MODELS = (
    *[f"text-{engine}" for engine in ENGINES],
    *[f"chat-{engine}" for engine in ENGINES if engine != "llamacpp-python"],
    "embedded",
    "strict",
)


def notices(reply: httpx.Response) -> set[str]:
    """The notices about parameters that were left out."""
    found = reply.headers.get("x-gateway-notice", "").split("; ")
    return {name.removeprefix("omitted_parameter: ") for name in found if name.startswith("omitted_parameter")}


def respond(served: Gateway, model: str, **fields: Any) -> httpx.Response:
    return served.http.post("/v1/responses", json={"model": model, "input": "1+1=", **fields})


def test_the_values_are_those_of_the_table() -> None:
    assert VALUES.keys() == HINTS


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("api", ["chat", "responses"])
def test_all_hints_are_sent_or_left_out_with_a_notice(world: World, model: str, api: str) -> None:
    ask = world.served.chat if api == "chat" else lambda *given, **fields: respond(world.served, *given, **fields)
    reply = ask(model, **VALUES, **OPTIONS)
    assert reply.status_code == 200, reply.text
    sent = SENT if model.startswith("chat-") else set()
    obfuscation = set() if model.endswith("-openai") or model == "strict" else {"stream_options.include_obfuscation"}
    assert notices(reply) == HINTS - sent | obfuscation
    if model != "embedded":
        body = world.sent()
        assert {name: body[name] for name in HINTS & body.keys()} == {name: VALUES[name] for name in sent}
        options = {} if obfuscation else {"include_obfuscation": False}
        assert body["stream_options"] == {**options, "include_usage": True}


def test_a_raw_completion_may_have_hints(world: World) -> None:
    body = {"model": "text-vllm", "prompt": "1+1=", **VALUES}
    reply = world.served.http.post("/v1/completions", json=body)
    assert (reply.status_code, notices(reply)) == (200, set(HINTS))


WRONG: Mapping[str, Any] = {
    "prompt_cache_key": 3,
    "prompt_cache_options": "implicit",
    "prompt_cache_retention": True,
    "safety_identifier": ["ann"],
    "metadata": {"run": 7},
    "client_metadata": "x",
}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("api", ["chat", "responses"])
def test_the_type_of_a_hint_is_checked(world: World, name: str, api: str) -> None:
    before = world.up.request_count
    fields = {name: WRONG[name]}
    reply = world.served.chat("text-vllm", **fields) if api == "chat" else respond(world.served, "text-vllm", **fields)
    param = "metadata.run" if name == "metadata" else name
    error = reply.json()["error"]
    assert (reply.status_code, error["code"], error["param"]) == (400, "invalid_value", param)
    assert world.up.request_count == before


def test_obfuscation_that_is_asked_for_is_no_hint(world: World) -> None:
    fields = {"stream": True, "stream_options": {"include_obfuscation": True}}
    assert world.served.chat("embedded", **fields).json()["error"]["param"] == "stream_options.include_obfuscation"
    for model in ("text-vllm", "chat-vllm"):
        reply = world.served.chat(model, **fields)
        assert "unverified_parameter: stream_options.include_obfuscation" in reply.headers["x-gateway-notice"]
        assert world.sent()["stream_options"] == {"include_obfuscation": True, "include_usage": True}
    fields["stream_options"] = {"include_obfuscation": "no"}
    assert world.served.chat("text-openai", **fields).json()["error"]["code"] == "invalid_value"


def test_render_shows_the_hints_of_the_call_before_a_target_is_chosen(world: World) -> None:
    body = {"model": "text-vllm", "messages": [{"role": "user", "content": "1+1="}], "prompt_cache_key": "session-1"}
    rendered = world.served.http.post("/v1/render", json=body).json()
    assert rendered["params"]["prompt_cache_key"] == "session-1"
    assert not [notice for notice in rendered["notices"] if notice.startswith("omitted_parameter")]
    answered = world.served.http.post("/v1/chat/completions", json={**body, "gateway": {"explain": True}}).json()
    assert "omitted_parameter: prompt_cache_key" in answered["gateway"]["notices"]
    assert "prompt_cache_key" not in world.sent()


def test_hints_are_no_part_of_the_cache_key(world: World) -> None:
    first = world.served.chat("cached", **VALUES)
    assert notices(first) == HINTS
    second = world.served.chat("cached")
    assert [reply.headers["x-gateway-cache"].partition(";")[0] for reply in (first, second)] == ["miss", "hit"]
    assert (second.json()["choices"], notices(second)) == (first.json()["choices"], set())


def test_calls_of_a_string_model_with_the_same_prompt_cache_key_go_to_the_same_target(world: World) -> None:
    def target(key: str, content: str) -> str:
        return str(world.served.chat("sticky", content, prompt_cache_key=key).headers["x-gateway-target"])

    for key in ("a", "b"):
        assert len({target(key, f"{number} is another beginning") for number in range(8)}) == 1
    assert len({target(f"key {number}", "the same beginning") for number in range(16)}) > 1
