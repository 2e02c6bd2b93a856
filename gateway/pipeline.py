"""The journey of a call: admitted, rendered, delivered, cut; what it leaves is a record.

``prepare`` is the pure half: everything that can be known before a backend is asked, which is also
all that ``/v1/render`` and ``gateway render`` show. ``Run`` opens the backend and watches the events.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import field, replace
from types import TracebackType
from typing import Any, Literal

import orjson

from gateway.backend.tokens import Tokens, count
from gateway.config.snapshot import ModelSpec
from gateway.core.call import Call
from gateway.core.dialogue import NOTHING, Dialogue
from gateway.core.errors import ContextLengthExceeded, InvalidValue
from gateway.core.events import Usage
from gateway.core.exchange import Backend, Exchange
from gateway.core.frozen import dataclass
from gateway.core.prompt import Notice, Prompt
from gateway.policy.admit.params import Effective, apply, bounded, for_text, spelled_out
from gateway.progress import Progress
from gateway.template.base import Template
from gateway.watched import Watched

MAX_PROMPT = 2_000_000
"""Characters (or token ids) of one prompt; longer ones would keep a tokenizer busy for seconds."""


@dataclass(frozen=True, slots=True)
class Route:
    """One model, wired: its template, its backend stack, and what is known of its tokens."""

    spec: ModelSpec
    form: Literal["text", "messages"]
    """What its targets take."""
    template: Template
    backend: Backend
    engine_defaults: Mapping[str, Any] | None = field(default=NOTHING)
    """What ``params.explicit`` must say to this target; None: nothing."""
    eos_stops: tuple[str, ...] = ()
    """The text of the template's ``eos_token_id``, when a tokenizer knows it."""
    tokens: Tokens | None = None
    """The model's tokenizer, when it has one here."""
    max_model_len: int | None = None
    """The context in tokens; None when unknown."""

    @property
    def template_id(self) -> str:
        """``name@sha256:12hex``, for ``x-gateway-template``."""
        return f"{self.template.spec.name}@sha256:{self.template.spec.digest}"


@dataclass(frozen=True, slots=True)
class Prepared:
    """All that is known before a backend is asked."""

    exchange: Exchange
    prompt: Prompt | None
    """None for raw completions and embeddings: those are never templated."""
    notices: tuple[Notice, ...]
    top_logprobs: int | None
    render_seconds: float | None

    @property
    def prompt_sha256(self) -> str:
        """SHA-256 over exactly what the model is given; of a prompt, before a BOS that its engine adds is taken off."""
        exchange = self.exchange
        if exchange.endpoint == "embeddings":
            return _sha256(orjson.dumps(exchange.params.get("input")))
        if exchange.messages:
            return _sha256(orjson.dumps(list(exchange.messages)))
        if len(exchange.prompts) == 1 and isinstance(exchange.prompts[0], str):
            return _sha256(exchange.prompts[0].encode("utf-8", "surrogatepass"))
        return _sha256(orjson.dumps([list(p) if isinstance(p, tuple) else p for p in exchange.prompts]))


async def prepare(route: Route, call: Call) -> Prepared:
    """The effective request; raises a ``RequestError`` for what this model cannot do."""
    return await _PREPARE[call.endpoint](route, call)


class Run:
    """One call under way: entered when its answer has begun; leaving closes the upstream."""

    __slots__ = ("_opened", "_prepared", "_progress", "_route")

    def __init__(self, route: Route, prepared: Prepared, progress: Progress) -> None:
        self._route = route
        self._prepared = prepared
        self._progress = progress

    async def __aenter__(self) -> Watched:
        exchange = self._prepared.exchange
        self._progress.asked()
        try:
            self._opened = self._route.backend.open(exchange)
            events = await self._opened.__aenter__()
        except BaseException:
            self._progress.upstream_ended()
            raise
        return Watched(exchange, events, self._progress, self._count)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._opened.__aexit__(kind, error, trace)
        finally:
            self._progress.upstream_ended()

    async def _count(self, written: str) -> Usage | None:
        """Usage counted here, when the upstream gave none and the model has a tokenizer."""
        tokens, exchange = self._route.tokens, self._prepared.exchange
        if tokens is None or exchange.endpoint == "embeddings":
            return None
        counts = [await count(tokens, p) if isinstance(p, str) else len(p) for p in exchange.prompts]
        return Usage(sum(counts), await count(tokens, written, special=False), source="estimated")


# ---------------------------------------------------------------- before the backend


async def _prepare_chat(route: Route, call: Call) -> Prepared:
    policy = route.spec.policy.params
    effective = apply(call, policy)
    started = time.perf_counter()
    assert call.dialogue is not None
    prompt = route.template.render(call.dialogue)
    rendered = time.perf_counter() - started
    text = route.form == "text"
    _refuse_overlong(len(prompt.text) if text else sum(len(m.text) for m in call.dialogue.messages), "messages")
    if text:
        effective = for_text(effective, policy, await _room(route, prompt.text))
    else:
        effective = _for_messages(bounded(effective, policy), call.dialogue)
    effective = spelled_out(effective, policy, route.engine_defaults)
    exchange = Exchange(
        endpoint="completions" if text else "chat",
        request_id=call.request_id,
        prompts=(prompt.text,) if text else (),
        messages=prompt.messages or (),
        params=effective.params,
        n=call.n,
        # The template's own come first; the client's are added and never replace them.
        stops=tuple(dict.fromkeys((*prompt.stops, *route.eos_stops, *call.stops))),
        stop_token_ids=prompt.stop_token_ids,
        stream=call.stream or route.spec.policy.delivery.stream_upstream,
        stream_options=call.stream_options,
        bos=prompt.bos,
        bos_text=prompt.bos_text,
    )
    return Prepared(exchange, prompt, prompt.notices + effective.notices, effective.top_logprobs, rendered)


async def _prepare_completion(route: Route, call: Call) -> Prepared:
    if route.form == "messages":
        raise InvalidValue(
            f"model {route.spec.name} takes messages only; send them to /v1/chat/completions", param="model"
        )
    for prompt in call.prompts:
        _refuse_overlong(len(prompt), "prompt")
    policy = route.spec.policy.params
    effective = spelled_out(apply(call, policy), policy, route.engine_defaults)
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
    effective = apply(call, route.spec.policy.params)
    exchange = Exchange(endpoint="embeddings", request_id=call.request_id, params=effective.params)
    return Prepared(exchange, None, effective.notices, None, None)


_PREPARE: dict[str, Callable[[Route, Call], Awaitable[Prepared]]] = {
    "chat": _prepare_chat,
    "completions": _prepare_completion,
    "embeddings": _prepare_embedding,
}


def _for_messages(effective: Effective, dialogue: Dialogue) -> Effective:
    if not dialogue.continue_final:
        return effective
    # The target's own template has to leave the last turn open; these are the names engines know.
    goes_on = {"continue_final_message": True, "add_generation_prompt": False}
    return replace(effective, params={**effective.params, **goes_on})


def _refuse_overlong(length: int, param: str) -> None:
    if length > MAX_PROMPT:
        raise ContextLengthExceeded(
            f"the prompt is {length} long; the gateway takes at most {MAX_PROMPT} characters or token ids", param=param
        )


async def _room(route: Route, text: str) -> int | None:
    """Tokens left for the answer; None without a tokenizer and a known context."""
    if route.tokens is None or route.max_model_len is None:
        return None
    return max(route.max_model_len - await count(route.tokens, text), 1)


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
