"""The journey of a call: admitted, rendered, delivered, cut; what it leaves is a record.

``prepare`` is the pure half: everything that can be known before a backend is asked, which is also
all that ``/v1/render`` and ``gateway render`` show. ``run`` opens the backend and watches the events.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import orjson

from gateway.config.snapshot import ModelSpec
from gateway.core.call import Call
from gateway.core.dialogue import NOTHING
from gateway.core.errors import ContextLengthExceeded, InvalidValue, UpstreamIgnoredParameter, UpstreamIncomplete
from gateway.core.events import Delta, Event, Finish, Usage
from gateway.core.exchange import Backend, Exchange
from gateway.core.prompt import Notice, Prompt
from gateway.policy.admit.params import apply, for_text, spelled_out
from gateway.progress import Progress
from gateway.stream.cut import Cutter
from gateway.template.base import Template

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
    encode: Callable[[str, bool], list[int]] | None = None
    """Text → token ids (with special tokens, if the flag is set); None without a tokenizer."""
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
        """SHA-256 over exactly what the model is given."""
        exchange = self.exchange
        if exchange.endpoint == "embeddings":
            return _sha256(orjson.dumps(exchange.params.get("input")))
        if exchange.messages:
            return _sha256(orjson.dumps(list(exchange.messages)))
        if len(exchange.prompts) == 1 and isinstance(exchange.prompts[0], str):
            return _sha256(exchange.prompts[0].encode("utf-8", "surrogatepass"))
        return _sha256(orjson.dumps([list(p) if isinstance(p, tuple) else p for p in exchange.prompts]))


def prepare(route: Route, call: Call) -> Prepared:
    """The effective request; raises a ``RequestError`` for what this model cannot do."""
    return _PREPARE[call.endpoint](route, call)


@asynccontextmanager
async def run(route: Route, prepared: Prepared, progress: Progress) -> AsyncIterator[AsyncIterator[Event]]:
    """The answer's events, cut at the stops; leaving closes the upstream."""
    progress.asked()
    try:
        async with (
            route.backend.open(prepared.exchange) as events,
            aclosing(_watch(route, prepared, events, progress)) as watched,
        ):
            yield watched
    finally:
        progress.upstream_ended()


# ---------------------------------------------------------------- before the backend


def _prepare_chat(route: Route, call: Call) -> Prepared:
    policy = route.spec.policy.params
    effective = apply(call, policy)
    started = time.perf_counter()
    assert call.dialogue is not None
    prompt = route.template.render(call.dialogue)
    rendered = time.perf_counter() - started
    text = route.form == "text"
    _refuse_overlong(len(prompt.text) if text else sum(len(m.text) for m in call.dialogue.messages), "messages")
    if text:
        effective = for_text(effective, policy, _room(route, prompt.text))
    elif call.dialogue.continue_final:
        # The target's own template has to leave the last turn open; these are the names engines know.
        goes_on = {"continue_final_message": True, "add_generation_prompt": False}
        effective = replace(effective, params={**effective.params, **goes_on})
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
        bos=prompt.bos,
        bos_text=prompt.bos_text,
        templated=True,
    )
    return Prepared(exchange, prompt, prompt.notices + effective.notices, effective.top_logprobs, rendered)


def _prepare_completion(route: Route, call: Call) -> Prepared:
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
    )
    notices = effective.notices
    if call.params.get("echo") and call.stops:
        # The echoed prompt may hold a stop string; where it ends is not known for every engine.
        notices = (*notices, Notice("stop_not_enforced", "echo"))
    return Prepared(exchange, None, notices, None, None)


def _prepare_embedding(route: Route, call: Call) -> Prepared:
    effective = apply(call, route.spec.policy.params)
    exchange = Exchange(endpoint="embeddings", request_id=call.request_id, params=effective.params)
    return Prepared(exchange, None, effective.notices, None, None)


_PREPARE: dict[str, Callable[[Route, Call], Prepared]] = {
    "chat": _prepare_chat,
    "completions": _prepare_completion,
    "embeddings": _prepare_embedding,
}


def _refuse_overlong(length: int, param: str) -> None:
    if length > MAX_PROMPT:
        raise ContextLengthExceeded(
            f"the prompt is {length} long; the gateway takes at most {MAX_PROMPT} characters or token ids", param=param
        )


def _room(route: Route, text: str) -> int | None:
    """Tokens left for the answer; None without a tokenizer and a known context."""
    if route.encode is None or route.max_model_len is None:
        return None
    return max(route.max_model_len - len(route.encode(text, True)), 1)


# ---------------------------------------------------------------- behind the backend


async def _watch(
    route: Route, prepared: Prepared, events: AsyncIterator[Event], progress: Progress
) -> AsyncGenerator[Event, None]:
    exchange = prepared.exchange
    choices = max(len(exchange.prompts), 1) * exchange.n
    cutter = Cutter(exchange.stops, choices) if exchange.stops and not exchange.params.get("echo") else None
    unfinished = set(range(choices)) if exchange.endpoint != "embeddings" else set()
    wants_logprobs = bool(exchange.params.get("logprobs"))
    written: list[str] = []
    async for event in events:
        if wants_logprobs and isinstance(event, Delta) and event.text:
            if event.logprobs is None:
                raise UpstreamIgnoredParameter(
                    "the model's server ignored logprobs; scores made without them would be wrong", param="logprobs"
                )
            wants_logprobs = False
        for said in cutter.feed(event) if cutter else (event,):
            if isinstance(said, Delta):
                written.append(said.text)
            elif isinstance(said, Finish):
                if said.index not in unfinished:
                    continue  # of several ends of one choice the first stands (row C30)
                unfinished.remove(said.index)
            progress.saw(said)
            yield said
        # An engine that runs past the stop is closed at once; one that saw it may still send its counts.
        if cutter and cutter.done and exchange.stream and progress.cut_by_gateway:
            break
    else:
        for said in cutter.close() if cutter else ():
            progress.saw(said)
            yield said
        if unfinished:
            raise UpstreamIncomplete("the model's server ended its answer without a finish_reason")
    if progress.usage is None and (counted := _count(route, prepared, written)) is not None:
        progress.saw(counted)
        yield counted


def _count(route: Route, prepared: Prepared, written: list[str]) -> Usage | None:
    """Usage counted here, when the upstream gave none and the model has a tokenizer."""
    exchange = prepared.exchange
    if route.encode is None or exchange.endpoint == "embeddings":
        return None
    prompt = sum(len(route.encode(p, True)) if isinstance(p, str) else len(p) for p in exchange.prompts)
    return Usage(prompt, len(route.encode("".join(written), False)), source="estimated")


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
