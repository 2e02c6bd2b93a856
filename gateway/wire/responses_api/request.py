"""Turns the body of a ``/v1/responses`` request into a ``Call`` with a chat dialogue.

The body is converted to the body of a chat request, which ``read_chat`` reads. Therefore a field has the same rules at
both endpoints.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gateway.core.call import Call
from gateway.core.caller import ANONYMOUS, Caller
from gateway.core.errors import InvalidValue, UnsupportedParameter
from gateway.wire.request_fields import StoredPrompt
from gateway.wire.requests import read_chat
from gateway.wire.responses_api.fields import (
    INSTEAD_OF,
    REFUSED,
    SAME,
    FunctionTool,
    NamespaceTool,
    ObfuscationOption,
    ReasoningOptions,
    ResponsesRequest,
    TextFormat,
    TextOptions,
)
from gateway.wire.responses_api.items import checked, read_input, variable
from gateway.wire.responses_api.tools import chat_tool_choice, chat_tools, read_tools
from gateway.wire.validation import body_schema, hint, split_fields
from metatemplate.values.dialogue import EMPTY_MAPPING
from metatemplate.values.prompt import Notice
from metatemplate.values.words import plain

SCHEMA = body_schema(ResponsesRequest, frozenset(), {"model": "m"})
ENCRYPTED, LOGPROBS = "reasoning.encrypted_content", "message.output_text.logprobs"


def read_response(body: dict[str, Any], *, request_id: str, caller: Caller = ANONYMOUS) -> Call:
    """Read a ``/v1/responses`` body."""
    fields = split_fields(SCHEMA, body, "")
    known = fields.known
    _refuse_others(known, fields.unknown)
    tools = read_tools(known.get("tools") or ())
    text = checked(TextOptions, known.get("text", EMPTY_MAPPING), "text")
    format_ = None if text.format is None else checked(TextFormat, text.format, "text.format")
    reasoning = checked(ReasoningOptions, known.get("reasoning", EMPTY_MAPPING), "reasoning")
    checked(ObfuscationOption, known.get("stream_options", EMPTY_MAPPING), "stream_options")
    include = known.get("include") or ()
    top_logprobs = known.get("top_logprobs") or 0
    chat: dict[str, Any] = {
        **fields.unknown,
        **{name: known[name] for name in SAME if name in known},
        **_conversation(known),
        "max_completion_tokens": known.get("max_output_tokens"),
        "reasoning_effort": reasoning.effort,
        "response_format": None if format_ is None else _response_format(format_),
        "verbosity": text.verbosity,
    }
    if tools:
        chat["tools"] = chat_tools(tools)
    if "tool_choice" in known:
        chat["tool_choice"] = chat_tool_choice(known["tool_choice"], tools)
    if known.get("stream") and "stream_options" in known:
        chat["stream_options"] = known["stream_options"]
    if top_logprobs or LOGPROBS in include:
        chat |= {"logprobs": True, "top_logprobs": top_logprobs}
    notices = [
        Notice("ignored_field", f"reasoning.{name}")
        for name in ("summary", "generate_summary")
        if getattr(reasoning, name) is not None
    ]
    if ENCRYPTED in include:
        notices.append(Notice("ignored_field", f"include {ENCRYPTED}"))
    notices += [
        Notice("ignored_field", f"tools[{number}].description")
        for number, tool in enumerate(tools)
        if isinstance(tool, NamespaceTool) and tool.description
    ]
    call = read_chat(
        {name: value for name, value in chat.items() if value is not None}, request_id=request_id, caller=caller
    )
    return replace(call, echo=_echo(known, tools, text), notices=tuple(notices))


def _conversation(known: Mapping[str, Any]) -> dict[str, Any]:
    """Return the field ``messages`` of a chat request, or the field ``gateway`` with a dataset prompt."""
    extension: Mapping[str, Any] = known.get("gateway") or {}
    if extension.get("turns") is not None:
        raise UnsupportedParameter(
            "/v1/responses returns one answer; send gateway.turns, which asks for several, to /v1/chat/completions",
            param="gateway.turns",
        )
    prompt = known.get("prompt")
    if prompt is None and extension.get("prompt") is None:
        if known.get("input") in (None, []):
            raise InvalidValue.at("input", f" is missing or empty{hint('input')}")
        return {"messages": read_input(known["input"], known.get("instructions"))}
    for name in ("input", "instructions"):
        if known.get(name):  # the SDK's ``responses.stream`` needs an input, which may be empty
            raise InvalidValue(f"a prompt replaces {name}; send only one of these fields", param=name)
    if prompt is None:
        return {}
    if extension.get("prompt") is not None:
        raise InvalidValue("prompt and gateway.prompt are the same field; send only prompt", param="gateway.prompt")
    stored = checked(StoredPrompt, prompt, "prompt")
    values = {
        name: variable(value, f"prompt.variables.{plain(name)}") for name, value in (stored.variables or {}).items()
    }
    return {"gateway": {**extension, "prompt": {"id": stored.id, "version": stored.version, "variables": values}}}


def _refuse_others(known: Mapping[str, Any], unknown: Mapping[str, Any]) -> None:
    """Raise ``RequestError`` for a field that is not supported, or that has another name at this endpoint."""
    for name, (default, reason) in REFUSED.items():
        if name in known and known[name] != default:
            raise UnsupportedParameter.at(name, f" is not supported: {reason}")
    for name in unknown:
        if name in INSTEAD_OF:
            raise InvalidValue(f"this endpoint has no field {name}; send {INSTEAD_OF[name]}", param=name)


def _response_format(form: TextFormat) -> dict[str, Any] | None:
    """Return the ``response_format`` of a chat request; None for plain text, which is the default."""
    if form.type == "text":
        return None
    if form.type == "json_object":
        return {"type": "json_object"}
    for key, value in (("name", form.name), ("schema", form.schema_)):
        if value is None:
            whole = '{"type": "json_schema", "name": "answer", "schema": {…}}'
            raise InvalidValue.at(f"text.format.{key}", f" is missing; write {whole}")
    return {"type": form.type, form.type: form.model_dump(by_alias=True, exclude={"type"}, exclude_none=True)}


def _echo(known: Mapping[str, Any], tools: list[FunctionTool | NamespaceTool], text: TextOptions) -> dict[str, Any]:
    """Return the request fields that every response object repeats. The writer adds fields that a policy may change."""
    return {
        "instructions": known.get("instructions"),
        "prompt": known.get("prompt"),
        "metadata": known.get("metadata") or {},
        "tools": [tool.model_dump() for tool in tools],
        "tool_choice": known.get("tool_choice", "auto"),
        "parallel_tool_calls": known.get("parallel_tool_calls", True),
        "text": {"format": {"type": "text"}, **text.model_dump(by_alias=True, exclude_none=True)},
        "top_logprobs": known.get("top_logprobs", 0),
        "user": known.get("user"),
        "safety_identifier": known.get("safety_identifier"),
        "prompt_cache_key": known.get("prompt_cache_key"),
        "previous_response_id": None,
        "max_tool_calls": None,
        "truncation": "disabled",
        "store": False,
        "background": False,
    }
