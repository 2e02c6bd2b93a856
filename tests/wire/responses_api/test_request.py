"""The body of a ``/v1/responses`` request becomes a chat call."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.core.call import Call, PromptReference
from gateway.core.errors import RequestError
from gateway.wire.requests import read_chat
from gateway.wire.responses_api.request import read_response

USER = {"role": "user", "content": "hi"}
FUNCTION = {"name": "add", "description": "Adds.", "parameters": {"type": "object"}}
TOOL = {"type": "function", **FUNCTION}
SUMS = {"type": "namespace", "name": "sums", "tools": [TOOL]}
CALL = {"type": "function_call", "call_id": "c1", "name": "add", "arguments": '{"a": 1}'}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "2"}
THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]}
ANSWER = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "two", "annotations": [], "logprobs": []}],
}
CHAT_CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}


def read(**fields: Any) -> Call:
    return read_response({"model": "m", "input": "hi", **fields}, request_id="r")


def messages(value: Any, **fields: Any) -> list[Any]:
    dialogue = read(input=value, **fields).dialogue
    assert dialogue is not None
    return [message.raw for message in dialogue.messages]


INPUTS: dict[str, tuple[Any, list[dict[str, Any]]]] = {
    "a string": ("hi", [USER]),
    "messages without type": (
        [{"role": "developer", "content": "short"}, USER],
        [{"role": "developer", "content": "short"}, USER],
    ),
    "one text part": ([{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}], [USER]),
    "text and image": (
        [
            {
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "what?"},
                    {"type": "input_image", "image_url": "https://example.com/a.png", "detail": "low"},
                ],
            }
        ],
        [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "what?"},
                    {"type": "image_url", "image_url": {"url": "https://example.com/a.png", "detail": "low"}},
                ],
            }
        ],
    ),
    "audio and file": (
        [
            {
                "role": "user",
                "content": [
                    {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
                    {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,AA=="},
                ],
            }
        ],
        [
            {
                "role": "user",
                "content": [
                    {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
                    {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,AA=="}},
                ],
            }
        ],
    ),
    "an earlier answer": ([USER, ANSWER, USER], [USER, {"role": "assistant", "content": "two"}, USER]),
    "reasoning, text and calls are one turn": (
        [USER, THOUGHT, ANSWER, CALL, OUTPUT],
        [
            USER,
            {"role": "assistant", "content": "two", "reasoning_content": "hm", "tool_calls": [CHAT_CALL]},
            {"role": "tool", "tool_call_id": "c1", "content": "2"},
        ],
    ),
    "text after a call is of the same turn": (
        [USER, CALL, THOUGHT, ANSWER, OUTPUT],
        [
            USER,
            {"role": "assistant", "content": "two", "reasoning_content": "hm", "tool_calls": [CHAT_CALL]},
            {"role": "tool", "tool_call_id": "c1", "content": "2"},
        ],
    ),
    "two answers are two turns": (
        [USER, ANSWER, ANSWER],
        [USER, *[{"role": "assistant", "content": "two"}] * 2],
    ),
    "an output of parts": (
        [CALL, {**OUTPUT, "output": [{"type": "input_text", "text": "2"}]}],
        [
            {"role": "assistant", "content": None, "tool_calls": [CHAT_CALL]},
            {"role": "tool", "tool_call_id": "c1", "content": "2"},
        ],
    ),
    "a summary without content": (
        [{**THOUGHT, "content": None, "summary": [{"type": "summary_text", "text": "so"}]}, ANSWER],
        [{"role": "assistant", "content": "two", "reasoning_content": "so"}],
    ),
    "reasoning without text": ([{"type": "reasoning", "summary": []}, USER], [USER]),
    "keys that are null": (
        [{**CALL, "caller": None, "id": None}],
        [{"role": "assistant", "content": None, "tool_calls": [CHAT_CALL]}],
    ),
    "a refusal": (
        [{"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}],
        [{"role": "assistant", "content": None, "refusal": "no"}],
    ),
}


@pytest.mark.parametrize(("value", "expected"), INPUTS.values(), ids=INPUTS)
def test_items_become_messages(value: Any, expected: list[Any]) -> None:
    assert messages(value) == expected


def test_instructions_are_a_system_message_at_the_start() -> None:
    assert messages("hi", instructions="Be short.") == [{"role": "system", "content": "Be short."}, USER]


VARIABLES = {
    "text": "a",
    "number": 3,
    "rows": [{"x": 1}],
    "part": {"type": "input_text", "text": "b"},
    "image": {"type": "input_image", "image_url": "https://example.com/a.png"},
}


def test_a_prompt_is_a_dataset_prompt() -> None:
    call = read(input=None, prompt={"id": "sums", "version": "0123456789ab", "variables": VARIABLES})
    values = {**VARIABLES, "part": "b", "image": "https://example.com/a.png"}
    assert call.dataset_prompt == PromptReference(id="sums", version="0123456789ab", variables=values)
    assert call.dialogue is not None
    assert list(call.dialogue.messages) == []
    assert read(input=None, gateway={"prompt": {"id": "sums"}}).dataset_prompt == PromptReference(id="sums")


SCHEMA = {"type": "object", "properties": {"a": {"default": None}}}
FIELDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {  # fields here, fields of a chat request
    "sampling": (dict.fromkeys(("temperature", "top_p"), 0.5), dict.fromkeys(("temperature", "top_p"), 0.5)),
    "a limit": ({"max_output_tokens": 9}, {"max_completion_tokens": 9}),
    "fields of engines": ({"top_k": 3, "seed": 1, "stop": ["x"]}, {"top_k": 3, "seed": 1, "stop": ["x"]}),
    "a stream": (
        {"stream": True, "stream_options": {"include_obfuscation": False}},
        {"stream": True, "stream_options": {"include_obfuscation": False}},
    ),
    "options without a stream": ({"stream_options": {"include_obfuscation": False}}, {}),
    "tools": (
        {"tools": [TOOL, {"type": "function", "name": "now", "strict": True}], "tool_choice": "required"},
        {
            "tools": [
                {"type": "function", "function": FUNCTION},
                {"type": "function", "function": {"name": "now", "strict": True}},
            ],
            "tool_choice": "required",
        },
    ),
    "one function": (
        {"tools": [TOOL], "tool_choice": {"type": "function", "name": "add"}, "parallel_tool_calls": False},
        {
            "tools": [{"type": "function", "function": FUNCTION}],
            "parallel_tool_calls": False,
            "tool_choice": {"type": "function", "function": {"name": "add"}},
        },
    ),
    "no tools": ({"tools": [], "tool_choice": "auto"}, {"tool_choice": "auto"}),
    "plain text": ({"text": {"format": {"type": "text"}}}, {}),
    "JSON": (
        {"text": {"format": {"type": "json_object"}, "verbosity": "low"}},
        {"response_format": {"type": "json_object"}, "verbosity": "low"},
    ),
    "a schema": (
        {"text": {"format": {"type": "json_schema", "name": "sum", "schema": SCHEMA, "strict": True}}},
        {"response_format": {"type": "json_schema", "json_schema": {"name": "sum", "schema": SCHEMA, "strict": True}}},
    ),
    "effort": ({"reasoning": {"effort": "low"}}, {"reasoning_effort": "low"}),
    "log probabilities": ({"include": ["message.output_text.logprobs"]}, {"logprobs": True, "top_logprobs": 0}),
    "alternatives": ({"top_logprobs": 2}, {"logprobs": True, "top_logprobs": 2}),
    "hints": (
        dict.fromkeys(("prompt_cache_key", "prompt_cache_retention", "safety_identifier"), "a"),
        dict.fromkeys(("prompt_cache_key", "prompt_cache_retention", "safety_identifier"), "a"),
    ),
    "labels": (
        {"metadata": {"run": "7"}, "client_metadata": {"turn": "1"}},
        {"metadata": {"run": "7"}, "client_metadata": {"turn": "1"}},
    ),
    "no storage": ({"store": False, "background": False, "truncation": "disabled"}, {}),
    "a namespace": (
        {"tools": [TOOL, {"type": "namespace", "name": "agents", "tools": [TOOL]}]},
        {
            "tools": [
                {"type": "function", "function": FUNCTION},
                {"type": "function", "function": {**FUNCTION, "name": "agents__add"}},
            ]
        },
    ),
    "an empty namespace": ({"tools": [{"type": "namespace", "name": "agents", "tools": []}]}, {"tools": []}),
    "null": (dict.fromkeys(("instructions", "tools", "text", "reasoning", "metadata", "store", "prompt")), {}),
}


@pytest.mark.parametrize(("fields", "chat"), FIELDS.values(), ids=FIELDS)
def test_a_field_has_the_effect_of_its_chat_field(fields: dict[str, Any], chat: dict[str, Any]) -> None:
    call = read(**fields)
    expected = read_chat({"model": "m", "messages": [USER], **chat}, request_id="r")
    for name in ("endpoint", "model", "params", "unknown", "stops", "stream", "stream_options", "dialogue"):
        assert getattr(call, name) == getattr(expected, name), name


def test_fields_without_effect_are_reported() -> None:
    call = read(reasoning={"summary": "auto"}, include=["reasoning.encrypted_content"])
    assert list(map(str, call.notices)) == [
        "ignored_field: reasoning.summary",
        "ignored_field: include reasoning.encrypted_content",
    ]


PART = "input[0].content[0]"
REFUSALS: dict[str, tuple[dict[str, Any], str, str]] = {  # fields, code, param
    "no input": ({"input": None}, "invalid_value", "input"),
    "an empty input": ({"input": []}, "invalid_value", "input"),
    "storage": ({"store": True}, "unsupported_parameter", "store"),
    "background": ({"background": True}, "unsupported_parameter", "background"),
    "an earlier response": ({"previous_response_id": "resp_1"}, "unsupported_parameter", "previous_response_id"),
    "a conversation": ({"conversation": {"id": "c"}}, "unsupported_parameter", "conversation"),
    "a prompt and input": ({"prompt": {"id": "p"}}, "invalid_value", "input"),
    "a prompt and instructions": ({"prompt": {"id": "p"}, "input": None, "instructions": "x"},
                                  "invalid_value", "instructions"),
    "two prompts": ({"prompt": {"id": "p"}, "input": None, "gateway": {"prompt": {"id": "p"}}},
                    "invalid_value", "gateway.prompt"),
    "a prompt without id": ({"prompt": {}, "input": None}, "invalid_value", "prompt.id"),
    "a file as a variable": (
        {"prompt": {"id": "p", "variables": {"a": {"type": "input_file", "file_data": "x"}}}, "input": None},
        "unsupported_parameter", "prompt.variables.a",
    ),
    "several turns": ({"gateway": {"turns": {"questions": ["x"]}}}, "unsupported_parameter", "gateway.turns"),
    "truncation": ({"truncation": "auto"}, "unsupported_parameter", "truncation"),
    "a limit of calls": ({"max_tool_calls": 3}, "unsupported_parameter", "max_tool_calls"),
    "two functions with one name": (
        {"tools": [{**TOOL, "name": "a__add"}, {"type": "namespace", "name": "a", "tools": [TOOL]}]},
        "invalid_value", "tools",
    ),
    "a namespace without a name": ({"tools": [{"type": "namespace", "name": "", "tools": []}]},
                                   "invalid_value", "tools[0].name"),
    "a custom tool in a namespace": (
        {"tools": [{"type": "namespace", "name": "a", "tools": [TOOL, {"type": "custom", "name": "patch"}]}]},
        "unsupported_parameter", "tools[0].tools[1].type",
    ),
    "a hosted tool": ({"tools": [TOOL, {"type": "web_search"}]}, "unsupported_parameter", "tools[1].type"),
    "chat's form of a tool": ({"tools": [{"type": "function", "function": FUNCTION}]},
                              "invalid_value", "tools[0].name"),
    "a deferred tool": ({"tools": [{**TOOL, "defer_loading": True}]}, "invalid_value", "tools[0].defer_loading"),
    "allowed tools": ({"tools": [TOOL], "tool_choice": {"type": "allowed_tools", "tools": []}},
                      "unsupported_parameter", "tool_choice.type"),
    "a choice among two namespaces": (
        {"tools": [SUMS, {**SUMS, "name": "more"}], "tool_choice": {"type": "function", "name": "add"}},
        "invalid_value", "tool_choice.namespace",
    ),
    "a choice in another namespace": (
        {"tools": [TOOL, SUMS], "tool_choice": {"type": "function", "name": "add", "namespace": "more"}},
        "invalid_value", "tool_choice",
    ),
    "an unknown choice": ({"tool_choice": "any"}, "invalid_value", "tool_choice"),
    "a schema without a name": ({"text": {"format": {"type": "json_schema", "schema": {}}}},
                                "invalid_value", "text.format.name"),
    "an unknown format": ({"text": {"format": {"type": "grammar"}}}, "invalid_value", "text.format.type"),
    "an unknown key of reasoning": ({"reasoning": {"mode": "pro"}}, "invalid_value", "reasoning.mode"),
    "results of hosted tools": ({"include": ["file_search_call.results"]}, "invalid_value", "include[0]"),
    "obfuscation": ({"stream": True, "stream_options": {"include_obfuscation": True}},
                    "invalid_value", "stream_options.include_obfuscation"),
    "chat's messages": ({"messages": [USER]}, "invalid_value", "messages"),
    "chat's limit": ({"max_tokens": 3}, "invalid_value", "max_tokens"),
    "two answers": ({"n": 2}, "invalid_value", "n"),
    "a host": ({"api_base": "http://x"}, "forbidden_parameter", "api_base"),
    "a label that is no text": ({"metadata": {"a": 1}}, "invalid_value", "metadata.a"),
    "a temperature": ({"temperature": 9}, "invalid_value", "temperature"),
    "a reference": ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "unsupported_parameter", "input[0]"),
    "an item of a hosted tool": ({"input": [USER, {"type": "web_search_call", "id": "w"}]},
                                 "unsupported_parameter", "input[1].type"),
    "an unknown role": ({"input": [{"role": "tool", "content": "x"}]}, "invalid_value", "input[0].role"),
    "too many keys": ({"input": [{**USER, **{f"k{n}": 1 for n in range(64)}}]}, "invalid_value", "input[0]"),
    "too many labels": ({"metadata": {f"k{n}": "" for n in range(17)}}, "invalid_value", "metadata"),
    "an unknown key": ({"input": [{**USER, "extra": 1}]}, "invalid_value", "input[0].extra"),
    "a message without content": ({"input": [{"role": "user"}]}, "invalid_value", "input[0].content"),
    "chat's part": ({"input": [{"role": "user", "content": [{"type": "text", "text": "x"}]}]},
                    "invalid_value", f"{PART}.type"),
    "a stored image": ({"input": [{"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}]},
                       "unsupported_parameter", f"{PART}.image_url"),
    "a fetched file": ({"input": [{"role": "user", "content": [{"type": "input_file", "file_url": "https://x.org"}]}]},
                       "unsupported_parameter", f"{PART}.file_data"),
    "an output without its call": ({"input": [OUTPUT]}, "invalid_value", "input[0].call_id"),
    "reasoning without its result": ({"input": [THOUGHT, USER]}, "invalid_value", "input[0]"),
    "reasoning at the end": ({"input": [USER, THOUGHT]}, "invalid_value", "input[1]"),
    "encrypted reasoning": ({"input": [{"type": "reasoning", "summary": [], "encrypted_content": "x"}, ANSWER]},
                            "unsupported_parameter", "input[0].encrypted_content"),
}  # fmt: skip


@pytest.mark.parametrize(("fields", "code", "param"), REFUSALS.values(), ids=REFUSALS)
def test_a_refusal_names_the_field(fields: dict[str, Any], code: str, param: str) -> None:
    with pytest.raises(RequestError) as caught:
        read(**fields)
    assert (caught.value.code, caught.value.param) == (code, param)
    assert param.partition("[")[0].partition(".")[0] in caught.value.message


def test_the_refusal_of_a_hosted_tool_names_the_setting_of_the_client_that_sends_it_by_default() -> None:
    with pytest.raises(RequestError) as caught:
        read(tools=[{"type": "web_search", "external_web_access": False}])
    assert caught.value.message == (
        'tools[0] has the type "web_search"; the gateway runs no tools, so it accepts only functions; '
        'leave the tool out (Codex CLI: web_search = "disabled" in config.toml)'
    )


def test_the_description_of_a_namespace_is_reported_as_ignored() -> None:
    call = read(tools=[{"type": "namespace", "name": "a", "description": "Agents.", "tools": [TOOL]}])
    assert list(map(str, call.notices)) == ["ignored_field: tools[0].description"]


def test_a_call_in_the_history_has_the_name_that_the_model_wrote() -> None:
    item = {"type": "function_call", "call_id": "c1", "name": "add", "namespace": "agents", "arguments": "{}"}
    [message] = messages([item])
    assert message["tool_calls"][0]["function"]["name"] == "agents__add"


CHOICES: dict[str, tuple[list[Any], dict[str, str], str]] = {  # tools, choice, name in the chat request
    "the only function with the name": ([SUMS], {"name": "add"}, "sums__add"),
    "the name of the chat request": ([SUMS], {"name": "sums__add"}, "sums__add"),
    "a namespace": ([TOOL, SUMS, {**SUMS, "name": "more"}], {"name": "add", "namespace": "more"}, "more__add"),
    "a function without a namespace": ([SUMS, TOOL], {"name": "add"}, "add"),
    "a name that no function has": ([SUMS], {"name": "sub"}, "sub"),
}


@pytest.mark.parametrize(("tools", "choice", "name"), CHOICES.values(), ids=CHOICES)
def test_a_chosen_function_has_its_name_of_the_chat_request(
    tools: list[Any], choice: dict[str, str], name: str
) -> None:
    call = read(tools=tools, tool_choice={"type": "function", **choice})
    assert call.params["tool_choice"] == {"type": "function", "function": {"name": name}}


def test_an_ambiguous_choice_says_how_to_choose() -> None:
    with pytest.raises(RequestError) as caught:
        read(tools=[SUMS, {**SUMS, "name": "more"}], tool_choice={"type": "function", "name": "add"})
    assert caught.value.message == (
        'tool_choice: the function "add" is in the namespaces "sums", "more"; '
        "choose one of them with tool_choice.namespace"
    )
