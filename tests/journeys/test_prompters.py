"""The example of docs/prompters.md: a request fills a slot of a template, and render shows the prompt."""

from __future__ import annotations

import json

import pytest

from tests.support.serving import ROOT, Gateway
from tests.support.world import World, gateway_fixture, world_fixture

PAGE = (ROOT / "docs" / "prompters.md").read_text("utf-8")
TEMPLATE = PAGE.split("```yaml\n", 1)[1].split("```", 1)[0]
CONFIG = """
models:
  my-rag:
    template: my-rag
    targets: [{speaks: scripted, script: script.yaml}]
  caller:
    template: lazyllm-qwen
    targets: [{speaks: scripted, script: call.yaml}]
  repeating:
    template: repeating
    targets: [{speaks: scripted, script: repeat.yaml}]
  plain:
    template: lazyllm-qwen
    targets: [{speaks: scripted, script: script.yaml}]
"""
CALL = '- "Well.<|action_start|><|function|>f<|args|>{a: 1}<|action_end|>"\n- {finish: stop}\n'
REPEATING = '{kind: prompter, class: alpaca, instruction: "Add {sum}", get_response: true}'
REPEAT = '- "Sure.\\n### Resp"\n- "onse:\\n4"\n- {finish: stop}\n'
SCRIPT = '- "12 m <|im_"\n- "end|>junk"\n- {finish: length}\n'

ASKED = {"messages": [{"role": "user", "content": "How high is it?"}]}
PROMPT = (
    "<|im_start|>system\nYou are a helpful assistant."
    "Answer from this context only: It is </!lazyllm-spliter!> 12 m.\n\n"
    "<|im_end|>\n\n\n\n<|im_start|>user\n\nHow high is it?\n<|im_end|>\n<|im_start|>assistant\n\n"
)


FILES = {
    "meta_templates/my-rag.yaml": TEMPLATE,
    "meta_templates/repeating.yaml": REPEATING,
    "script.yaml": SCRIPT,
    "repeat.yaml": REPEAT,
    "call.yaml": CALL,
}
served = gateway_fixture(CONFIG, FILES)


@pytest.mark.parametrize("stream", [False, True])
def test_a_slot_is_filled_and_the_answer_ends_at_the_templates_stop(served: Gateway, stream: bool) -> None:
    variables = {"context": "It is </!lazyllm-spliter!> 12 m."}
    body = {"model": "my-rag", **ASKED, "stream": stream, "gateway": {"variables": variables, "explain": True}}
    answer = served.http.post("/v1/chat/completions", json=body)
    assert answer.status_code == 200
    assert answer.headers["x-gateway-template"].startswith("my-rag@sha256:")
    if stream:
        assert "12 m" in answer.text
        assert "junk" not in answer.text
        assert '"finish_reason":"stop"' in answer.text.replace(" ", "")
    else:
        body_of_answer = answer.json()
        assert body_of_answer["gateway"]["prompt"] == PROMPT
        assert (body_of_answer["choices"][0]["message"]["content"], body_of_answer["choices"][0]["finish_reason"]) == (
            "12 m ",
            "stop",
        )


def test_render_shows_the_same_prompt_and_the_origin_of_its_segments(served: Gateway) -> None:
    body = {"model": "my-rag", **ASKED, "gateway": {"variables": {"context": "It is </!lazyllm-spliter!> 12 m."}}}
    body_of_answer = served.http.post("/v1/render", json=body).json()
    assert body_of_answer["prompt"] == PROMPT
    content = {segment["origin"]: segment["text"] for segment in body_of_answer["segments"] if not segment["scaffold"]}
    assert content == {"variables.context": "It is </!lazyllm-spliter!> 12 m.", "messages[0]": "How high is it?"}


def test_an_unknown_slot_is_a_400_that_lists_the_slots(served: Gateway) -> None:
    body = {"model": "my-rag", **ASKED, "gateway": {"variables": {"kontext": "x"}}}
    answer = served.http.post("/v1/chat/completions", json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "gateway.variables"
    assert "accepts the variables context; leave out 'kontext'" in answer.json()["error"]["message"]


def test_a_system_message_gives_a_notice(served: Gateway) -> None:
    messages = [{"role": "system", "content": "Be brief."}, *ASKED["messages"]]
    answer = served.http.post("/v1/chat/completions", json={"model": "plain", "messages": messages})
    assert "system_folded: messages[0]" in answer.headers["x-gateway-notice"]


def test_a_tool_call_is_returned_in_openais_form(served: Gateway) -> None:
    tools = [{"type": "function", "function": {"name": "f"}}]
    body_of_answer = served.http.post("/v1/chat/completions", json={"model": "caller", **ASKED, "tools": tools}).json()
    choice = body_of_answer["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] == "Well."
    assert [
        (call["function"]["name"], json.loads(call["function"]["arguments"]))
        for call in choice["message"]["tool_calls"]
    ] == [("f", {"a": 1})]


def test_an_answer_is_found_in_the_text_streamed_or_not(served: Gateway) -> None:
    assert served.chat("repeating", "2+2").json()["choices"][0]["message"]["content"] == "4"
    lines = served.chat("repeating", "2+2", stream=True).text.splitlines()
    events = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: {")]
    assert "".join(event["choices"][0]["delta"].get("content") or "" for event in events) == "4"


# ---------------------------------------------------------------- in front of an API model

API_CONFIG = """
models:
  api-rag:
    template: my-rag
    targets: [{{speaks: chat, url: "{url}"}}]
  equipped:
    template: equipped
    targets: [{{speaks: chat, url: "{url}"}}]
  equipped-text:
    template: equipped
    targets: [{{speaks: scripted, script: call.yaml}}]
"""
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]


EQUIPPED = """
kind: prompter
class: chat
marks_of: qwen
tools: {parser: lazyllm}
default_tools: [{type: function, function: {name: f}}]
"""


API_FILES = {**FILES, "meta_templates/equipped.yaml": EQUIPPED}
api = world_fixture(lambda up: API_CONFIG.format(url=up.url("ok")), API_FILES)


def test_an_api_model_gets_messages_and_native_tools(api: World) -> None:
    history = [{"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Hello."}]
    variables = {"variables": {"context": "12 m."}}
    body = {"model": "api-rag", "messages": [*history, *ASKED["messages"]], "gateway": variables}
    answer = api.served.http.post("/v1/chat/completions", json={**body, "tools": TOOLS})
    assert answer.status_code == 200, answer.text
    received = api.up.requests[-1].body
    system = "You are a helpful assistant.\nAnswer from this context only: 12 m.\n\n"
    sent = [{"role": "system", "content": system}, *history, *ASKED["messages"]]
    assert (received["messages"], received["tools"], "stop" in received) == (sent, TOOLS, False)


@pytest.mark.parametrize(
    ("given", "names"),
    [({}, ["f"]), ({"tools": []}, ["f"]), ({"tools": [{"type": "function", "function": {"name": "g"}}]}, ["g"])],
    ids=["none", "an empty list", "its own"],
)
def test_an_api_model_gets_the_templates_tools_unless_the_request_has_some(
    api: World, given: dict[str, object], names: list[str]
) -> None:
    assert api.served.http.post("/v1/chat/completions", json={"model": "equipped", **ASKED, **given}).status_code == 200
    assert [tool["function"]["name"] for tool in api.up.requests[-1].body["tools"]] == names


def test_a_string_model_writes_the_templates_tools_and_reads_their_calls(api: World) -> None:
    body = {"model": "equipped-text", **ASKED, "gateway": {"explain": True}}
    answer = api.served.http.post("/v1/chat/completions", json=body).json()
    assert (
        '### Function-call Tools. \n\n[{type: "function", "function": {name: "f"}}]\n\n' in answer["gateway"]["prompt"]
    )
    message = answer["choices"][0]["message"]
    assert (message["content"], [call["function"]["name"] for call in message["tool_calls"]]) == ("Well.", ["f"])
