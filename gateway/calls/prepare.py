"""Preparation of a call: all steps before a backend is opened. ``/v1/render`` shows the result of these steps."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from typing import Any

import orjson

from gateway.backend.tokenizer import count
from gateway.calls.route import Route
from gateway.core.call import Call
from gateway.core.dialogue import EMPTY_MAPPING, PlainMessages
from gateway.core.errors import ContextLengthExceeded, ForbiddenParameter, InvalidValue
from gateway.core.exchange import Exchange
from gateway.core.frozen import dataclass
from gateway.core.prompt import Notice, Prompt
from gateway.policy.admit.parameters import EffectiveParameters
from gateway.stream.output_parser import ParserOptions

RENDERER_ARGUMENTS = frozenset({
    "add_generation_prompt", "chat_template", "continue_final_message", "conversation", "documents", "max_length",
    "messages", "padding", "return_assistant_tokens_mask", "return_dict", "return_tensors", "tokenize",
    "tokenizer_kwargs", "tools", "truncation",
})  # fmt: skip
"""Arguments of ``apply_chat_template`` in ``transformers``, with which an engine renders. A client that sent them in
``chat_template_kwargs`` could replace the template or the messages (vLLM CVE-2025-61620)."""
MAX_PROMPT = 2_000_000
"""Maximum characters (or token ids) of one prompt; a longer prompt would keep a tokenizer busy for seconds."""

CONTINUE_FINAL = {"continue_final_message": True, "add_generation_prompt": False}
"""The fields that make an engine continue the last message, when the engine renders the prompt template."""


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
    """How the answer is parsed; None: all text of the answer is content."""

    @property
    def prompt_sha256(self) -> str:
        """SHA-256 of the model's exact input. A prompt is hashed with its BOS, even if the engine adds the BOS."""
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
    """Check and render a call. Raises a ``RequestError`` if this model cannot do what the client requests."""
    return _PREPARE[call.endpoint](route, call)


async def _prepare_chat(route: Route, call: Call) -> Prepared:
    dialogue, parameters = call.dialogue, route.parameters["chat"]
    assert dialogue is not None
    if route.default_tools and not dialogue.options.tools:
        call = replace(call, params={**call.params, "tools": list(route.default_tools)})
    parameters.check(call)
    started = time.perf_counter()
    template_kwargs = dialogue.options.template_kwargs if route.render_async is None else EMPTY_MAPPING
    if template_kwargs:
        _check_template_kwargs(route, template_kwargs)
        call = replace(call, params={**call.params, "chat_template_kwargs": template_kwargs})
    text = route.form == "text"
    if not text and type(dialogue.messages) is not PlainMessages:
        route.media.check(dialogue.messages)
    prompt = route.template.render(dialogue) if route.render_async is None else await route.render_async(dialogue)
    rendered = time.perf_counter() - started
    length = len(prompt.text) if text else sum(map(len, dialogue.texts))
    if length > MAX_PROMPT:
        raise _too_long(length, "messages")
    parsing = None if route.output_parsing is None else route.output_parsing.of(dialogue, prompt, call.stops)
    effective = parameters.effective(call)
    if effective.default_limit and (route.tokens is not None or route.engine_tokenizer is not None):
        effective = await _limit_to_context(route, prompt, effective)
    params, metadata = effective.params, prompt.metadata
    if dialogue.options.continue_final and not text:
        params = {**params, **CONTINUE_FINAL}
    stops = metadata.stops
    if call.stops or route.eos_stops:
        # The template's stops come first. The client's stops are added to the template's and never replace them.
        stops = tuple(dict.fromkeys((*stops, *route.eos_stops, *call.stops)))
    exchange = Exchange(
        endpoint="completions" if text else "chat",
        request_id=call.request_id,
        prompts=(prompt.text,) if text else (),
        messages=() if text else prompt.messages or (),
        params=params,
        n=call.n,
        stops=stops,
        stop_token_ids=metadata.stop_token_ids,
        stream=call.stream or route.spec.policy.delivery.stream_upstream,
        stream_options=call.stream_options,
        bos=metadata.bos,
        bos_text=metadata.bos_text,
        keep_special=parsing is not None and parsing.calls is not None,
    )
    return Prepared(
        exchange=exchange,
        prompt=prompt,
        notices=metadata.notices + effective.notices,
        top_logprobs=effective.top_logprobs,
        render_seconds=rendered,
        parsing=parsing,
    )


async def _limit_to_context(route: Route, prompt: Prompt, effective: EffectiveParameters) -> EffectiveParameters:
    """Replace the default ``max_tokens`` by the number of tokens left in the context, if that number is known."""
    parameters, room = route.parameters["chat"], None
    if route.tokens is not None and route.max_model_len is not None:
        room = max(route.max_model_len - await count(route.tokens, prompt.text), 1)
    elif route.engine_tokenizer is not None:
        room = await route.engine_tokenizer.remaining(prompt.text, parameters.limit)
    return effective if room is None else parameters.limited(effective, room)


async def _prepare_completion(route: Route, call: Call) -> Prepared:
    if route.form == "messages":
        raise InvalidValue(
            f"model {route.spec.name} takes messages only; send them to /v1/chat/completions", param="model"
        )
    for prompt in call.prompts:
        if len(prompt) > MAX_PROMPT:
            raise _too_long(len(prompt), "prompt")
    parameters = route.parameters["completions"]
    parameters.check(call)
    effective = parameters.effective(call)
    exchange = Exchange(
        endpoint="completions",
        request_id=call.request_id,
        prompts=call.prompts,
        prompt_is_list=call.prompt_is_list,
        params=effective.params,
        n=call.n,
        stops=call.stops,
        stream=call.stream or route.spec.policy.delivery.stream_upstream,
        stream_options=call.stream_options,
    )
    notices = effective.notices
    if call.params.get("echo") and call.stops:
        # The echoed prompt may contain a stop string, and not every engine shows where the prompt ends.
        notices = (*notices, Notice("stop_not_enforced", "echo"))
    return Prepared(exchange=exchange, prompt=None, notices=notices)


async def _prepare_embedding(route: Route, call: Call) -> Prepared:
    parameters = route.parameters["embeddings"]
    parameters.check(call)
    effective = parameters.effective(call)
    exchange = Exchange(endpoint="embeddings", request_id=call.request_id, params=effective.params)
    return Prepared(exchange=exchange, prompt=None, notices=effective.notices)


_PREPARE: Mapping[str, Callable[[Route, Call], Coroutine[Any, Any, Prepared]]] = {
    "chat": _prepare_chat,
    "completions": _prepare_completion,
    "embeddings": _prepare_embedding,
}
"""The function that prepares a call, by endpoint."""


def _check_template_kwargs(route: Route, template_kwargs: Mapping[str, Any]) -> None:
    """Raise ``ForbiddenParameter`` unless the targets accept these variables for their chat templates."""
    if not route.passes_template_kwargs:
        raise ForbiddenParameter(
            f"model {route.spec.name} has no chat template that takes variables; targets with speaks: chat take them "
            "where their engine is declared as vllm or sglang",
            param="chat_template_kwargs",
        )
    if names := template_kwargs.keys() & RENDERER_ARGUMENTS:
        name = f"chat_template_kwargs.{min(names)}"
        raise ForbiddenParameter(
            f"{name} is an argument of the renderer, not a variable of its template; leave it out", param=name
        )


def _too_long(length: int, param: str) -> ContextLengthExceeded:
    return ContextLengthExceeded(
        f"the prompt is {length} long; the gateway takes at most {MAX_PROMPT} characters or token ids", param=param
    )


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
