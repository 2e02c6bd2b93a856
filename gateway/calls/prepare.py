"""The journey of a call: admitted, rendered, delivered, cut; what it leaves is a record.

``prepare`` is the pure half: everything that can be known before a backend is asked, which is also
all that ``/v1/render`` and ``gateway render`` show. ``Run`` opens the backend and watches the events.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any

import orjson

from gateway.backend.openai.engine_tokenizer import EngineTokenizer
from gateway.backend.tokenizer import Tokenizer, count
from gateway.calls.response import ResponseStream
from gateway.calls.timeline import CallTimeline
from gateway.config.snapshot import ModelSpec, PolicySpec
from gateway.core.call import Call
from gateway.core.dialogue import EMPTY_MAPPING, Dialogue, PlainMessages
from gateway.core.errors import ContextLengthExceeded, ForbiddenParameter, InvalidValue, UpstreamRejectedRequest
from gateway.core.events import Usage
from gateway.core.exchange import Backend, Endpoint, Exchange
from gateway.core.frozen import dataclass
from gateway.core.prompt import Notice, Prompt
from gateway.policy.admit.media import MediaRule
from gateway.policy.admit.output_parsing import OutputParsing
from gateway.policy.admit.parameters import Form, ParameterPolicy
from gateway.stream.output_parser import OutputParser, Reading
from gateway.template.base import Template

RENDERER_ARGUMENTS = frozenset({
    "add_generation_prompt", "chat_template", "continue_final_message", "conversation", "documents", "max_length",
    "messages", "padding", "return_assistant_tokens_mask", "return_dict", "return_tensors", "tokenize",
    "tokenizer_kwargs", "tools", "truncation",
})  # fmt: skip
"""Arguments of the function that renders at a target (``apply_chat_template`` of ``transformers``): under
``chat_template_kwargs`` they would choose the template or its messages (vLLM CVE-2025-61620)."""
POLICY_SECTIONS = {
    "default_parameter": "params.default", "forced_parameter": "params.force", "clamped_parameter": "params.clamp",
}  # fmt: skip
"""By rule of a notice, where a policy says it."""
MAX_PROMPT = 2_000_000
"""Characters (or token ids) of one prompt; longer ones would keep a tokenizer busy for seconds."""

GOES_ON = {"continue_final_message": True, "add_generation_prompt": False}
"""The target's own template has to leave the last turn open; these are the names engines know."""


@dataclass(frozen=True, slots=True)
class Route:
    """One model, wired: its template, its backend stack, and what is known of its tokens."""

    spec: ModelSpec
    form: Form
    template: Template
    backend: Backend
    terms: Mapping[Endpoint, ParameterPolicy]
    """What the policy comes to for each endpoint."""
    media: MediaRule
    template_id: str
    """``name@sha256:12hex``, for ``x-gateway-template``."""
    eos_stops: tuple[str, ...] = ()
    """The text of the template's ``eos_token_id``, when a tokenizer knows it."""
    tokens: Tokenizer | None = None
    """The model's tokenizer, when it has one here."""
    max_model_len: int | None = None
    """The context in tokens; None when unknown."""
    room: EngineTokenizer | None = None
    """Asks the engine how many tokens a prompt leaves; None where that is known here, or no engine says it."""
    passes_template_kwargs: bool = False
    """All targets render themselves, and take ``chat_template_kwargs``."""
    readings: OutputParsing | None = None
    """What answers to chat requests are read for, beside their text; None: nothing."""
    awaited: Callable[[Dialogue], Awaitable[Prompt]] | None = None
    """Renders in place of ``template.render``, by a chat template, which may have to wait for its own process."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """All that is known before a backend is asked."""

    exchange: Exchange
    prompt: Prompt | None
    """None for raw completions and embeddings: those are never templated."""
    notices: tuple[Notice, ...]
    top_logprobs: int | None
    render_seconds: float | None
    reading: Reading | None = None
    """None: the answer's text is content and nothing else."""

    @property
    def prompt_sha256(self) -> str:
        """SHA-256 over exactly what the model is given; of a prompt, before a BOS that its engine adds is taken off."""
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
    """The effective request, to be awaited; raises a ``RequestError`` for what this model cannot do."""
    return PREPARE[call.endpoint](route, call)


class Run:
    """One call under way: entered when its answer has begun; leaving closes the upstream."""

    __slots__ = ("_opened", "_prepared", "_progress", "_route")

    def __init__(self, route: Route, prepared: Prepared, progress: CallTimeline) -> None:
        self._route = route
        self._prepared = prepared
        self._progress = progress

    async def __aenter__(self) -> ResponseStream:
        exchange = self._prepared.exchange
        self._progress.attempt_log = exchange.attempts
        self._progress.asked()
        try:
            self._opened = self._route.backend.open(exchange)
            events = await self._opened.__aenter__()
        except UpstreamRejectedRequest as error:
            self._progress.upstream_ended()
            error.message += _changed_by(self._route.spec.policy, self._prepared.notices)
            raise
        except BaseException:
            self._progress.upstream_ended()
            raise
        countable = self._route.tokens is not None and exchange.endpoint != "embeddings"
        count = self._count if countable else None
        reading = self._prepared.reading
        if reading is None:
            return ResponseStream(exchange, events, self._progress, count)
        if reading.calls is not None and self._route.readings is not None:
            self._progress.tool_parser = self._route.readings.parser
        return ResponseStream(exchange, events, self._progress, count, OutputParser(reading, exchange.n))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._opened.__aexit__(kind, error, trace)
        finally:
            self._progress.upstream_ended()

    async def _count(self, written: str) -> Usage:
        """Usage counted here, when the upstream gave none."""
        tokens, exchange = self._route.tokens, self._prepared.exchange
        assert tokens is not None
        counts = [await count(tokens, p) if isinstance(p, str) else len(p) for p in exchange.prompts]
        return Usage(sum(counts), await count(tokens, written, special=False), source="estimated")


# ---------------------------------------------------------------- before the backend


async def _prepare_chat(route: Route, call: Call) -> Prepared:
    dialogue, terms = call.dialogue, route.terms["chat"]
    assert dialogue is not None
    if terms.refuses or call.unknown:
        terms.check(call)
    started = time.perf_counter()
    template_kwargs = dialogue.wishes.template_kwargs if route.awaited is None else EMPTY_MAPPING
    if template_kwargs:
        _check_template_kwargs(route, template_kwargs)
        call = replace(call, params={**call.params, "chat_template_kwargs": template_kwargs})
    text = route.form == "text"
    if not text and type(dialogue.messages) is not PlainMessages:
        route.media.check(dialogue.messages)
    prompt = route.template.render(dialogue) if route.awaited is None else await route.awaited(dialogue)
    rendered = time.perf_counter() - started
    length = len(prompt.text) if text else sum(map(len, dialogue.texts))
    if length > MAX_PROMPT:
        raise _overlong(length, "messages")
    reading = None if route.readings is None else route.readings.of(dialogue, prompt, call.stops)
    manner, top = prompt.manner, None
    stops, notices = manner.stops, manner.notices
    params: Mapping[str, Any] | None = terms.ordinary(call)
    if params is None:
        room = None
        if route.tokens is not None and route.max_model_len is not None and terms.leaves_limit_open(call):
            room = max(route.max_model_len - await count(route.tokens, prompt.text), 1)
        elif route.room is not None and terms.leaves_limit_open(call):
            terms.effective(call)  # what cannot be sent is refused before the engine is asked
            room = await route.room.remaining(prompt.text, terms.limit)
        effective = terms.effective(call, room)
        params, notices, top = effective.params, notices + effective.notices, effective.top_logprobs
    if dialogue.wishes.continue_final and not text:
        params = {**params, **GOES_ON}
    if call.stops or route.eos_stops:
        # The template's own come first; the client's are added and never replace them.
        stops = tuple(dict.fromkeys((*stops, *route.eos_stops, *call.stops)))
    exchange = Exchange(  # by position, because names would cost more than the rest
        "completions" if text else "chat",
        call.request_id,
        (prompt.text,) if text else (),
        False,
        () if text else prompt.messages or (),
        params,
        call.n,
        stops,
        manner.stop_token_ids,
        call.stream or route.spec.policy.delivery.stream_upstream,
        call.stream_options,
        manner.bos,
        manner.bos_text,
        reading is not None and reading.calls is not None,
    )
    return Prepared(exchange, prompt, notices, top, rendered, reading)


async def _prepare_completion(route: Route, call: Call) -> Prepared:
    if route.form == "messages":
        raise InvalidValue(
            f"model {route.spec.name} takes messages only; send them to /v1/chat/completions", param="model"
        )
    for prompt in call.prompts:
        if len(prompt) > MAX_PROMPT:
            raise _overlong(len(prompt), "prompt")
    effective = route.terms["completions"].effective(call)
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
        # The echoed prompt may hold a stop string; where it ends is not known for every engine.
        notices = (*notices, Notice("stop_not_enforced", "echo"))
    return Prepared(exchange, None, notices, None, None)


async def _prepare_embedding(route: Route, call: Call) -> Prepared:
    effective = route.terms["embeddings"].effective(call)
    exchange = Exchange(endpoint="embeddings", request_id=call.request_id, params=effective.params)
    return Prepared(exchange, None, effective.notices, None, None)


PREPARE: Mapping[str, Callable[[Route, Call], Coroutine[Any, Any, Prepared]]] = {
    "chat": _prepare_chat,
    "completions": _prepare_completion,
    "embeddings": _prepare_embedding,
}
"""``prepare`` by endpoint, for whoever prepares thousands a second."""


def _check_template_kwargs(route: Route, template_kwargs: Mapping[str, Any]) -> None:
    """Raise ``ForbiddenParameter`` unless the targets take these variables for their own templates."""
    if not route.passes_template_kwargs:
        raise ForbiddenParameter(
            f"model {route.spec.name} has no chat template that takes variables; targets that speak chat take them "
            "where their engine is declared as vllm or sglang",
            param="chat_template_kwargs",
        )
    if names := template_kwargs.keys() & RENDERER_ARGUMENTS:
        name = f"chat_template_kwargs.{min(names)}"
        raise ForbiddenParameter(
            f"{name} is an argument of the renderer, not a variable of its template; leave it out", param=name
        )


def _changed_by(policy: PolicySpec, notices: Sequence[Notice]) -> str:
    """What the policy had changed of a request that its target has refused; empty for nothing."""
    changes = []
    for notice in notices:
        section = POLICY_SECTIONS.get(notice.rule)
        if section == "params.default" and notice.detail.partition("=")[0] not in policy.params.default:
            section = "params.max_tokens"
        if section is not None:
            changes.append(f"{notice.detail} ({section})")
    return f"; policies/{policy.name}.yaml had set {', '.join(changes)}" if changes else ""


def _overlong(length: int, param: str) -> ContextLengthExceeded:
    return ContextLengthExceeded(
        f"the prompt is {length} long; the gateway takes at most {MAX_PROMPT} characters or token ids", param=param
    )


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
