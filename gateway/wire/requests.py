"""Reads the JSON object of a request body into a ``Call``, which contains the body's values unchanged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from gateway.core.call import Call, Candidates, PromptReference, TurnRequests
from gateway.core.caller import ANONYMOUS, Caller
from gateway.core.errors import InvalidValue, UnsupportedParameter
from gateway.core.exchange import EndpointName, RawPrompt
from gateway.wire.json import refuse_lost_digits, refuse_lost_digits_in
from gateway.wire.message_content import read_message, read_prompts
from gateway.wire.request_fields import FOREIGN, MAX_INPUTS, MAX_MESSAGES, MAX_STOPS, LoglikelihoodRequest
from gateway.wire.validation import CHAT, COMPLETION, EMBEDDING, LOGLIKELIHOOD, REMEDIES, BodyFields, split_fields
from metatemplate.values.dialogue import (
    DEFAULT_OPTIONS,
    EMPTY_MAPPING,
    Dialogue,
    Message,
    RenderOptions,
    plain_messages,
)
from metatemplate.values.words import plain

OPTION_FIELDS = frozenset(
    {
        "continue_final_message",
        "add_generation_prompt",
        "tools",
        "tool_choice",
        "chat_template_kwargs",
        "gateway",
    }
)
"""The fields of a chat request from which its ``RenderOptions`` are made. ``_scores_prompt`` names further fields."""


def read_chat(body: dict[str, Any], *, request_id: str, caller: Caller = ANONYMOUS, answered: bool = True) -> Call:
    """Read a ``/v1/chat/completions`` body. ``answered``: False if the request is only rendered or tokenized.

    If the client requests log probabilities of messages that end with an answer, the whole conversation is scored, and
    no further answer is opened. AISBench's perplexity mode sends such requests.
    """
    raws = body.get("messages")
    messages: Sequence[Message] | None = None
    if type(raws) is list and 0 < len(raws) <= MAX_MESSAGES:
        messages = plain_messages(raws)
    elif raws is None:
        if _makes_messages(body):
            messages, body = (), {**body, "messages": []}
        else:
            _refuse_foreign("chat", body)
    fields = split_fields(CHAT, body, "" if messages is None else "messages")
    scores = bool(fields.unknown) and _scores_prompt(body)
    has_options = scores or not OPTION_FIELDS.isdisjoint(body)
    if has_options:
        _check_last_turn(body, scores or not answered)
    if messages is None:
        messages = tuple([read_message(raw, index) for index, raw in enumerate(body["messages"])])
    options = _render_options(body, messages, scores) if has_options else DEFAULT_OPTIONS
    call = _call("chat", body, fields, request_id, caller, dialogue=Dialogue(messages, options))
    return _with_extension(call, body) if "gateway" in body else call


def _render_options(body: Mapping[str, Any], messages: Sequence[Message], scores: bool) -> RenderOptions:
    """Return the options of a chat request that affect its prompt. ``scores``: the result of ``_scores_prompt``."""
    continued, opened = body.get("continue_final_message"), body.get("add_generation_prompt")
    options = RenderOptions(continue_final=True) if continued else DEFAULT_OPTIONS
    if not continued and (
        opened is False or (scores and opened is None and messages and messages[-1].role == "assistant")
    ):
        options = RenderOptions(whole=True)
    if "tools" in body or "tool_choice" in body:
        options = replace(
            options,
            tools=tuple(body.get("tools") or ()),
            tool_choice=body.get("tool_choice"),
            parallel_calls=body.get("parallel_tool_calls") is not False,
        )
    if kwargs := body.get("chat_template_kwargs"):
        refuse_lost_digits(kwargs, "chat_template_kwargs")
        options = replace(options, template_kwargs=kwargs)
    if variables := _extension(body).get("variables"):
        options = replace(options, variables=variables)
    return options


def read_completion(body: dict[str, Any], *, request_id: str, caller: Caller = ANONYMOUS) -> Call:
    """Read a ``/v1/completions`` body."""
    prompts: tuple[RawPrompt, ...] = ()
    is_list = False
    if body.get("prompt") is None and not _makes_messages(body):
        _refuse_foreign("completions", body)
    if body.get("prompt") is None and _makes_messages(body):
        fields = split_fields(COMPLETION, {**body, "prompt": ""}, "prompt")
    else:
        fields = split_fields(COMPLETION, body, "prompt")
        prompts, is_list = read_prompts(body["prompt"])
    _refuse_variables(body)
    if fields.unknown:
        _scores_prompt(body)
    call = _call("completions", body, fields, request_id, caller, prompts=prompts, prompt_is_list=is_list)
    return _with_extension(call, body) if "gateway" in body else call


def read_embedding(body: dict[str, Any], *, request_id: str, caller: Caller = ANONYMOUS) -> Call:
    """Read a ``/v1/embeddings`` body. The input is passed on unchanged."""
    fields = split_fields(EMBEDDING, body, "input")
    _refuse_variables(body)
    _refuse_foreign("embeddings", body)
    read_prompts(body["input"], "input", MAX_INPUTS)
    refuse_lost_digits_in(fields.known)
    refuse_lost_digits_in(fields.unknown)
    return Call(
        endpoint="embeddings",
        model=body["model"],
        request_id=request_id,
        caller=caller,
        params=fields.known,
        unknown=fields.unknown,
        given=fields.given,
        repeat=_extension(body).get("repeat") or 0,
        explain=_extension(body).get("explain") is True,
    )


def read_loglikelihood(body: dict[str, Any], *, request_id: str, caller: Caller = ANONYMOUS) -> Call:
    """Read a ``/v1/loglikelihood`` body. The requests to the engine are completions."""
    fields = split_fields(LOGLIKELIHOOD, body, "")
    if fields.unknown:
        name = plain(min(fields.unknown))
        known = ", ".join(LoglikelihoodRequest.model_fields)
        raise UnsupportedParameter(f"this endpoint has no field {name}; its fields are {known}", param=name)
    _refuse_dataset(_extension(body))
    extension = _extension(body)
    variables = extension.get("variables")
    options = replace(DEFAULT_OPTIONS, variables=variables) if variables else DEFAULT_OPTIONS
    raw_candidates, raw_prompt, raw = body.get("candidates"), body.get("prompt"), body.get("context")
    if (raw_candidates is None) == (raw_prompt is None) or (raw_prompt is not None and raw is not None):
        raise InvalidValue(
            "send either candidates, with or without a context, or a dataset prompt with a template for each label"
            + REMEDIES["candidates"],
            param="candidates",
        )
    labelled = {
        label: _text_or_dialogue(candidate, f"candidates.{plain(label)}", options)
        for label, candidate in (raw_candidates or {}).items()
    }
    context = None if raw is None else _text_or_dialogue(raw, "context", options)
    kinds = set(map(type, labelled.values()))
    if len(kinds) > 1:
        raise InvalidValue.at(
            "candidates", " must be all strings or all lists of messages, because their scores are compared"
        )
    if context is not None and Dialogue in kinds:
        raise InvalidValue.at(
            "candidates", " must be strings if a context is given; put the messages before the answer into the context"
        )
    if Dialogue not in kinds and not isinstance(context, Dialogue):
        _refuse_variables(body)
    return Call(
        endpoint="completions",
        model=body["model"],
        request_id=request_id,
        caller=caller,
        given=fields.given,
        dataset_prompt=None if raw_prompt is None else _prompt_reference(raw_prompt, "prompt"),
        candidates=Candidates(labelled, context, body.get("normalize") or "tokens"),
        repeat=extension.get("repeat") or 0,
        explain=extension.get("explain") is True,
    )


def _text_or_dialogue(value: Any, param: str, options: RenderOptions) -> str | Dialogue:
    if isinstance(value, str):
        if not value:
            raise InvalidValue.at(param, " is empty; send the text to score")
        return value
    return Dialogue(tuple([read_message(raw, number, param) for number, raw in enumerate(value)]), options)


def _call(
    endpoint: EndpointName,
    body: dict[str, Any],
    fields: BodyFields,
    request_id: str,
    caller: Caller,
    *,
    dialogue: Dialogue | None = None,
    prompts: tuple[RawPrompt, ...] = (),
    prompt_is_list: bool = False,
) -> Call:
    """Return the ``Call`` of a chat or completions request."""
    stop = body.get("stop")
    stops = () if stop is None else (stop,) if isinstance(stop, str) else tuple(stop)
    if len(stops) > MAX_STOPS[endpoint]:
        raise InvalidValue.at("stop", f" has {len(stops)} strings; it may have at most {MAX_STOPS[endpoint]}")
    if not FOREIGN[endpoint].keys().isdisjoint(body):
        _refuse_foreign(endpoint, body)
    stream, options = body.get("stream"), body.get("stream_options")
    if options is not None and not stream:
        # OpenAI refuses this too: a client that sends ``stream_options`` expects a usage chunk that never comes.
        raise InvalidValue.at("stream_options", " requires stream: true")
    refuse_lost_digits_in(fields.known)
    if fields.unknown:
        refuse_lost_digits_in(fields.unknown)
    return Call(
        endpoint,
        body["model"],
        request_id,
        caller,
        dialogue=dialogue,
        raw_prompts=prompts,
        prompt_is_list=prompt_is_list,
        params=fields.known,
        unknown=fields.unknown,
        given=fields.given,
        n=body.get("n") or 1,
        stops=stops,
        stream=bool(stream),
        stream_options=_further_options(options) if options else EMPTY_MAPPING,
        include_usage=bool(options and options.get("include_usage")),
    )


def _refuse_foreign(endpoint: EndpointName, body: dict[str, Any]) -> None:
    """Raise ``InvalidValue`` for a field of another endpoint."""
    for name, path in FOREIGN[endpoint].items():
        if body.get(name) is not None:
            raise InvalidValue(f"this endpoint has no field {name}; send it to {path}", param=name)


def _further_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of ``stream_options`` other than ``include_usage``."""
    refuse_lost_digits(options, "stream_options")
    return {key: value for key, value in options.items() if key != "include_usage" and value is not None}


def _extension(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the field ``gateway``; empty if it is null or absent."""
    return body.get("gateway") or EMPTY_MAPPING


def read_dataset_messages(raws: list[Any]) -> Sequence[Message]:
    """Return the checked messages of a dataset prompt. Raises ``InvalidValue`` if the messages are not valid."""
    if not raws or len(raws) > MAX_MESSAGES or not CHAT.validators["messages"](raws):
        raise InvalidValue("the dataset prompt makes messages that are not valid", param="gateway.prompt")
    return plain_messages(raws) or tuple([read_message(raw, index) for index, raw in enumerate(raws)])


def _makes_messages(body: Mapping[str, Any]) -> bool:
    """Return whether the field ``gateway`` has a dataset prompt or turns, which replace the messages."""
    extension = body.get("gateway")
    return isinstance(extension, dict) and any(extension.get(name) is not None for name in ("prompt", "turns"))


def _with_extension(call: Call, body: Mapping[str, Any]) -> Call:
    """Return the call with the values of the field ``gateway``."""
    extension, dialogue = _extension(body), call.dialogue
    raw_prompt, raw_turns = extension.get("prompt"), extension.get("turns")
    reference = turns = None
    if raw_prompt is not None:
        if call.raw_prompts or (dialogue is not None and (dialogue.messages or dialogue.options.variables)):
            raise InvalidValue.at(
                "gateway.prompt", " replaces messages, prompt and gateway.variables; send only one of these fields"
            )
        if dialogue is not None and dialogue.options.continue_final:
            raise InvalidValue(
                "a dataset prompt ends before the model's turn; leave continue_final_message out",
                param="continue_final_message",
            )
        if dialogue is not None and body.get("echo"):
            raise InvalidValue.at(
                "echo", " repeats the last message, but a dataset prompt has no messages; leave echo out"
            )
        reference = _prompt_reference(raw_prompt, "gateway.prompt")
    if raw_turns is not None:
        turns = _turns(call, raw_turns, has_prompt=reference is not None)
    explain = extension.get("explain") is True
    return replace(call, dataset_prompt=reference, turns=turns, repeat=extension.get("repeat") or 0, explain=explain)


def _prompt_reference(raw: Mapping[str, Any], param: str) -> PromptReference:
    refuse_lost_digits(raw, param)
    examples = raw.get("examples")
    return PromptReference(
        id=raw["id"],
        version=raw.get("version") or "",
        variables=raw.get("variables") or EMPTY_MAPPING,
        examples=None if examples is None else tuple(examples),
    )


def _refuse_dataset(extension: Mapping[str, Any]) -> None:
    """Raise ``InvalidValue`` if the field ``gateway`` of a log-likelihood request has a dataset prompt or turns."""
    for name in ("prompt", "turns"):
        if extension.get(name) is not None:
            raise InvalidValue(
                "this endpoint accepts a dataset prompt only in the field prompt, and accepts no turns; "
                f"leave gateway.{name} out",
                param=f"gateway.{name}",
            )


def _turns(call: Call, raw: Mapping[str, Any], *, has_prompt: bool) -> TurnRequests:
    turns = TurnRequests(
        mode=raw.get("mode", "every"),
        questions=tuple(raw.get("questions") or ()),
        answers=tuple(raw.get("answers") or ()),
    )
    if call.dialogue is None:
        raise InvalidValue("turns require messages; send the turns to /v1/chat/completions", param="gateway.turns")
    if call.stream or call.n > 1:
        raise InvalidValue(
            "a call with turns cannot be streamed and has only one choice; leave stream and n out",
            param="gateway.turns",
        )
    if scored := [name for name in ("prompt_logprobs", "echo", "return_token_ids") if call.unknown.get(name)]:
        raise InvalidValue(f"a call with turns returns no {scored[0]}; leave it out", param=scored[0])
    if has_prompt and (turns.questions or turns.answers):
        raise InvalidValue(
            "a dataset prompt has its own questions and answers; leave them out of gateway.turns",
            param="gateway.turns",
        )
    if not (has_prompt or turns.questions or call.dialogue.messages):
        raise InvalidValue("a call with turns needs messages, questions or a dataset prompt", param="gateway.turns")
    optional = turns.mode == "every" or len(turns.questions) < 2
    missing = len(turns.questions) - len(turns.answers)
    if missing not in (0, 1) and not (optional and not turns.answers):
        raise InvalidValue(
            f"mode {turns.mode} requires one answer for each question; only the last answer may be missing",
            param="gateway.turns.answers",
        )
    return turns


def _refuse_variables(body: Mapping[str, Any]) -> None:
    if _extension(body).get("variables"):
        raise InvalidValue(
            "this endpoint does not accept gateway.variables; use /v1/chat/completions", param="gateway.variables"
        )


def _scores_prompt(body: Mapping[str, Any]) -> bool:
    """Return whether a request asks for log probabilities of its prompt.

    Raises ``InvalidValue`` if one of vLLM's fields for the prompt is not valid.
    """
    for name in ("echo", "return_token_ids"):
        if body.get(name) is not None and not isinstance(body[name], bool):
            raise InvalidValue.at(name, " must be true or false")
    number = body.get("prompt_logprobs")
    if number is None:
        return bool(body.get("echo") and body.get("logprobs") and not body.get("stream"))
    if type(number) is not int or number < -1:
        raise InvalidValue.at("prompt_logprobs", " must be a whole number of at least -1")
    if body.get("stream"):
        raise InvalidValue("a stream cannot contain prompt_logprobs; set stream to false", param="prompt_logprobs")
    return True


def _check_last_turn(body: Mapping[str, Any], whole: bool) -> None:
    """Raise ``InvalidValue`` if it is not clear how the prompt must end.

    ``whole``: whether the prompt may be a complete conversation, in which no answer is opened.
    """
    continued, opened = body.get("continue_final_message"), body.get("add_generation_prompt")
    if continued and opened:
        raise InvalidValue.at(
            "continue_final_message",
            " and add_generation_prompt cannot both be true; set add_generation_prompt to false",
        )
    if opened is False and not continued and not whole:
        raise InvalidValue.at(
            "add_generation_prompt",
            ": false requires continue_final_message: true, or prompt_logprobs to score all messages",
        )
