"""Preparation of a call: all steps before a backend is opened. ``/v1/render`` shows the result of these steps."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from typing import Any

import orjson

from gateway.backend.tokenizer import count
from gateway.calls.dataset_prompts import DatasetConversation, name_prompt, render_dataset_prompt
from gateway.calls.role_boundaries import SafePrompt, render_safely, token_prompt
from gateway.calls.route import Route
from gateway.calls.token_data import TokenRequest, token_request, tokenizes_special
from gateway.core.call import Call
from gateway.core.dialogue import EMPTY_MAPPING, PlainMessages
from gateway.core.errors import ContextLengthExceeded, ForbiddenParameter, InvalidValue, RequestError
from gateway.core.exchange import Exchange
from gateway.core.frozen import dataclass
from gateway.core.prompt import Notice, Prompt
from gateway.policy.admit.parameters import EffectiveParameters
from gateway.stream.output_parser import ParserOptions
from gateway.stream.stop_cutter import stops_to_cut

RENDERER_ARGUMENTS = frozenset({
    "add_generation_prompt", "chat_template", "continue_final_message", "conversation", "documents", "max_length",
    "messages", "padding", "return_assistant_tokens_mask", "return_dict", "return_tensors", "tokenize",
    "tokenizer_kwargs", "tools", "truncation",
})  # fmt: skip
"""Arguments of ``apply_chat_template``, the function of ``transformers`` with which an engine renders. They are refused
in ``chat_template_kwargs``, because they could replace the template or the messages (vLLM CVE-2025-61620)."""
MAX_PROMPT = 2_000_000
"""Maximum number of characters (or token ids) of one prompt. A tokenizer would need seconds for a longer prompt."""

CONTINUE_FINAL = {"continue_final_message": True, "add_generation_prompt": False}
"""The fields that make an engine continue the last message, for engines that render the messages themselves."""


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

    prompt_id: str = ""
    """The name and hash of the dataset prompt, ``name@sha256:12hex``. Empty if the request names no dataset prompt."""
    markers: tuple[tuple[str, int], ...] = ()
    """Pairs (action of the marker policy, number of markers) for the markers in the texts of the request."""

    @property
    def prompt_sha256(self) -> str:
        """The SHA-256 of the model's exact input. A prompt is hashed with its BOS, even if the engine adds the BOS."""
        exchange = self.exchange
        prompts = exchange.prompts
        if len(prompts) == 1 and isinstance(prompts[0], str):
            return _sha256(prompts[0].encode("utf-8", "surrogatepass"))
        if exchange.endpoint == "embeddings":
            return _sha256(orjson.dumps(exchange.params.get("input")))
        if exchange.messages:
            return _sha256(orjson.dumps(list(exchange.messages)))
        return _sha256(orjson.dumps([list(p) if isinstance(p, tuple) else p for p in prompts]))


def prepare(route: Route, call: Call) -> Coroutine[Any, Any, Prepared]:
    """Check and render a call. Raises a ``RequestError`` if the request is invalid or the model does not support it."""
    return _PREPARE[call.endpoint](route, call)


async def prepare_chat(route: Route, call: Call, rendered: DatasetConversation | None = None) -> Prepared:
    """Check and render a chat request. ``rendered``: a conversation that is used in place of the call's messages."""
    dialogue, parameters = call.dialogue, route.parameters["chat"]
    assert dialogue is not None
    if route.default_tools and not dialogue.options.tools:
        call = replace(call, params={**call.params, "tools": list(route.default_tools)})
    parameters.check(call)
    started = time.perf_counter()
    prompt: Prompt | None = None
    notices: tuple[Notice, ...] = ()
    prompt_id = ""
    if rendered is not None or call.prompt is not None:
        rendered = rendered or render_dataset_prompt(route, call)
        dialogue, prompt, notices, prompt_id = rendered.dialogue, rendered.prompt, rendered.notices, rendered.prompt_id
    template_kwargs = dialogue.options.template_kwargs if route.render_async is None else EMPTY_MAPPING
    if template_kwargs:
        _check_template_kwargs(route, template_kwargs)
        call = replace(call, params={**call.params, "chat_template_kwargs": template_kwargs})
    text = route.form == "text"
    try:
        if not text and type(dialogue.messages) is not PlainMessages:
            route.media.check(dialogue.messages, files=call.media_files)
        variables = EMPTY_MAPPING if text else _written_by_target(call)
        safe = await render_safely(route, dialogue, prompt, allow=call.allow_markers, variables=variables)
        prompt = safe.prompt
        if call.media_files and prompt.messages:
            prompt = replace(prompt, source=await route.media.with_files(prompt.messages))
    except RequestError as error:
        name_prompt(error, prompt_id)
        raise
    if safe.tools:
        call = replace(call, params={**call.params, "tools": safe.tools})
    render_seconds = time.perf_counter() - started
    length = len(prompt.text) if text else sum(map(len, dialogue.texts))
    if length > MAX_PROMPT:
        raise too_long(length, "messages")
    whole = dialogue.options.whole
    parsing = None
    if route.output_parsing is not None and not whole:
        parsing = route.output_parsing.of(dialogue, prompt, call.stops)
    effective = parameters.effective(call)
    if effective.default_limit and whole:
        effective = parameters.limited(effective, 1)
    elif effective.default_limit and (route.tokens is not None or route.engine_tokenizer is not None):
        effective = await _limit_to_context(route, prompt, effective)
    params, metadata = effective.params, prompt.metadata
    if dialogue.options.continue_final and not text:
        params = {**params, **CONTINUE_FINAL}
    exchange = Exchange(
        endpoint="completions" if text else "chat",
        request_id=call.request_id,
        session=call.session,
        tenant=call.tenant,
        repeat=call.repeat,
        prompts=(prompt.text,) if text else (),
        messages=() if text else prompt.messages or (),
        params=params,
        n=call.n,
        stops=metadata.stops_and(route.eos_stops, call.stops),
        stop_token_ids=metadata.stop_token_ids,
        stream=call.stream or route.spec.policy.delivery.stream_upstream,
        stream_options=call.stream_options,
        bos=metadata.bos,
        bos_text=metadata.bos_text,
        keep_special=parsing is not None and parsing.calls is not None,
    )
    if safe.breaks:
        exchange = await _as_token_ids(route, exchange, safe)
    notices = call.notices + notices + metadata.notices + safe.notices + effective.notices
    request = None
    if whole or call.unknown:
        top = effective.top_logprobs
        if not text and params.get("logprobs"):
            top = params.get("top_logprobs") or 0
        exchange, request, changes = token_request(route, call, exchange, top)
        notices += changes
    return Prepared(
        exchange=exchange,
        prompt=prompt,
        notices=notices,
        top_logprobs=effective.top_logprobs,
        render_seconds=render_seconds,
        parsing=parsing,
        prompt_id=prompt_id,
        token_request=request,
        markers=safe.markers,
    )


async def _as_token_ids(route: Route, exchange: Exchange, safe: SafePrompt) -> Exchange:
    assert route.tokens is not None  # checked when the route is built
    ids = await token_prompt(route.tokens, safe, special=tokenizes_special(route, exchange))
    return replace(exchange, prompts=(ids,))


async def _limit_to_context(route: Route, prompt: Prompt, effective: EffectiveParameters) -> EffectiveParameters:
    """Replace the default ``max_tokens`` by the number of tokens that are left in the context, if it is known."""
    parameters, room = route.parameters["chat"], None
    if route.tokens is not None and route.max_model_len is not None:
        room = max(route.max_model_len - await count(route.tokens, prompt.text), 1)
    elif route.engine_tokenizer is not None:
        room = await route.engine_tokenizer.remaining(prompt.text, parameters.limit)
    return effective if room is None else parameters.limited(effective, room)


async def _prepare_completion(route: Route, call: Call) -> Prepared:
    if route.form == "messages":
        raise InvalidValue(
            f"model {route.spec.name} accepts only messages; send messages to /v1/chat/completions", param="model"
        )
    parameters = route.parameters["completions"]
    parameters.check(call)
    rendered: DatasetConversation | None = None
    safe: SafePrompt | None = None
    if call.prompt is not None:
        rendered = render_dataset_prompt(route, call)
        try:
            safe = await render_safely(route, rendered.dialogue, rendered.prompt, allow=call.allow_markers)
        except RequestError as error:
            name_prompt(error, rendered.prompt_id)
            raise
    prompts = call.prompts if safe is None else (safe.prompt.text,)
    if (length := max(map(len, prompts), default=0)) > MAX_PROMPT:
        raise too_long(length, "prompt" if safe is None else "gateway.prompt")
    effective = parameters.effective(call)
    exchange = Exchange(
        endpoint="completions",
        request_id=call.request_id,
        session=call.session,
        tenant=call.tenant,
        repeat=call.repeat,
        prompts=prompts,
        prompt_is_list=call.prompt_is_list,
        params=effective.params,
        n=call.n,
        stops=call.stops,
        stream=call.stream or route.spec.policy.delivery.stream_upstream,
        stream_options=call.stream_options,
    )
    notices, request = effective.notices, None
    if rendered is not None and safe is not None:
        metadata = safe.prompt.metadata
        exchange = replace(
            exchange,
            stops=metadata.stops_and(route.eos_stops, call.stops),
            stop_token_ids=metadata.stop_token_ids,
            bos=metadata.bos,
            bos_text=metadata.bos_text,
        )
        if safe.breaks:
            exchange = await _as_token_ids(route, exchange, safe)
        notices = rendered.notices + metadata.notices + safe.notices + notices
    if call.unknown:
        exchange, request, changes = token_request(route, call, exchange, None)
        notices += changes
    if exchange.stops and not stops_to_cut(exchange):
        notices = (*notices, Notice("stop_not_enforced", "echo"))
    return Prepared(
        exchange=exchange,
        prompt=None if safe is None else safe.prompt,
        notices=notices,
        token_request=request,
        prompt_id="" if rendered is None else rendered.prompt_id,
        markers=() if safe is None else safe.markers,
    )


async def _prepare_embedding(route: Route, call: Call) -> Prepared:
    parameters = route.parameters["embeddings"]
    parameters.check(call)
    effective = parameters.effective(call)
    exchange = Exchange(
        endpoint="embeddings",
        request_id=call.request_id,
        session=call.session,
        tenant=call.tenant,
        repeat=call.repeat,
        params=effective.params,
    )
    return Prepared(exchange=exchange, prompt=None, notices=effective.notices)


_PREPARE: Mapping[str, Callable[[Route, Call], Coroutine[Any, Any, Prepared]]] = {
    "chat": prepare_chat,
    "completions": _prepare_completion,
    "embeddings": _prepare_embedding,
}
"""Endpoint → the function that prepares a call."""


def _written_by_target(call: Call) -> Mapping[str, Any]:
    """Return the fields, other than messages and tools, that a target's chat template may write in the prompt."""
    fields = {**call.params, **call.unknown}
    return {name: fields[name] for name in ("chat_template_kwargs", "documents") if name in fields}


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


def too_long(length: int, param: str) -> ContextLengthExceeded:
    """Return the error for a prompt of more than ``MAX_PROMPT`` characters or token ids."""
    return ContextLengthExceeded(
        f"the prompt has {length} characters or token ids; the gateway accepts at most {MAX_PROMPT}", param=param
    )


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
