"""Namespaces of functions at ``/v1/responses``, in the form in which Codex CLI sends them, as two turns of an agent."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tests.support.upstream.server import FaultyUpstream
from tests.support.world import World, world_fixture

PARAMETERS = {"type": "object", "properties": {"target": {"type": "string"}}, "required": ["target"]}
CLOSE = {"type": "function", "name": "close", "description": "Close it.", "strict": False, "parameters": PARAMETERS}
NAMESPACE = {"type": "namespace", "name": "agents", "description": "Sub-agents.", "tools": [CLOSE]}
BODY: dict[str, Any] = {
    "tools": [CLOSE, NAMESPACE],
    "store": False,
    "include": ["reasoning.encrypted_content"],
    "reasoning": {"summary": "auto"},
    "prompt_cache_key": "session",
    "client_metadata": {"turn_id": "1"},
    "parallel_tool_calls": True,
}
ASK = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Close a."}]}


def config(up: FaultyUpstream) -> str:
    url = up.url("agent", calls=json.dumps([["agents__close", {"target": "a"}]]))
    return f"""
models:
  string: {{template: chatml-tools, targets: [{{speaks: completions, engine: vllm, url: "{url}"}}]}}
  chat: {{template: chat, targets: [{{speaks: chat, url: "{url}"}}]}}
  litellm: {{template: chat, targets: [{{speaks: litellm, model: hosted_vllm/tiny, url: "{url}"}}]}}
"""


world = world_fixture(config, {})


def events(reply: httpx.Response) -> list[dict[str, Any]]:
    """The events of a stream."""
    assert reply.status_code == 200, reply.text
    lines = [line.removeprefix("data: ") for line in reply.text.splitlines() if line.startswith("data: {")]
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize("model", ["string", "chat", "litellm"])
def test_a_call_has_the_two_names_of_the_request_and_returns_in_the_history(world: World, model: str) -> None:
    def ask(*items: Any) -> list[dict[str, Any]]:
        body = {"model": model, "input": list(items), **BODY, "stream": True}
        return events(world.served.http.post("/v1/responses", json=body))

    first = ask(ASK)
    [added] = [one["item"] for one in first if one["type"] == "response.output_item.added"]
    assert (added["type"], added["namespace"], added["name"]) == ("function_call", "agents", "close")
    response = first[-1]["response"]
    [call] = response["output"]
    assert (call["namespace"], call["name"], json.loads(call["arguments"])) == ("agents", "close", {"target": "a"})
    assert [tool["name"] for tool in response["tools"]] == ["close", "agents"]
    output = {"type": "function_call_output", "call_id": call["call_id"], "output": "closed"}
    [message] = ask(ASK, call, output)[-1]["response"]["output"]
    assert message["content"][0]["text"] == "It printed closed."
    sent = world.sent()
    assert '"name": "agents__close"' in (sent["prompt"] if model == "string" else json.dumps(sent["messages"]))


@pytest.mark.parametrize(
    "choice", [{"name": "close"}, {"name": "close", "namespace": "agents"}, {"name": "agents__close"}]
)
@pytest.mark.parametrize("model", ["string", "chat", "litellm"])
def test_tool_choice_names_a_function_of_a_namespace(world: World, model: str, choice: dict[str, str]) -> None:
    chosen = {"type": "function", **choice}
    body = {"model": model, "input": [ASK], "tools": [NAMESPACE], "tool_choice": chosen, "stream": True}
    response = events(world.served.http.post("/v1/responses", json=body))[-1]["response"]
    [call] = response["output"]
    assert (call["namespace"], call["name"], response["tool_choice"]) == ("agents", "close", chosen)
