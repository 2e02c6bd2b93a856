"""``/v1/responses`` with the OpenAI SDK for Python, for models that take a string and models that take messages."""

from __future__ import annotations

import json
from typing import Any

import httpx
import openai
import pytest
from openai import OpenAI
from openai.types.responses import FunctionToolParam, ResponseFunctionToolCall
from pydantic import BaseModel

from tests.journeys.sdk import SdkWorld
from tests.support.serving import ROOT
from tests.support.upstream.server import FaultyUpstream
from tests.support.world import world_fixture

ARGUMENTS = '{"a": 12, "b": 34}'
CALL = f'<tool_call>\n{{"name": "add", "arguments": {ARGUMENTS}}}\n</tool_call>'
ADD: FunctionToolParam = {
    "type": "function",
    "name": "add",
    "description": "Adds two numbers.",
    "strict": None,
    "parameters": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}},
}
THINKS = """
kind: meta
round:
  - {role: HUMAN, begin: "Q: ", end: "\\n"}
  - {role: BOT, begin: "A: <think>\\n", end: "<eob>\\n", generate: true}
thinking: {begin: "<think>", end: "</think>", open: true}
"""
CONFIG = f"""
models:
  demo: {{{{template: sft-demo, policy: eval, targets: [{{{{speaks: embedded, path: {ROOT}/demo/model}}}}]}}}}
  agent: {{{{template: chatml-tools, targets: [{{{{speaks: completions, url: "{{agent}}", engine: vllm}}}}]}}}}
  thinker: {{{{template: thinks, targets: [{{{{speaks: completions, url: "{{thinker}}"}}}}]}}}}
  cut: {{{{template: thinks, targets: [{{{{speaks: completions, url: "{{cut}}"}}}}]}}}}
  talk: {{{{template: chat, targets: [{{{{speaks: chat, url: "{{talk}}"}}}}]}}}}
  api-agent: {{{{template: chat, targets: [{{{{speaks: scripted, script: api-agent.yaml}}}}]}}}}
  json: {{{{template: chat, targets: [{{{{speaks: scripted, script: json.yaml}}}}]}}}}
  breaking: {{{{template: chat, targets: [{{{{speaks: scripted, script: breaking.yaml}}}}]}}}}
  failing: {{{{template: chat, targets: [{{{{speaks: scripted, script: failing.yaml}}}}]}}}}
"""
SCRIPTS = {
    "api-agent": """
- {fields: {reasoning_content: I }}
- {fields: {reasoning_content: add.}}
- Let me
- " add."
- {fields: {tool_calls: [{index: 0, id: c1, type: function, function: {name: add, arguments: '{"a": 12,'}}]}}
- {fields: {tool_calls: [{index: 0, function: {arguments: ' "b": 34}'}}]}}
- {finish: tool_calls}
- {usage: [7, 2]}
""",
    "json": """['{"sum"', ': 46}', {finish: stop}]""",
    "breaking": "[Hel, {error: upstream_disconnected}]",
    "failing": "[{error: upstream_error}]",
}


class World(SdkWorld):
    def post(self, **body: Any) -> httpx.Response:
        return self.served.http.post("/v1/responses", json=body)


def config(up: FaultyUpstream) -> str:
    return CONFIG.format(
        agent=up.url("text", text=f"I add.\n{CALL}", then="46", when="<tool_response>"),
        thinker=up.url("text", text="12 and 34 …</think>\n\n46<eob>\nleak", size=4),
        cut=up.url("text", text="hm hm hm", finish="length"),
        talk=up.url("ok"),
    )


FILES = {f"{name}.yaml": script for name, script in SCRIPTS.items()}
world = world_fixture(config, {**FILES, "prompts": ROOT / "prompts", "meta_templates/thinks.yaml": THINKS}, World)


def streamed(client: OpenAI, **asked: Any) -> Any:
    """The final response of a stream, which the SDK has accumulated and checked."""
    with client.responses.stream(**asked) as events:
        return events.get_final_response()


def kinds(response: Any) -> list[str]:
    return [item.type for item in response.output]


# ---------------------------------------------------------------- answers

ASKED: dict[str, dict[str, Any]] = {
    "demo": {},
    "agent": {"tools": [ADD]},
    "thinker": {},
    "api-agent": {"tools": [ADD]},
    "talk": {},
}
OUTPUTS = {
    "demo": (["message"], "46"),
    "agent": (["message", "function_call"], "I add.\n"),
    "thinker": (["reasoning", "message"], "\n\n46"),
    "api-agent": (["reasoning", "message", "function_call"], "Let me add."),
    "talk": (["message"], "Hello, wörld! 1 < 2"),
}


@pytest.mark.parametrize("model", ASKED)
def test_a_response_has_text_items_and_usage(world: World, model: str) -> None:
    response = world.client.responses.create(model=model, input="12+34=?", instructions="Add.", **ASKED[model])
    assert (kinds(response), response.output_text) == OUTPUTS[model]
    assert (response.object, response.status, response.model, response.id[:5]) == (
        "response",
        "completed",
        model,
        "resp_",
    )
    assert response.usage is not None
    assert response.usage.total_tokens == response.usage.input_tokens + response.usage.output_tokens > 0
    assert response.instructions == "Add."


def same(body: Any) -> Any:
    """A response without what differs from call to call: ids and times. Only whole answers have a fingerprint."""
    key = body["id"].removeprefix("resp_")
    plain = json.loads(json.dumps(body).replace(key, "id"))
    for item in plain["output"]:
        item["call_id"] = None
    return {**plain, "created_at": 0, "completed_at": 0, "system_fingerprint": None}


@pytest.mark.parametrize("model", ASKED)
def test_the_completed_response_of_a_stream_equals_the_whole_one(world: World, model: str) -> None:
    asked = {"model": model, "input": "12+34=?", **ASKED[model]}
    whole, stream = world.post(**asked).json(), world.post(**asked, stream=True)
    assert stream.headers["content-type"] == "text/event-stream"
    *_, last, done, end = stream.text.split("\n\n")
    assert (done, end) == ("data: [DONE]", "")
    event = json.loads(last.partition("\ndata: ")[2])
    assert event["type"] == "response.completed"
    if model == "thinker":  # the upstream is closed at the stop, so that its usage may not arrive
        assert event["response"]["usage"] in (None, whole["usage"])
        whole["usage"] = event["response"]["usage"]
    assert same(event["response"]) == same(whole)


@pytest.mark.parametrize("model", ASKED)
def test_the_sdk_accumulates_a_stream(world: World, model: str) -> None:
    asked = {"model": model, "input": "12+34=?", **ASKED[model]}
    texts, calls, thoughts = "", "", ""
    with world.client.responses.stream(**asked) as events:
        for event in events:
            texts += event.delta if event.type == "response.output_text.delta" else ""
            calls += event.delta if event.type == "response.function_call_arguments.delta" else ""
            thoughts += event.delta if event.type == "response.reasoning_text.delta" else ""
        response = events.get_final_response()
    assert (kinds(response), texts) == OUTPUTS[model]
    assert response.output_text == texts
    assert calls == (ARGUMENTS if "function_call" in kinds(response) else "")
    assert bool(thoughts) == ("reasoning" in kinds(response))


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("model", ["agent", "api-agent"])
def test_a_tools_result_continues_the_conversation(world: World, model: str, stream: bool) -> None:
    ask = streamed if stream else (lambda client, **asked: client.responses.create(**asked))
    conversation: list[Any] = [{"role": "user", "content": "12+34=?"}]
    first = ask(world.client, model=model, input=conversation, tools=[ADD])
    conversation += first.output
    (call,) = [item for item in first.output if isinstance(item, ResponseFunctionToolCall)]
    assert (call.name, json.loads(call.arguments)) == ("add", {"a": 12, "b": 34})
    conversation.append({"type": "function_call_output", "call_id": call.call_id, "output": "46"})
    second = ask(world.client, model=model, input=conversation, tools=[ADD])
    if model == "agent":
        assert second.output_text == "46"
        prompt = world.sent()["prompt"]
        assert f"{CALL}<|im_end|>\n" in prompt
        assert "<tool_response>\n46\n</tool_response>" in prompt


def test_the_prompt_is_that_of_the_same_chat_request(world: World) -> None:
    function = {key: value for key, value in ADD.items() if key not in ("type", "strict")}
    tool = {"type": "function", "function": function}
    world.served.chat("agent", "12+34=?", tools=[tool])
    expected = world.sent()["prompt"]
    world.client.responses.create(model="agent", input="12+34=?", tools=[ADD])
    assert world.sent()["prompt"] == expected


def test_a_chat_target_receives_the_fields_of_a_chat_request(world: World) -> None:
    asked: dict[str, Any] = {
        "model": "talk",
        "input": [
            {
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "what?"},
                    {"type": "input_image", "image_url": "https://example.com/a.png"},
                ],
            }
        ],
        "instructions": "Be short.",
        "max_output_tokens": 9,
        "reasoning": {"effort": "low"},
        "text": {"format": {"type": "json_schema", "name": "sum", "schema": {"type": "object"}, "strict": True}},
        "tools": [ADD],
        "tool_choice": {"type": "function", "name": "add"},
        "metadata": {"run": "7"},
    }
    with pytest.raises(openai.InternalServerError) as caught:  # this target answers a text, whatever it is asked for
        world.client.responses.create(**asked, extra_body={"seed": 1, "top_k": 3, "stop": ["x"]})
    assert caught.value.code == "tool_choice_not_followed"
    body = dict(world.sent())
    assert body.pop("tools")[0]["function"] == {
        key: value for key, value in ADD.items() if key not in ("type", "strict")
    }
    assert {key: body[key] for key in body if key not in ("model", "stream", "stream_options")} == {
        "messages": [
            {"role": "system", "content": "Be short."},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "what?"},
                    {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
                ],
            },
        ],
        "max_completion_tokens": 9,
        "reasoning_effort": "low",
        "seed": 1,
        "top_k": 3,
        "stop": ["x"],
        "tool_choice": {"type": "function", "function": {"name": "add"}},
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "sum", "schema": {"type": "object"}, "strict": True},
        },
    }


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_a_prompt_is_a_dataset_prompt(world: World, stream: bool) -> None:
    prompt: Any = {"id": "sums-few-shot", "variables": {"question": "12+34=?"}}
    answer = world.client.responses.with_raw_response.create(model="demo", prompt=prompt)
    assert answer.parse().output_text == "46"
    name, _, version = answer.headers["x-gateway-dataset-prompt"].partition("@sha256:")
    assert name == "sums-few-shot"
    pinned = {**prompt, "version": version}
    ask = streamed if stream else (lambda client, **asked: client.responses.create(**asked))
    response = ask(world.client, model="demo", prompt=pinned, input="")
    assert (response.output_text, response.prompt.to_dict()) == ("46", pinned)
    with pytest.raises(openai.BadRequestError) as caught:
        ask(world.client, model="demo", prompt={**prompt, "version": "0" * 12}, input=[])
    assert (caught.value.code, caught.value.param) == ("invalid_value", "gateway.prompt.version")


class Sum(BaseModel):
    sum: int


def test_the_sdk_parses_structured_text(world: World) -> None:
    parsed = world.client.responses.parse(model="json", input="12+34=?", text_format=Sum)
    assert parsed.output_parsed == Sum(sum=46)
    assert streamed(world.client, model="json", input="12+34=?", text_format=Sum).output_parsed == Sum(sum=46)
    again: list[Any] = [*[item.to_dict(warnings=False) for item in parsed.output], {"role": "user", "content": "again"}]
    assert world.client.responses.parse(model="json", input=again, text_format=Sum).output_parsed == Sum(sum=46)


def test_log_probabilities_are_part_of_the_text(world: World) -> None:
    asked: dict[str, Any] = {"model": "demo", "input": "12+34=?", "top_logprobs": 2}
    for response in (world.client.responses.create(**asked), streamed(world.client, **asked)):
        tokens = response.output[0].content[0].logprobs
        assert [(token.token, len(token.top_logprobs)) for token in tokens] == [("4", 2), ("6", 2)]


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_an_answer_cut_by_its_limit_is_incomplete(world: World, stream: bool) -> None:
    asked: dict[str, Any] = {"model": "cut", "input": "12+34=?", "max_output_tokens": 3}
    if stream:
        last = list(world.client.responses.create(**asked, stream=True))[-1]
        assert last.type == "response.incomplete"
        response = last.response
    else:
        response = world.client.responses.create(**asked)
    assert (response.status, kinds(response), response.output_text) == ("incomplete", ["reasoning", "message"], "")
    assert response.incomplete_details.reason == "max_output_tokens"


# ---------------------------------------------------------------- failures, headers, paths


def test_a_failure_before_the_first_content_is_an_error(world: World) -> None:
    for stream in (True, False):
        with pytest.raises(openai.InternalServerError) as caught:
            world.client.responses.create(model="failing", input="hi", stream=stream)
        assert (caught.value.status_code, caught.value.code) == (502, "upstream_error")


def test_a_broken_stream_ends_with_a_failed_response(world: World) -> None:
    events = list(world.client.responses.create(model="breaking", input="hi", stream=True))
    last = events[-1]
    assert last.type == "response.failed"
    assert last.response.error is not None
    assert (str(last.response.error.code), last.response.output_text) == ("upstream_disconnected", "Hel")
    assert "response.completed" not in [event.type for event in events]


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "storage": ({"store": True}, "store"),
    "background": ({"background": True}, "background"),
    "an earlier response": ({"previous_response_id": "resp_1"}, "previous_response_id"),
    "a hosted tool": ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
    "effort for a string model": ({"reasoning": {"effort": "low"}}, "reasoning_effort"),
    "a schema for a string model": ({"text": {"format": {"type": "json_object"}}}, "response_format"),
}


@pytest.mark.parametrize(("fields", "param"), REFUSED.values(), ids=REFUSED)
def test_what_the_gateway_cannot_do_is_refused(world: World, fields: dict[str, Any], param: str) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        world.client.responses.create(model="demo", input="hi", **fields)
    assert (caught.value.code, caught.value.param) == ("unsupported_parameter", param)


def test_the_headers_are_those_of_a_chat_answer(world: World) -> None:
    chat = world.served.chat("demo", "12+34=?").headers
    asked = {"model": "demo", "input": "12+34=?", "reasoning": {"summary": "auto"}}
    for stream in (True, False):
        headers = world.post(**asked, stream=stream).headers
        for name in ("model", "template", "prompt-sha256", "policy", "target", "attempts"):
            assert headers[f"x-gateway-{name}"] == chat[f"x-gateway-{name}"]
        assert headers["x-gateway-notice"] == f"ignored_field: reasoning.summary; {chat['x-gateway-notice']}"


def test_an_explanation_is_in_the_body_on_request(world: World) -> None:
    asked = {"model": "demo", "input": "1+1=?", "gateway": {"explain": True}}
    assert world.post(**asked).json()["gateway"]["prompt"] == "<HUMAN>: 1+1=?<eoh>\n<BOT>: "


def test_the_path_may_name_the_model_and_calls_are_counted(world: World) -> None:
    labels = {"endpoint": "responses", "model": "demo", "outcome": "ok"}
    before = world.served.counted("gateway_requests_total", **labels)
    answer = world.served.http.post("/demo/v1/responses", json={"input": "1+1=?"})
    assert answer.json()["output"][0]["content"][0]["text"] == "2"
    assert world.served.counted("gateway_requests_total", **labels) == before + 1
