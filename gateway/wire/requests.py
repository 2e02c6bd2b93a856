"""What did the client ask for? A JSON object in, a ``Call`` out; the only place that reads bodies.

One pass sorts a body's fields: parameters, fields that OpenAI's API does not have, and those that no row of
``ordinary.py`` vouches for. Only the last go to pydantic. A call is made of the body's own values, word for word.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Annotated, Any, NamedTuple

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from gateway.core.call import Call
from gateway.core.dialogue import NOTHING, Dialogue, Message, Part, plain_messages
from gateway.core.errors import ForbiddenParameter, InvalidValue, RequestError
from gateway.core.exchange import Endpoint, RawPrompt
from gateway.wire.fields import (
    FORBIDDEN,
    FOREIGN,
    MAX_MESSAGES,
    MAX_PROMPTS,
    MAX_STOPS,
    STRUCTURAL,
    ChatRequest,
    CompletionRequest,
    EmbeddingRequest,
    Strict,
)
from gateway.wire.json import refuse_lost_digits
from gateway.wire.media import refuse_remote_media
from gateway.wire.ordinary import NEVER, TEXT, Row, rows_of
from gateway.wire.problems import plain

WHOLE = frozenset({str, int, bool})
"""Types whose values lose nothing on their way."""


ODD = frozenset({"stop", "stream_options", "gateway", *FOREIGN["chat"]})
"""Fields of a chat request that a call is not made of as they stand."""


class Shape(NamedTuple):
    """What an endpoint's bodies look like."""

    model: type[Strict]
    rows: Mapping[str, tuple[frozenset[type], Any, Any, bool, bool]]
    """The row of each field, then: is it a parameter? may it be null?"""
    required: Mapping[str, Any]
    """Each with a value that its validator takes, to stand in for one that needs no validator."""


Fields = tuple[dict[str, Any], dict[str, Any], frozenset[str], list[str]]
"""A body's fields, each where it belongs: known ones, unknown ones, the names of all that were given a value,
and the names of those whose numbers nobody has looked at.
"""


def read_chat(body: dict[str, Any], *, request_id: str, received: float) -> Call:
    """The call of a ``/v1/chat/completions`` body."""
    raws = body.get("messages")
    messages: Sequence[Message] | None = None
    if type(raws) is list and 0 < len(raws) <= MAX_MESSAGES:
        messages = plain_messages(raws)
    fields = _sorted(CHAT, body, "" if messages is None else "messages")
    goes_on, opens = body.get("continue_final_message"), body.get("add_generation_prompt")
    if goes_on or opens is False:
        _check_last_turn(goes_on, opens)
    if messages is None:
        messages = tuple([_message(raw, index) for index, raw in enumerate(body["messages"])])
    dialogue = Dialogue(messages, bool(goes_on), tuple(body.get("tools") or ()))
    if "tools" in body or "tool_choice" in body:
        dialogue = replace(
            dialogue,
            tool_choice=body.get("tool_choice"),
            parallel_calls=body.get("parallel_tool_calls") is not False,
        )
    kwargs = body.get("chat_template_kwargs")
    if kwargs:
        refuse_lost_digits(kwargs, "chat_template_kwargs")
        dialogue = replace(dialogue, template_kwargs=kwargs)
    known, unknown, given, loose = fields
    if loose or not ODD.isdisjoint(body):
        if variables := _variables(body):
            dialogue = replace(dialogue, variables=variables)
        return _call("chat", body, fields, request_id, received, dialogue)
    return Call(  # what ``_call`` would make of it
        "chat",
        body["model"],
        request_id,
        received,
        dialogue,
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
    fields = _sorted(COMPLETION, body, "prompt")
    _refuse_variables(body)
    prompts, is_list = _prompts(body["prompt"])
    return _call("completions", body, fields, request_id, received, None, prompts, is_list)


def read_embedding(body: dict[str, Any], *, request_id: str, received: float) -> Call:
    """The call of a ``/v1/embeddings`` body; the input passes untouched."""
    fields = _sorted(EMBEDDING, body, "input")
    _refuse_variables(body)
    _prompts(body["input"], "input")
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
    for name, path in FOREIGN[endpoint].items():
        if body.get(name) is not None:
            raise InvalidValue(f"{name} is no field of this endpoint; {path} takes it", param=name)
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
        _further_options(options) if options else NOTHING,
        bool(options and options.get("include_usage")),
        "gateway" in body and _explains(body),
    )


def _sorted(shape: Shape, body: dict[str, Any], checked: str) -> Fields:
    """Every field of the body, valid; an explicit null is an absent field. ``checked``: one the caller looks at."""
    known: dict[str, Any] = {}
    unknown: dict[str, Any] = {}
    odd: list[str] = []
    loose: list[str] = []
    nulls = False
    rows = shape.rows
    for key, value in body.items():
        row = rows.get(key)
        if row is None:
            if value is None:
                nulls = True
            else:
                unknown[key] = value
                loose.append(key)
            continue
        kinds, least, most, is_parameter, may_be_null = row
        if value is None:
            nulls = True
            if not may_be_null:
                odd.append(key)
            continue
        if is_parameter:
            known[key] = value
        if type(value) in kinds and least <= (len(value) if kinds is TEXT else value) <= most:
            continue
        if key != checked:
            odd.append(key)
            if is_parameter:
                loose.append(key)
    if odd or not shape.required.keys() <= body.keys():
        _check(shape, body, odd)
    given = frozenset([key for key, value in body.items() if value is not None] if nulls else body)
    return known, unknown, given, loose


def _check(shape: Shape, body: dict[str, Any], odd: Sequence[str]) -> None:
    """Let pydantic judge the odd fields, and miss the missing ones."""
    if shape.required.keys() <= body.keys() and all(_valid(shape.model, key, body[key]) for key in odd):
        return
    forbidden = FORBIDDEN.intersection(odd) - shape.model.model_fields.keys()
    if forbidden:
        name = min(forbidden)
        raise ForbiddenParameter(f"{name} is set by the operator of this gateway, never by a request", param=name)
    doubtful = {key: value for key, value in shape.required.items() if key in body}
    doubtful.update([(key, body[key]) for key in odd])
    try:
        shape.model.model_validate(doubtful)
    except ValidationError as error:
        raise _first_problem(error) from None


def _valid(model: type[Strict], name: str, value: object) -> bool:
    """Does the field's own validator take it? The model's would build a model; it is asked for the reason of a no."""
    is_valid = _validator(model, name)
    return is_valid is not None and is_valid(value)


@cache
def _validator(model: type[Strict], name: str) -> Callable[[object], bool] | None:
    """Made when the first odd value comes; none for what is no field of the model."""
    info = model.model_fields.get(name)
    if info is None:
        return None
    kind: Any = info.annotation
    for constraint in info.metadata:
        kind = Annotated[kind, constraint]
    return TypeAdapter(kind, config=model.model_config).validator.isinstance_python


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
    options = body.get("gateway") or NOTHING
    variables: Mapping[str, Any] = options.get("variables") or NOTHING
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


def _message(raw: Mapping[str, Any], number: int) -> Message:
    param = f"messages[{number}]"
    refuse_lost_digits(raw, param)
    role, content = raw["role"], raw.get("content")
    if content is None:
        if role != "assistant":
            raise InvalidValue(
                f"{param}.content is missing; only an assistant message may leave it out", param=f"{param}.content"
            )
        return Message(role, "", (), raw)
    if isinstance(content, str):
        return Message(role, content, (), raw)
    parts = []
    for index, part in enumerate(content):
        refuse_remote_media(part, f"{param}.content[{index}]")
        text = part.get("text")
        if text is None and part["type"] == "text":
            raise InvalidValue(f"{param}.content[{index}].text is missing", param=f"{param}.content[{index}].text")
        parts.append(Part(part["type"], text or ""))
    return Message(role, "".join([part.text for part in parts]), tuple(parts), raw)


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


def _shape(model: type[Strict], structural: frozenset[str], required: Mapping[str, Any]) -> Shape:
    plain_rows: dict[str, Row] = {
        **dict.fromkeys([*model.model_fields, *structural, *FORBIDDEN], NEVER),
        **rows_of(model),
    }
    rows = {
        name: (*row, name in model.model_fields and name not in structural, name not in required.keys() | FORBIDDEN)
        for name, row in plain_rows.items()
    }
    return Shape(model, rows, required)


CHAT = _shape(ChatRequest, STRUCTURAL, {"model": "m", "messages": [{"role": "user", "content": ""}]})
COMPLETION = _shape(CompletionRequest, STRUCTURAL, {"model": "m", "prompt": ""})
EMBEDDING = _shape(EmbeddingRequest, frozenset({"model", "gateway"}), {"model": "m", "input": ""})
