"""What did the client ask for? A JSON object in, a ``Call`` out; the only place that reads bodies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from gateway.core.call import Call
from gateway.core.dialogue import Dialogue, Message, Part
from gateway.core.errors import ForbiddenParameter, InvalidValue, RequestError
from gateway.core.exchange import RawPrompt
from gateway.wire.fields import (
    FORBIDDEN,
    FOREIGN,
    MAX_PROMPTS,
    MAX_STOPS,
    STRUCTURAL,
    ChatMessage,
    ChatRequest,
    CompletionRequest,
    EmbeddingRequest,
    Shared,
    Strict,
)
from gateway.wire.json import refuse_lost_digits
from gateway.wire.media import refuse_remote_media
from gateway.wire.problems import plain

Model = TypeVar("Model", bound=Strict)


def read_chat(body: dict[str, Any], *, request_id: str, received: float) -> Call:
    """The call of a ``/v1/chat/completions`` body."""
    request = _check(ChatRequest, body)
    if request.continue_final_message and request.add_generation_prompt:
        raise InvalidValue(
            "continue_final_message and add_generation_prompt exclude each other; set add_generation_prompt to false",
            param="continue_final_message",
        )
    if request.add_generation_prompt is False and not request.continue_final_message:
        raise InvalidValue(
            "add_generation_prompt: false asks for a prompt that no answer can follow; "
            "set continue_final_message: true to go on with the last message",
            param="add_generation_prompt",
        )
    messages = tuple(
        _message(message, raw, f"messages[{index}]")
        for index, (message, raw) in enumerate(zip(request.messages, body["messages"], strict=True))
    )
    return Call(
        endpoint="chat",
        dialogue=Dialogue(messages, bool(request.continue_final_message), tuple(request.tools or ())),
        **_common(request, body, "chat", request_id, received),
    )


def read_completion(body: dict[str, Any], *, request_id: str, received: float) -> Call:
    """The call of a ``/v1/completions`` body."""
    request = _check(CompletionRequest, body)
    prompts, is_list = _prompts(request.prompt)
    return Call(
        endpoint="completions",
        prompts=prompts,
        prompt_is_list=is_list,
        **_common(request, body, "completions", request_id, received),
    )


def read_embedding(body: dict[str, Any], *, request_id: str, received: float) -> Call:
    """The call of a ``/v1/embeddings`` body; the input passes untouched."""
    request = _check(EmbeddingRequest, body)
    _prompts(request.input, "input")
    known, unknown = _split(request, body, frozenset({"model", "gateway"}))
    return Call(
        endpoint="embeddings",
        model=request.model,
        request_id=request_id,
        received=received,
        params=known,
        unknown=unknown,
        given=_given(body),
        explain=_explains(request),
    )


def _common(
    request: Shared, body: Mapping[str, Any], endpoint: str, request_id: str, received: float
) -> dict[str, Any]:
    stops = (request.stop,) if isinstance(request.stop, str) else tuple(request.stop or ())
    if len(stops) > MAX_STOPS[endpoint]:
        raise InvalidValue(f"stop takes at most {MAX_STOPS[endpoint]} strings, not {len(stops)}", param="stop")
    for name, path in FOREIGN[endpoint].items():
        if body.get(name) is not None:
            raise InvalidValue(f"{name} is no field of this endpoint; {path} takes it", param=name)
    options = request.stream_options
    if options is not None and not request.stream:
        # OpenAI refuses this pair too; a client that sets it expects a usage chunk that never comes.
        raise InvalidValue("stream_options needs stream: true", param="stream_options")
    known, unknown = _split(request, body, STRUCTURAL)
    return {
        "model": request.model,
        "request_id": request_id,
        "received": received,
        "params": known,
        "unknown": unknown,
        "given": _given(body),
        "n": request.n or 1,
        "stops": stops,
        "stream": bool(request.stream),
        "stream_options": _further_options(body),
        "include_usage": bool(options and options.include_usage),
        "explain": _explains(request),
    }


def _given(body: Mapping[str, Any]) -> frozenset[str]:
    return frozenset(key for key, value in body.items() if value is not None)


def _further_options(body: Mapping[str, Any]) -> dict[str, Any]:
    options = body.get("stream_options") or {}
    refuse_lost_digits(options, "stream_options")
    return {key: value for key, value in options.items() if key != "include_usage" and value is not None}


def _explains(request: Shared | EmbeddingRequest) -> bool:
    return request.gateway is not None and request.gateway.explain


def _split(
    request: Strict, body: Mapping[str, Any], structural: frozenset[str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Known parameters and unknown fields, word for word; an explicit null is an absent field."""
    fields = type(request).model_fields
    known: dict[str, Any] = {}
    unknown: dict[str, Any] = {}
    for key, value in body.items():
        if value is None or key in structural:
            continue
        refuse_lost_digits(value, plain(key))
        (known if key in fields else unknown)[key] = value
    return known, unknown


def _message(message: ChatMessage, raw: Mapping[str, Any], param: str) -> Message:
    refuse_lost_digits(raw, param)
    content = message.content
    if content is None:
        if message.role != "assistant":
            raise InvalidValue(
                f"{param}.content is missing; only an assistant message may leave it out", param=f"{param}.content"
            )
        return Message(message.role, "", (), raw)
    if isinstance(content, str):
        return Message(message.role, content, (), raw)
    parts = []
    for index, part in enumerate(content):
        refuse_remote_media(raw["content"][index], f"{param}.content[{index}]")
        if part.type == "text" and part.text is None:
            raise InvalidValue(f"{param}.content[{index}].text is missing", param=f"{param}.content[{index}].text")
        parts.append(Part(part.type, part.text or ""))
    return Message(message.role, "".join([part.text for part in parts]), tuple(parts), raw)


def _prompts(value: object, param: str = "prompt") -> tuple[tuple[RawPrompt, ...], bool]:
    """Four shapes: a string, strings, token ids, lists of token ids. The flag says whether it was a list of prompts."""
    if isinstance(value, str):
        return (value,), False
    if isinstance(value, list) and value:
        if all(type(item) is int for item in value):
            return (_ids(value, param),), False
        if len(value) > MAX_PROMPTS:
            raise InvalidValue(f"{param} takes at most {MAX_PROMPTS} prompts in one call", param=param)
        if all(isinstance(item, str) for item in value):
            return tuple(value), True
        if all(isinstance(item, list) and item and all(type(id_) is int for id_ in item) for item in value):
            return tuple(_ids(item, f"{param}[{index}]") for index, item in enumerate(value)), True
    raise InvalidValue(
        f"{param} must be a string, a list of strings, a list of token ids or a list of lists of token ids, not empty",
        param=param,
    )


def _ids(value: list[int], param: str) -> tuple[int, ...]:
    if min(value) < 0 or max(value) >= 2**31:
        raise InvalidValue(f"{param} holds a token id outside 0 … 2^31-1", param=param)
    return tuple(value)


def _check(model: type[Model], body: dict[str, Any]) -> Model:
    forbidden = FORBIDDEN.intersection(body)
    if forbidden:
        name = min(forbidden)
        raise ForbiddenParameter(f"{name} is set by the operator of this gateway, never by a request", param=name)
    try:
        return model.model_validate(body)
    except ValidationError as error:
        raise _first_problem(error) from None


def _first_problem(error: ValidationError) -> RequestError:
    first = _telling(error.errors(include_url=False, include_context=False, include_input=False))
    # A union names its members in the location; those are class names of ours, not the client's words.
    keys = [key for key in first["loc"] if isinstance(key, int) or not _is_union_tag(key)]
    param = "".join(f"[{key}]" if isinstance(key, int) else f".{plain(key)}" for key in keys).lstrip(".")
    if first["type"] == "missing":
        return InvalidValue(f"{param} is missing", param=param)
    said = first["msg"].removeprefix("Value error, ").partition(" or instance of ")[0]
    return InvalidValue(f"{param}: {said[:1].lower()}{said[1:]}", param=param)


def _telling(errors: Sequence[ErrorDetails]) -> ErrorDetails:
    """The first error; of a union's the deepest that is no mere wrong type, because that member came closest."""
    stem = errors[0]["loc"]
    if isinstance(stem[-1], str) and _is_union_tag(stem[-1]):
        stem = stem[:-1]
    rivals = [error for error in errors if error["loc"][: len(stem)] == stem]
    return max(rivals, key=lambda error: (len(error["loc"]), not error["type"].endswith("_type")))


def _is_union_tag(key: str) -> bool:
    return key in {"str", "int", "float", "bool", "dict"} or "[" in key
