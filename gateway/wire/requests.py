"""What did the client ask for? A JSON object in, a ``Call`` out; the only place that reads bodies.

A call is made of the body's own values, word for word: ``shapes.py`` sorts and judges its fields.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from gateway.core.call import Call
from gateway.core.dialogue import DEFAULT_OPTIONS, EMPTY_MAPPING, Dialogue, Message, RenderOptions, plain_messages
from gateway.core.errors import InvalidValue
from gateway.core.exchange import Endpoint, RawPrompt
from gateway.wire.error_object import plain
from gateway.wire.fields import FOREIGN, MAX_INPUTS, MAX_MESSAGES, MAX_STOPS
from gateway.wire.json import refuse_lost_digits
from gateway.wire.message_content import read_message, read_prompts
from gateway.wire.validation import CHAT, COMPLETION, EMBEDDING, Fields, sorted_fields

WHOLE = frozenset({str, int, bool})
"""Types whose values lose nothing on their way."""


ODD = frozenset({"stop", "stream_options", "gateway", *FOREIGN["chat"]})
"""Fields of a chat request that a call is not made of as they stand."""


def read_chat(body: dict[str, Any], *, request_id: str, received: float) -> Call:
    """The call of a ``/v1/chat/completions`` body."""
    raws = body.get("messages")
    messages: Sequence[Message] | None = None
    if type(raws) is list and 0 < len(raws) <= MAX_MESSAGES:
        messages = plain_messages(raws)
    fields = sorted_fields(CHAT, body, "" if messages is None else "messages")
    goes_on, opens = body.get("continue_final_message"), body.get("add_generation_prompt")
    if goes_on or opens is False:
        _check_last_turn(goes_on, opens)
    if messages is None:
        messages = tuple([read_message(raw, index) for index, raw in enumerate(body["messages"])])
    options = RenderOptions(continue_final=True) if goes_on else DEFAULT_OPTIONS
    if "tools" in body or "tool_choice" in body:
        options = replace(
            options,
            tools=tuple(body.get("tools") or ()),
            tool_choice=body.get("tool_choice"),
            parallel_calls=body.get("parallel_tool_calls") is not False,
        )
    kwargs = body.get("chat_template_kwargs")
    if kwargs:
        refuse_lost_digits(kwargs, "chat_template_kwargs")
        options = replace(options, template_kwargs=kwargs)
    known, unknown, given, loose = fields
    if loose or not ODD.isdisjoint(body):
        if variables := _variables(body):
            options = replace(options, variables=variables)
        return _call("chat", body, fields, request_id, received, Dialogue(messages, options))
    return Call(  # what ``_call`` would make of it
        "chat",
        body["model"],
        request_id,
        received,
        Dialogue(messages, options),
        (),
        False,
        known,
        unknown,
        given,
        body.get("n") or 1,
        (),
        body.get("stream") is True,
    )


def read_completion(body: dict[str, Any], *, request_id: str, received: float) -> Call:
    """The call of a ``/v1/completions`` body."""
    fields = sorted_fields(COMPLETION, body, "prompt")
    _refuse_variables(body)
    prompts, is_list = read_prompts(body["prompt"])
    return _call("completions", body, fields, request_id, received, None, prompts, is_list)


def read_embedding(body: dict[str, Any], *, request_id: str, received: float) -> Call:
    """The call of a ``/v1/embeddings`` body; the input passes untouched."""
    fields = sorted_fields(EMBEDDING, body, "input")
    _refuse_variables(body)
    _refuse_foreign("embeddings", body)
    read_prompts(body["input"], "input", MAX_INPUTS)
    known, unknown, given, loose = fields
    _keep_digits(body, loose)
    return Call(
        endpoint="embeddings",
        model=body["model"],
        request_id=request_id,
        received=received,
        params=known,
        unknown=unknown,
        given=given,
        explain=_explains(body),
    )


def _refuse_foreign(endpoint: Endpoint, body: dict[str, Any]) -> None:
    """Raise ``InvalidValue`` for a field that another endpoint has."""
    for name, path in FOREIGN[endpoint].items():
        if body.get(name) is not None:
            raise InvalidValue(f"this endpoint has no field {name}; send it to {path}", param=name)


def _call(
    endpoint: Endpoint,
    body: dict[str, Any],
    fields: Fields,
    request_id: str,
    received: float,
    dialogue: Dialogue | None,
    prompts: tuple[RawPrompt, ...] = (),
    prompt_is_list: bool = False,
) -> Call:
    """What chat and completions have in common."""
    stop = body.get("stop")
    stops = (stop,) if isinstance(stop, str) else tuple(stop or ())
    if len(stops) > MAX_STOPS[endpoint]:
        raise InvalidValue(f"stop takes at most {MAX_STOPS[endpoint]} strings, not {len(stops)}", param="stop")
    _refuse_foreign(endpoint, body)
    stream, options = body.get("stream"), body.get("stream_options")
    if options is not None and not stream:
        # OpenAI refuses this pair too; a client that sets it expects a usage chunk that never comes.
        raise InvalidValue("stream_options needs stream: true", param="stream_options")
    known, unknown, given, loose = fields
    if loose:
        _keep_digits(body, loose)
    return Call(
        endpoint,
        body["model"],
        request_id,
        received,
        dialogue,
        prompts,
        prompt_is_list,
        known,
        unknown,
        given,
        body.get("n") or 1,
        stops,
        bool(stream),
        _further_options(options) if options else EMPTY_MAPPING,
        bool(options and options.get("include_usage")),
        "gateway" in body and _explains(body),
    )


def _keep_digits(body: Mapping[str, Any], names: Sequence[str]) -> None:
    for name in names:
        value = body[name]
        if type(value) not in WHOLE:
            refuse_lost_digits(value, plain(name))


def _further_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of ``stream_options`` beside ``include_usage``."""
    refuse_lost_digits(options, "stream_options")
    return {key: value for key, value in options.items() if key != "include_usage" and value is not None}


def _explains(body: Mapping[str, Any]) -> bool:
    options = body.get("gateway")
    return options is not None and options.get("explain") is True


def _variables(body: Mapping[str, Any]) -> Mapping[str, Any]:
    options = body.get("gateway") or EMPTY_MAPPING
    variables: Mapping[str, Any] = options.get("variables") or EMPTY_MAPPING
    return variables


def _refuse_variables(body: Mapping[str, Any]) -> None:
    if _variables(body):
        raise InvalidValue(
            "variables fill the slots of a chat model's template; this endpoint has no template",
            param="gateway.variables",
        )


def _check_last_turn(goes_on: bool | None, opens: bool | None) -> None:
    if goes_on and opens:
        raise InvalidValue(
            "continue_final_message and add_generation_prompt exclude each other; set add_generation_prompt to false",
            param="continue_final_message",
        )
    if opens is False and not goes_on:
        raise InvalidValue(
            "add_generation_prompt: false asks for a prompt that no answer can follow; "
            "set continue_final_message: true to go on with the last message",
            param="add_generation_prompt",
        )
