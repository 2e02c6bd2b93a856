"""Structured output and forced calls of models that read messages: the target gets the fields, the gateway checks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.serving import Gateway, gateway
from tests.support.upstream.modes_constraint import PROSE
from tests.support.upstream.server import FaultyUpstream

SCHEMA = {"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]}
REMOTE = {"$ref": "https://example.com/sum.json"}
TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
FILES = {"policies/omits.yaml": "params: {force: {tool_choice: none}}"}


def form(schema: Any, **fields: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "sum", "schema": schema, **fields}}


@pytest.fixture(scope="module")
def served(up: FaultyUpstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    honours, ignores = up.url("constrained-chat"), up.url("constraint-ignored")
    rows = {
        "honours": f"{{speaks: chat, url: '{honours}'}}",
        "ignores": f"{{speaks: chat, url: '{ignores}'}}",
        "vllm": f"{{speaks: chat, engine: vllm, url: '{ignores}'}}",
        "litellm": f"{{speaks: litellm, model: openai/m, url: '{ignores}'}}",
        "cut": f"{{speaks: chat, url: '{up.url('constraint-ignored', cut=4)}'}}",
        "thinks": f"{{speaks: chat, engine: vllm, url: '{up.url('constraint-ignored', text='<think>hm</think>{}')}'}}",
        "other": f"{{speaks: chat, url: '{up.url('constraint-ignored', text=json.dumps({'sum': 'x'}))}'}}",
    }
    config = "models:\n" + "".join(f"  {name}: {{template: chat, targets: [{row}]}}\n" for name, row in rows.items())
    config += f"  omits: {{template: chat, policy: omits, targets: [{rows['ignores']}]}}\n"
    with gateway(tmp_path_factory.mktemp("checked"), config, files=FILES) as running:
        yield running


REMEDIES = {
    "vllm": ("the model's server ignored response_format", "--reasoning-parser"),
    "ignores": ("the model's server ignored response_format", "choose one that does"),
    "litellm": ("the provider ignored response_format", "choose one that does"),
}


@pytest.mark.parametrize("model", REMEDIES)
def test_the_error_fits_the_kind_of_target(served: Gateway, model: str) -> None:
    error = served.chat(model, response_format=form(SCHEMA)).json()["error"]
    beginning, remedy = REMEDIES[model]
    assert (error["code"], error["param"]) == ("upstream_ignored_parameter", "response_format")
    assert error["message"].startswith(beginning)
    assert remedy in error["message"]
    assert ("--reasoning-parser" in error["message"]) == (model == "vllm")


FAILURES: dict[str, tuple[dict[str, Any], str]] = {
    "response_format": ({"response_format": {"type": "json_object"}}, "upstream_ignored_parameter"),
    "tool_choice": ({"tools": [TOOL], "tool_choice": "required"}, "tool_choice_not_followed"),
}


@pytest.mark.parametrize("model", ["ignores", "vllm", "litellm"])
@pytest.mark.parametrize("field", FAILURES)
def test_a_stop_of_the_client_does_not_make_prose_valid(served: Gateway, field: str, model: str) -> None:
    fields, code = FAILURES[field]
    answer = served.chat(model, stop=["zzz"], **fields)
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, code)


def test_an_answer_that_a_stop_of_the_client_may_have_cut_has_a_notice(served: Gateway) -> None:
    answer = served.chat("other", response_format=form(SCHEMA), stop=["zzz"])
    assert answer.status_code == 200, answer.text
    notice = "answer_unchecked: choices[0]=may have been cut by a stop of the client"
    assert notice in answer.headers["x-gateway-notice"]


@pytest.mark.parametrize("model", ["thinks", "vllm"])
def test_the_remedy_is_true_with_and_without_a_reasoning_parser(served: Gateway, model: str) -> None:
    message = served.chat(model, response_format=form(SCHEMA)).json()["error"]["message"]
    assert "If the answer begins with reasoning, such as <think>, start the server with the --reasoning-p" in message
    assert "otherwise, if it was started with one, start it without" in message


UNCHECKED: dict[str, tuple[dict[str, Any], str]] = {
    "a schema elsewhere": ({"response_format": form(REMOTE)}, "refers to another document"),
    "no valid schema": ({"response_format": form({"type": "sum"})}, "response_format.json_schema.schema.type must be"),
    "a schema that is none": ({"response_format": form(True)}, "response_format.json_schema.schema must be an object"),
    "another type": ({"response_format": {"type": "grammar"}}, "response_format has a type other than"),
    "a message to continue": (
        {
            "messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "{"}],
            "response_format": form(SCHEMA),
        },
        "the answer may continue the last message",
    ),
}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("case", UNCHECKED)
def test_what_the_gateway_cannot_check_is_sent_with_a_notice(
    served: Gateway, up: FaultyUpstream, case: str, stream: bool
) -> None:
    fields, reason = UNCHECKED[case]
    messages = fields.get("messages", [{"role": "user", "content": "hi"}])
    body = {"model": "ignores", "messages": messages, "stream": stream, **fields}
    answer = served.http.post("/v1/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    (notice,) = [one for one in answer.headers["x-gateway-notice"].split("; ") if one.startswith("answer_unchecked: ")]
    assert reason in notice
    assert up.requests[-1].body["response_format"] == fields["response_format"]


CHECKED: dict[str, dict[str, Any]] = {
    "a schema that breaks the rules of strict": form(SCHEMA, strict=True),
    "no name": {"type": "json_schema", "json_schema": {"schema": SCHEMA}},
    "a key that the gateway does not know": {**form(SCHEMA), "mode": "lark"},
    "a schema beside json_object": {"type": "json_object", "schema": SCHEMA},
}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("case", CHECKED)
def test_the_rules_of_the_provider_apply_and_the_answer_is_checked(served: Gateway, case: str, stream: bool) -> None:
    assert served.chat("honours", response_format=CHECKED[case], stream=stream).status_code == 200
    answer = served.chat("other", response_format=CHECKED[case], stream=stream)
    assert "upstream_ignored_parameter" in answer.text
    assert "$.sum must be a whole number, not a string" in answer.text


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_forced_call_that_was_cut_is_not_checked(served: Gateway, stream: bool) -> None:
    answer = served.chat("cut", tools=[TOOL], tool_choice="required", stream=stream)
    assert (answer.status_code, "length" in answer.text, "error" in answer.text) == (200, True, False)


def test_the_notice_of_an_answer_that_was_cut(served: Gateway) -> None:
    answer = served.chat("cut", tools=[TOOL], tool_choice="required")
    assert "answer_unchecked: choices[0]=length" in answer.headers["x-gateway-notice"]


def test_a_tool_call_is_not_checked_against_the_schema(served: Gateway, up: FaultyUpstream) -> None:
    fields = {"tools": [TOOL], "tool_choice": "required", "response_format": form(SCHEMA)}
    answer = served.chat("honours", **fields)
    assert answer.json()["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "add"
    assert {name: up.requests[-1].body[name] for name in fields} == fields


def test_text_beside_tools_is_checked_against_the_schema(served: Gateway) -> None:
    fields = {"tools": [TOOL], "response_format": form(SCHEMA)}
    assert served.chat("honours", **fields).status_code == 200
    assert served.chat("ignores", **fields).json()["error"]["code"] == "upstream_ignored_parameter"


FORCED: dict[str, tuple[dict[str, Any], bool]] = {
    "required": ({"tool_choice": "required"}, True),
    "any": ({"tool_choice": "any"}, True),
    "a function": ({"tool_choice": {"type": "function", "function": {"name": "add"}}}, True),
    "a custom tool": ({"tool_choice": {"type": "custom", "custom": {"name": "add"}}}, True),
    "a function in the old form": ({"function_call": {"name": "add"}}, True),
    "auto": ({"tool_choice": "auto"}, False),
    "none": ({"tool_choice": "none"}, False),
    "auto in the old form": ({"function_call": "auto"}, False),
}


@pytest.mark.parametrize("case", FORCED)
def test_a_forced_call_must_come(served: Gateway, case: str) -> None:
    fields, is_forced = FORCED[case]
    tools = {"functions": [TOOL["function"]]} if "function_call" in fields else {"tools": [TOOL]}
    answer = served.chat("ignores", **tools, **fields)
    if is_forced:
        assert (answer.status_code, answer.json()["error"]["code"]) == (502, "tool_choice_not_followed")
        assert answer.json()["error"]["param"] == "tool_choice"
    else:
        assert answer.json()["choices"][0]["message"]["content"] == PROSE


def test_the_choice_of_the_policy_is_in_force(served: Gateway) -> None:
    answer = served.chat("omits", tools=[TOOL], tool_choice="required")
    assert answer.json()["choices"][0]["message"]["content"] == PROSE


def test_an_error_of_a_response_names_the_field_of_responses(served: Gateway) -> None:
    fields = {
        "model": "ignores",
        "input": "hi",
        "text": {"format": {"type": "json_schema", "name": "a", "schema": SCHEMA}},
    }
    answer = served.http.post("/v1/responses", json=fields)
    assert (answer.status_code, answer.json()["error"]["param"]) == (502, "text.format")
