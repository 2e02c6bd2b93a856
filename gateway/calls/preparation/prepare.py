"""Preparation of a call: all steps before a backend is opened. ``/v1/render`` shows the result of these steps."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import orjson

from gateway.backend.openai.request.constraint import no_constraint, refusing_target
from gateway.calls.answer.token_data import token_request, tokenizes_special
from gateway.calls.preparation.dataset_prompts import DatasetConversation, name_prompt, render_dataset_prompt
from gateway.calls.route import Route
from gateway.core.call import Call
from gateway.core.errors import (
    ContextLengthExceeded,
    ForbiddenParameter,
    InvalidValue,
    RequestError,
    UnsupportedParameter,
    as_gateway_error,
)
from gateway.core.exchange import Exchange, stops_to_cut, text_of_ids
from gateway.policy.admit.parameters import EffectiveParameters
from metatemplate.errors import InputError, MetaTemplateError
from metatemplate.markers.role_boundaries import SafePrompt
from metatemplate.tokenizer import count
from metatemplate.values.dialogue import DEFAULT_OPTIONS, EMPTY_MAPPING, Dialogue, PlainMessages
from metatemplate.values.frozen import dataclass
from metatemplate.values.prompt import Messages, Notice, Prompt, PromptMetadata

if TYPE_CHECKING:
    from gateway.calls.answer.answer_check import AnswerRule
    from gateway.calls.answer.token_data import TokenRequest
    from metatemplate.answers.output_parser import ParserOptions

RENDERER_ARGUMENTS = frozenset(
    {
        "add_generation_prompt",
        "chat_template",
        "continue_final_message",
        "conversation",
        "documents",
        "max_length",
        "messages",
        "padding",
        "return_assistant_tokens_mask",
        "return_dict",
        "return_tensors",
        "tokenize",
        "tokenizer_kwargs",
        "tools",
        "truncation",
    }
)
"""Arguments of ``apply_chat_template``, the function of ``transformers`` with which an engine renders. They are refused
in ``chat_template_kwargs``, because they could replace the template or the messages (vLLM CVE-2025-61620)."""
MAX_PROMPT = 2_000_000
"""Maximum number of characters (or token ids) of one prompt. A tokenizer would need seconds for a longer prompt."""

CHECKED_FIELDS = frozenset({"response_format", "tool_choice", "function_call"})
"""The parameters that can make a rule for the answers of a model."""
CONTINUE_FINAL = {"continue_final_message": True, "add_generation_prompt": False}
"""The fields that make an engine continue the last message, for engines that render the messages themselves."""
WRITTEN_BY_TARGET = ("chat_template_kwargs", "documents")
"""The fields, other than messages and tools, that a target's chat template may write in the prompt."""
NO_METADATA = PromptMetadata()
NO_MESSAGES: Messages = ()


@dataclass(frozen=True, slots=True)
class Prepared:
    """A call, ready for its backend."""

    exchange: Exchange
    prompt: Prompt | None
    """None for raw completions and embeddings, which use no prompt template."""
    notices: tuple[Notice, ...]
    top_logprobs: int | None = None
    render_seconds: float | None = None
    parsing: ParserOptions | None = None
    """The options for parsing the answer. None if all text of the answer is content."""
    token_request: TokenRequest | None = None
    """The values that the answer must have in addition to OpenAI's fields. None if the client requested none."""
    answer_rule: AnswerRule | None = None
    """What the answers are checked for. None if any answer is valid."""
    prompt_id: str = ""
    """The name and hash of the dataset prompt, ``name@sha256:12hex``. Empty if the request names no dataset prompt."""
    markers: tuple[tuple[str, int], ...] = ()
    """Pairs (action of the marker policy, number of markers) for the markers in the texts of the request."""

    @property
    def prompt_sha256(self) -> str:
        """The SHA-256 of the model's exact input. See the function ``prompt_sha256``."""
        return prompt_sha256(self.exchange)


def prompt_sha256(exchange: Exchange) -> str:
    """Return the SHA-256 of the input. A prompt is hashed with its BOS, even if the engine adds the BOS.

    The hash of a rendered prompt is that of its text, also if its token ids are sent.
    """
    prompts = exchange.prompts
    if len(prompts) == 1 and isinstance(prompts[0], str):
        return _sha256(prompts[0].encode("utf-8", "surrogatepass"))
    if (text := text_of_ids(exchange)) is not None:
        return _sha256(text.encode("utf-8", "surrogatepass"))
    if exchange.endpoint == "embeddings":
        return _sha256(orjson.dumps(exchange.params.get("input")))
    if exchange.messages:
        return _sha256(orjson.dumps(list(exchange.messages)))
    return _sha256(orjson.dumps([list(p) if isinstance(p, tuple) else p for p in prompts]))


async def prepare(route: Route, call: Call) -> Prepared:
    """Check and render a call. Raises a ``RequestError`` if the request is invalid or the model does not support it."""
    try:
        if route.reasoning is not None:
            call = await route.reasoning.put_back(call)
        return await _PREPARE[call.endpoint](route, call)
    except MetaTemplateError as error:
        raise as_gateway_error(error) from None


async def prepare_chat(route: Route, call: Call, rendered: DatasetConversation | None = None) -> Prepared:
    """Check and render a chat request. ``rendered``: a conversation that is used in place of the call's messages."""
    parameters = route.parameters["chat"]
    if route.default_tools and call.dialogue is not None and not call.dialogue.options.tools:
        call = replace(call, params={**call.params, "tools": list(route.default_tools)})
    parameters.check(call)
    started = time.perf_counter()
    if rendered is None and call.dataset_prompt is not None:
        rendered = render_dataset_prompt(route, call, call.dataset_prompt)
    dialogue = call.dialogue if rendered is None else rendered.dialogue
    assert dialogue is not None
    if dialogue.options is not DEFAULT_OPTIONS:
        call, dialogue = _with_options(route, call, dialogue)
    safe = await _render(route, call, dialogue, rendered)
    if safe.tools:
        call = replace(call, params={**call.params, "tools": safe.tools})
    render_seconds = time.perf_counter() - started
    prompt, text, whole = safe.prompt, route.form == "text", dialogue.options.whole
    check_length(len(prompt.text) if text else sum(map(len, dialogue.texts)), "messages")
    parsing = None if whole or route.output_parsing is None else route.output_parsing.of(dialogue, prompt, call.stops)
    effective = parameters.effective(call)
    ids = await token_ids_of(route, call, dialogue, safe, effective.params) if route.prompt_tokens else None
    if effective.default_limit and (whole or route.tokens is not None or route.engine_tokenizer is not None):
        effective = await _limited(route, prompt, ids, effective, whole=whole)
    params = effective.params
    if dialogue.options.continue_final and not text:
        params = {**params, **CONTINUE_FINAL}
    exchange = make_exchange(route, call, prompt, params, parsing)
    exchange = exchange if ids is None else replace(exchange, prompts=(ids,))
    rule, notices, request = None, () if rendered is None else rendered.notices, None
    notices = call.notices + notices + prompt.metadata.notices + safe.notices + effective.notices
    if dialogue.options.tool_choice is not None or not CHECKED_FIELDS.isdisjoint(params):
        exchange, rule, changes = await _ruled(route, call, dialogue, exchange, parsing)
        notices += changes
    if whole or call.unknown:
        top = (params.get("top_logprobs") or 0) if params.get("logprobs") and not text else effective.top_logprobs
        exchange, request, changes = token_request(route, call, exchange, top)
        notices += changes
    return Prepared(
        exchange,
        prompt,
        notices,
        effective.top_logprobs,
        render_seconds,
        parsing,
        request,
        rule,
        "" if rendered is None else rendered.prompt_id,
        safe.markers,
    )


def _with_options(route: Route, call: Call, dialogue: Dialogue) -> tuple[Call, Dialogue]:
    """Return the call and the conversation to render, after a check of the conversation's options."""
    if dialogue.options.template_kwargs and route.template.spec.jinja is None:
        _check_template_kwargs(route, dialogue.options.template_kwargs)
        call = replace(call, params={**call.params, "chat_template_kwargs": dialogue.options.template_kwargs})
    if dialogue.options.tools and route.form == "text" and route.template.spec.tools is not None:
        from gateway.calls.preparation.forced_call import with_forced_call

        call, dialogue = with_forced_call(route, call, dialogue)
    return call, dialogue


async def _ruled(
    route: Route, call: Call, dialogue: Dialogue, exchange: Exchange, parsing: ParserOptions | None
) -> tuple[Exchange, AnswerRule | None, tuple[Notice, ...]]:
    """Return what ``with_answer_rule`` returns, which is imported for models with structured output only."""
    if route.schemas is None:
        _refuse_format(route, exchange.params)
        return exchange, None, ()
    from gateway.calls.preparation.structured_output import with_answer_rule

    return await with_answer_rule(route, call, dialogue, exchange, parsing)


def _refuse_format(route: Route, params: Mapping[str, Any]) -> None:
    """Raise ``UnsupportedParameter`` for a ``response_format`` if no target of the model can constrain an answer."""
    wanted = params.get("response_format")
    if wanted is None or (isinstance(wanted, Mapping) and wanted.get("type") == "text"):
        return
    target = refusing_target(route.spec.targets)
    assert target is not None
    raise no_constraint(target)


async def _prepare_completion(route: Route, call: Call) -> Prepared:
    if route.form == "messages":
        raise InvalidValue(
            f"model {route.spec.name} accepts only messages; send messages to /v1/chat/completions", param="model"
        )
    parameters = route.parameters["completions"]
    parameters.check(call)
    rendered: DatasetConversation | None = None
    safe: SafePrompt | None = None
    prompt: Prompt | None = None
    if call.dataset_prompt is not None:
        rendered = render_dataset_prompt(route, call, call.dataset_prompt)
        safe = await _render(route, call, rendered.dialogue, rendered)
        prompt = safe.prompt
        check_length(len(prompt.text), "gateway.prompt")
    else:
        check_length(max(map(len, call.raw_prompts), default=0), "prompt")
    effective = parameters.effective(call)
    exchange = make_exchange(route, call, prompt, effective.params)
    if route.prompt_tokens is not None and safe is not None and rendered is not None:
        ids = await token_ids_of(route, call, rendered.dialogue, safe, effective.params)
        if ids is not None and effective.params.get("echo"):
            raise UnsupportedParameter(
                "the prompt is sent as token ids, so the engine cannot repeat its text; leave out echo", param="echo"
            )
        exchange = exchange if ids is None else replace(exchange, prompts=(ids,))
    rule, notices, request = None, effective.notices, None
    if route.schemas is None:
        _refuse_format(route, effective.params)
    elif "response_format" in effective.params:
        from gateway.calls.preparation.structured_output import with_completion_rule

        exchange, rule = await with_completion_rule(route, call, exchange)
    if rendered is not None and safe is not None:
        notices = rendered.notices + safe.prompt.metadata.notices + safe.notices + notices
    if call.unknown:
        exchange, request, changes = token_request(route, call, exchange, None)
        notices += changes
    if exchange.stops and not stops_to_cut(exchange):
        notices = (*notices, Notice("stop_not_enforced", "echo"))
    return Prepared(
        exchange=exchange,
        prompt=prompt,
        notices=notices,
        token_request=request,
        answer_rule=rule,
        prompt_id="" if rendered is None else rendered.prompt_id,
        markers=() if safe is None else safe.markers,
    )


async def _prepare_embedding(route: Route, call: Call) -> Prepared:
    parameters = route.parameters["embeddings"]
    parameters.check(call)
    effective = parameters.effective(call)
    exchange = make_exchange(route, call, None, effective.params, generates=False)
    return Prepared(exchange=exchange, prompt=None, notices=effective.notices)


def make_exchange(
    route: Route,
    call: Call,
    prompt: Prompt | None,
    params: Mapping[str, Any],
    parsing: ParserOptions | None = None,
    *,
    generates: bool = True,
) -> Exchange:
    """Return the request to the backend.

    ``prompt``: the rendered prompt; None for raw prompts and embeddings. ``generates``: False if no text of the answer
    is used. Such a request has no stops, and is not streamed.
    """
    metadata, stops = NO_METADATA, call.stops
    endpoint, prompts, messages = call.endpoint, call.raw_prompts, NO_MESSAGES
    if prompt is not None:
        metadata = prompt.metadata
        if route.form == "text":
            endpoint, prompts = "completions", (prompt.text,)
        else:
            endpoint, messages = "chat", prompt.messages or ()
        stops = metadata.stops_and(route.eos_stops, call.stops)
    # By position: CPython makes a dictionary of the keywords that a class is called with.
    return Exchange(
        endpoint,
        call.request_id,
        prompts,
        call.prompt_is_list,
        messages,
        params,
        call.n,
        stops if generates else (),
        metadata.stop_token_ids if generates else (),
        None,  # the formats are set later, if the client requests structured output
        None,
        generates and (call.stream or route.spec.policy.delivery.stream_upstream),
        call.stream_options,
        metadata.bos,
        metadata.bos_text,
        parsing is not None and parsing.keep_special,
        call.caller,
        call.repeat,
        prompt,
    )


_PREPARE: Mapping[str, Callable[[Route, Call], Coroutine[Any, Any, Prepared]]] = {
    "chat": prepare_chat,
    "completions": _prepare_completion,
    "embeddings": _prepare_embedding,
}
"""Endpoint → the function that prepares a call."""


def _render(
    route: Route, call: Call, dialogue: Dialogue, rendered: DatasetConversation | None
) -> Coroutine[Any, Any, SafePrompt]:
    """Render a dialogue, and apply the policies for media and markers. ``rendered``: None without a dataset prompt."""
    if rendered is None and route.form == "text":
        return route.renderer.render_safely(dialogue, allow=call.caller.allow_markers)
    return _render_with_media(route, call, dialogue, rendered)


async def _render_with_media(
    route: Route, call: Call, dialogue: Dialogue, rendered: DatasetConversation | None
) -> SafePrompt:
    media, text = route.media, route.form == "text"
    try:
        if media is not None and type(dialogue.messages) is not PlainMessages:
            media.check(dialogue.messages, files=call.caller.allow_media_files)
        sent = EMPTY_MAPPING if text else {**call.params, **call.unknown}
        variables = {name: sent[name] for name in WRITTEN_BY_TARGET if name in sent}
        prompt, allow = None if rendered is None else rendered.prompt, call.caller.allow_markers
        safe = await route.renderer.render_safely(dialogue, prompt, allow=allow, variables=variables)
        if media is not None and media.takes_files and safe.prompt.messages:
            with_files = await media.with_files(safe.prompt.messages)
            safe = replace(safe, prompt=replace(safe.prompt, source=with_files))
    except (RequestError, InputError) as error:
        if rendered is not None:
            name_prompt(error, rendered.prompt_id)
        raise
    return safe


async def token_ids_of(
    route: Route, call: Call, dialogue: Dialogue, safe: SafePrompt, params: Mapping[str, Any]
) -> tuple[int, ...] | None:
    """Return the token ids that are sent in place of a rendered prompt. None if its text is sent."""
    special = tokenizes_special(route, make_exchange(route, call, safe.prompt, params))
    if route.prompt_ids is not None:
        return await route.prompt_ids.of(dialogue, safe, allow=call.caller.allow_markers, special=special)
    assert route.prompt_tokens is not None
    return await route.prompt_tokens.ids(safe.prompt, special=special) if safe.prompt.breaks else None


async def _limited(
    route: Route, prompt: Prompt, ids: tuple[int, ...] | None, effective: EffectiveParameters, *, whole: bool
) -> EffectiveParameters:
    """Replace the default ``max_tokens`` by the number of tokens that are left in the context, if it is known.

    A complete conversation (``whole``) has an answer of one token.
    """
    parameters, room = route.parameters["chat"], None
    if whole:
        room = 1
    elif route.tokens is not None and route.max_model_len is not None:
        used = await count(route.tokens, prompt.text) if ids is None else len(ids)
        room = max(route.max_model_len - used, 1)
    elif route.engine_tokenizer is not None:
        known = None if ids is None else len(ids)
        room = await route.engine_tokenizer.remaining(prompt.text, parameters.limit, known)
    return effective if room is None else parameters.limited(effective, room)


def _check_template_kwargs(route: Route, template_kwargs: Mapping[str, Any]) -> None:
    """Raise ``ForbiddenParameter`` if the targets do not accept these variables for their chat templates."""
    if not route.passes_template_kwargs:
        raise ForbiddenParameter(
            f"model {route.spec.name} does not accept chat_template_kwargs; leave the field out, or configure the "
            "model with a template of kind: jinja, or with targets of speaks: chat and engine: vllm or sglang",
            param="chat_template_kwargs",
        )
    if names := template_kwargs.keys() & RENDERER_ARGUMENTS:
        name = f"chat_template_kwargs.{min(names)}"
        raise ForbiddenParameter(f"{name} cannot be set in a request; leave it out", param=name)


def check_length(length: int, param: str) -> None:
    """Raise ``ContextLengthExceeded`` for a prompt of more than ``MAX_PROMPT`` characters or token ids."""
    if length > MAX_PROMPT:
        raise ContextLengthExceeded(
            f"the prompt has {length} characters or token ids; the gateway accepts at most {MAX_PROMPT}", param=param
        )


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
