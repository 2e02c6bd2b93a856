"""Every feature at every provider through a real gateway and LiteLLM, streamed and whole.

A cell says what the client gets and what the provider received. What a provider cannot do is refused by name or
noticed, never left out in silence.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import reduce
from importlib.util import find_spec
from typing import Any

import httpx
import pytest

from tests.providers.conftest import KEY, MODELS
from tests.support.providers import gemini
from tests.support.providers.scenes import CITIES, COMPLETION_TOKENS, PROMPT_TOKENS, REASON
from tests.support.providers.server import Providers
from tests.support.serving import Gateway

OPENAI = ("openai", "azure", "vllm")
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = [{"type": "function", "function": {"name": "weather", "description": "The weather", "parameters": PARAMETERS}}]
SCHEMA = {
    "type": "object",
    "properties": {"answer": {"type": "integer"}},
    "required": ["answer"],
    "additionalProperties": False,
}
JSON_SCHEMA = {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": SCHEMA}}
CALL = {"id": "call_0", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Paris"}'}}
CALLS = tuple(("weather", {"city": city}) for city in CITIES)


@dataclass(frozen=True)
class Want:
    """What the client gets."""

    status: int = 200
    code: str = ""
    """Of the error, before the stream or inside it; empty: no error."""
    param: str | None = None
    says: str = ""
    """A part of the error's message."""
    text: str = "Hello there"
    finish: str = "stop"
    calls: tuple[tuple[str, Any], ...] = ()
    choices: int = 1
    tokens: tuple[int, int] = (PROMPT_TOKENS, COMPLETION_TOKENS)
    notice: str = ""
    logprobs: int = 0
    """Tokens with a log probability."""


@dataclass(frozen=True)
class Case:
    """One row of the matrix."""

    messages: list[dict[str, Any]]
    fields: Mapping[str, Any] = field(default_factory=dict)
    want: Want = Want()
    but: Mapping[tuple[str, ...], Want] = field(default_factory=dict)
    """Other expectations, by ``(dialect,)`` or ``(dialect, "stream")`` or ``(dialect, "whole")``."""
    sent: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By dialect (``openai`` for its relatives, too): paths into the body that the provider received."""


def user(text: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": text}]


def refused(param: str) -> Want:
    return Want(400, "unsupported_parameter", param, says=param)


def failed(status: int, code: str, says: str = "") -> Case:
    return Case([], want=Want(status, code, says=says))


SPLIT = Want(choices=2, tokens=(2 * PROMPT_TOKENS, 2 * COMPLETION_TOKENS), notice="split_calls: 2")

CASES: dict[str, Case] = {
    "chat": Case(
        [{"role": "system", "content": "be brief"}, *user("chat")],
        {"temperature": 0.5, "top_p": 0.9, "max_tokens": 16},
        sent={
            "openai": {"messages.0": {"role": "system", "content": "be brief"}, "temperature": 0.5, "top_p": 0.9,
                       "max_tokens": 16},
            "anthropic": {"system.0.text": "be brief", "temperature": 0.5, "top_p": 0.9, "max_tokens": 16},
            "gemini": {"systemInstruction.parts.0.text": "be brief", "generationConfig.temperature": 0.5,
                       "generationConfig.topP": 0.9, "generationConfig.maxOutputTokens": 16},
            "ollama": {"messages.0.content": "be brief", "options.temperature": 0.5, "options.top_p": 0.9,
                       "options.num_predict": 16},
        },
    ),
    "max_tokens": Case(user("chat"), {"max_tokens": 2}, Want(text="Hello ", finish="length")),
    "tools": Case(
        user("chat"), {"tools": TOOLS}, Want(text="", finish="tool_calls", calls=CALLS),
        sent={
            "openai": {"tools": TOOLS},
            "anthropic": {"tools.0.name": "weather", "tools.0.input_schema.properties": PARAMETERS["properties"]},
            "gemini": {"tools.0.functionDeclarations.0.name": "weather"},
            "ollama": {"tools.0.function.name": "weather"},
        },
    ),
    "tool result": Case(
        [*user("chat"), {"role": "assistant", "content": None, "tool_calls": [CALL]},
         {"role": "tool", "tool_call_id": "call_0", "content": "sunny"}],
        {"tools": TOOLS}, Want(text="It is sunny"),
        sent={
            "openai": {"messages.1.tool_calls.0.function": CALL["function"], "messages.2.content": "sunny"},
            "anthropic": {"messages.1.content.0.input": {"city": "Paris"}, "messages.2.content.0.type": "tool_result"},
            "gemini": {"contents.1.parts.0.functionCall.args": {"city": "Paris"}},
            "ollama": {"messages.1.tool_calls.0.function.arguments": {"city": "Paris"}, "messages.2.role": "tool"},
        },
    ),
    "json_schema": Case(
        user("json"), {"response_format": JSON_SCHEMA}, Want(text='{"answer": 4}'),
        sent={
            "openai": {"response_format": JSON_SCHEMA},
            "anthropic": {"tools.0.input_schema.properties": SCHEMA["properties"], "tool_choice.type": "tool"},
            "gemini": {"generationConfig.responseMimeType": "application/json"},
            "ollama": {"format.properties": SCHEMA["properties"]},
        },
    ),
    "json_object": Case(
        user("json"), {"response_format": {"type": "json_object"}}, Want(text='{"answer": 4}'),
        {("anthropic",): refused("response_format")},
        sent={
            "openai": {"response_format": {"type": "json_object"}},
            "gemini": {"generationConfig.responseMimeType": "application/json"},
            "ollama": {"format": "json"},
        },
    ),
    "n": Case(
        user("chat"), {"n": 2}, Want(choices=2),
        {("anthropic",): SPLIT, ("ollama",): SPLIT, **{(name, "stream"): SPLIT for name in (*OPENAI, "gemini")}},
    ),
    "stop": Case(
        user("stop"), {"stop": ["END"]}, Want(text="one two "),
        sent={"openai": {"stop": ["END"]}, "anthropic": {"stop_sequences": ["END"]},
              "gemini": {"generationConfig.stopSequences": ["END"]}, "ollama": {"options.stop": ["END"]}},
    ),
    "logprobs": Case(
        user("chat"), {"logprobs": True}, Want(logprobs=3),
        {("anthropic",): refused("logprobs"), ("ollama",): refused("logprobs")},
        sent={"openai": {"logprobs": True}, "gemini": {"generationConfig.responseLogprobs": True}},
    ),
    "image": Case(
        [{"role": "user", "content": [{"type": "text", "text": "chat"},
                                      {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}]}],
        sent={
            "openai": {"messages.0.content.1.image_url.url": f"data:image/png;base64,{PIXEL}"},
            "anthropic": {"messages.0.content.1.source.data": PIXEL},
            "gemini": {"contents.0.parts.1.inlineData.data": PIXEL},
            "ollama": {"messages.0.images": [PIXEL]},
        },
    ),
    "error 400": failed(400, "upstream_rejected_request", f"the model's server refused the request: {REASON}"),
    "error 401": failed(502, "upstream_auth_failed"),
    "error 403": failed(502, "upstream_auth_failed"),
    "error 404": failed(502, "upstream_model_missing", "check model and url (of an OpenAI-compatible"),
    "error 429": failed(429, "upstream_rate_limited"),
    "error 500": failed(502, "upstream_error"),
    "error 503": failed(503, "upstream_overloaded"),
    "error 529": failed(503, "upstream_overloaded"),
    "context": failed(400, "context_length_exceeded", says="lower max_tokens: "),  # and the provider's own numbers
}  # fmt: skip


def _answer(reply: httpx.Response, stream: bool) -> tuple[list[dict[str, Any]], dict[str, Any], dict[str, Any]]:
    """The choices as whole messages with ``finish`` and ``scored``, the usage, and the error."""
    if not stream or reply.status_code != 200:
        body = reply.json()
        said = [
            {
                **choice["message"],
                "finish": choice["finish_reason"],
                "scored": len((choice.get("logprobs") or {}).get("content") or ()),
            }
            for choice in body.get("choices", ())
        ]
        return said, body.get("usage") or {}, body.get("error") or {}
    choices: dict[int, dict[str, Any]] = {}
    usage: dict[str, Any] = {}
    error: dict[str, Any] = {}
    for line in reply.text.split("\n\n"):
        if not line.startswith("data: {"):
            continue
        chunk = json.loads(line.removeprefix("data: "))
        usage, error = chunk.get("usage") or usage, chunk.get("error") or error
        for choice in chunk.get("choices", ()):
            one = choices.setdefault(choice["index"], {"content": "", "tool_calls": [], "finish": None, "scored": 0})
            one["content"] += choice["delta"].get("content") or ""
            one["finish"] = choice["finish_reason"] or one["finish"]
            one["scored"] += len((choice.get("logprobs") or {}).get("content") or ())
            for part in choice["delta"].get("tool_calls", ()):
                calls = one["tool_calls"]
                if part["index"] == len(calls):
                    calls.append({"function": {"name": "", "arguments": ""}})
                for key, value in part["function"].items():
                    calls[part["index"]]["function"][key] += value or ""
    return [choices[index] for index in sorted(choices)], usage, error


def _at(body: Any, path: str) -> Any:
    return reduce(
        lambda value, step: value[int(step)] if isinstance(value, list) else value[step], path.split("."), body
    )


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("dialect", MODELS)
@pytest.mark.parametrize("name", CASES)
def test_a_feature_works_or_is_refused_by_name(
    served: Gateway, providers: Providers, name: str, dialect: str, stream: bool
) -> None:
    case = CASES[name]
    kind = "stream" if stream else "whole"
    want = case.but.get((dialect,)) or case.but.get((dialect, kind)) or case.want
    before = len(providers.received)
    body = {"model": dialect, "messages": case.messages or user(name), **case.fields, "stream": stream}
    if stream:
        body["stream_options"] = {"include_usage": True}
    reply = served.http.post("/v1/chat/completions", json=body)
    choices, usage, error = _answer(reply, stream)
    assert "provider_specific_fields" not in reply.text, "a field of LiteLLM"
    assert (reply.status_code, error.get("code", "")) == (want.status, want.code), error
    assert reply.headers["x-gateway-target"] == f"{dialect}/0"
    assert want.notice in reply.headers.get("x-gateway-notice", "")
    received = [request for request in providers.received[before:] if request.path != "api/show"]
    if error:
        assert error["param"] == want.param
        assert want.says in error["message"]
        for leak in ("{", "litellm", "Exception", "Error", KEY):
            assert leak not in error["message"]
        assert len(received) == (0 if want.code == "unsupported_parameter" else 1)
        return
    assert len(received) == (2 if want.notice else 1)
    assert len(choices) == want.choices
    for said in choices:
        calls = [
            (call["function"]["name"], json.loads(call["function"]["arguments"]))
            for call in said.get("tool_calls") or ()
        ]
        assert (said["content"] or "", said["finish"], tuple(calls)) == (want.text, want.finish, want.calls)
        assert said["scored"] == want.logprobs
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == want.tokens
    heard = received[-1].body
    if dialect == "gemini":
        heard = gemini.camel(heard)
    for path, value in case.sent.get("openai" if dialect in OPENAI else dialect, {}).items():
        assert _at(heard, path) == value, path


def test_a_provider_that_never_answers_is_a_timeout_with_its_target(served: Gateway) -> None:
    """All at once, because each takes the second that its policy allows."""

    def ask(model: str, stream: bool) -> tuple[int, str, str]:
        reply = served.chat(model, "hang", stream=stream)
        return reply.status_code, reply.json()["error"]["code"], reply.headers["x-gateway-target"]

    asked = [(f"{dialect}-impatient", stream) for dialect in MODELS for stream in (False, True)]
    with ThreadPoolExecutor(len(asked)) as threads:
        heard = list(threads.map(ask, *zip(*asked, strict=True)))
    assert heard == [(504, "upstream_timeout", f"{model}/0") for model, _ in asked]


BROKEN = {"cut": "upstream_incomplete", "break": "upstream_disconnected"}
"""A stream that ends without its last chunks, and one whose connection breaks inside it."""


@pytest.mark.parametrize("dialect", MODELS)
@pytest.mark.parametrize("name", BROKEN)
def test_a_stream_that_breaks_off_is_an_error_behind_its_text(served: Gateway, name: str, dialect: str) -> None:
    reply = served.chat(dialect, name, stream=True)
    choices, _, error = _answer(reply, True)
    assert error["code"] == BROKEN[name]
    assert all(said["finish"] is None for said in choices)
    assert reply.headers["x-gateway-target"] == f"{dialect}/0"


@pytest.mark.parametrize("dialect", MODELS)
def test_a_whole_answer_that_breaks_off_is_an_error(served: Gateway, dialect: str) -> None:
    reply = served.chat(dialect, "break")
    assert (reply.status_code, reply.json()["error"]["code"]) == (502, "upstream_disconnected")


def test_an_overload_inside_a_stream_keeps_its_name(served: Gateway) -> None:
    reply = served.chat("anthropic", "late", stream=True)
    assert (reply.status_code, reply.json()["error"]["code"]) == (503, "upstream_overloaded")


@pytest.mark.parametrize("dialect", MODELS)
def test_a_wait_that_the_provider_asks_for_reaches_the_client(served: Gateway, dialect: str) -> None:
    assert served.chat(dialect, "error 429").headers["retry-after"] == "7"


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_key_that_a_provider_refuses_with_status_400_is_the_operators(served: Gateway, stream: bool) -> None:
    reply = served.chat("gemini", "key", stream=stream)
    assert (reply.status_code, reply.json()["error"]["code"]) == (502, "upstream_auth_failed")


def test_a_refused_parameter_is_named(served: Gateway) -> None:
    """By LiteLLM, before anything is sent, and by the provider."""
    for model, code in (("reasoning-refused", "unsupported_parameter"), ("default-only", "upstream_rejected_request")):
        reply = served.chat(model, "default", temperature=0)
        error = reply.json()["error"]
        assert (reply.status_code, error["code"], error["param"]) == (400, code, "temperature")
        assert "litellm" not in error["message"].lower()


def test_a_parameter_that_a_model_refuses_can_be_left_out_of_every_call(served: Gateway, providers: Providers) -> None:
    """Policy ``eval`` sets a temperature, and benchmarks send one."""
    for fields in ({}, {"temperature": 0}):
        reply = served.chat("reasoning", "default", **fields)
        assert reply.status_code == 200, reply.text
        assert "omitted_parameter: temperature=0" in reply.headers["x-gateway-notice"]
        assert "temperature" not in providers.received[-1].body


@pytest.mark.skipif(find_spec("google") is not None, reason="the package that has to be missing is installed")
def test_a_prompter_writes_the_messages_and_leaves_the_tools_as_they_are(served: Gateway, providers: Providers) -> None:
    assert served.chat("prompted", "hi", tools=TOOLS).status_code == 200
    body = providers.received[-1].body
    assert body["messages"] == [
        {"role": "system", "content": "You are a helpful assistant."},
        {"role": "user", "content": "hi"},
    ]
    assert (body["tools"], "stop" in body) == (TOOLS, False)


def test_a_package_that_litellm_lacks_is_a_failure_of_the_gateway(
    served: Gateway, caplog: pytest.LogCaptureFixture
) -> None:
    before = served.counted(
        "gateway_attempts_total", model="lacks-a-package", target="lacks-a-package/0", outcome="internal_error"
    )
    reply = served.chat("lacks-a-package")
    assert (reply.status_code, reply.json()["error"]["code"]) == (500, "internal_error")
    assert "No module named" in caplog.text
    attempts = served.counted(
        "gateway_attempts_total", model="lacks-a-package", target="lacks-a-package/0", outcome="internal_error"
    )
    assert attempts == before + 1
