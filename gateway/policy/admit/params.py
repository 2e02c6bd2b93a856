"""Which parameters go out? The client's, the policy's, and nothing in silence.

In order: unknown fields by rule, forbidden ones refused, defaults filled in, bounds kept,
forced values set. Every change leaves a notice. A text target then gets them in the names
of the completions endpoint; what cannot be said there is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from gateway.config.snapshot import ParamsPolicy
from gateway.core.call import Call
from gateway.core.errors import ForbiddenParameter, InvalidValue, UnsupportedParameter
from gateway.core.exchange import Endpoint
from gateway.core.frozen import dataclass
from gateway.core.prompt import Notice
from gateway.wire.problems import plain

LIMITS = ("max_completion_tokens", "max_tokens")
"""Two names of one thing; the newer one wins if a client sends both."""

OPENAI_DEFAULTS = {"temperature": 1.0, "top_p": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0}
"""What OpenAI's API means when a field is absent; sent in so many words by ``params.explicit``."""

CHAT_ONLY: dict[str, Callable[[Any], bool]] = {
    # Fields the completions endpoint does not have, and when one may be left out because it asks for nothing.
    "tools": lambda value: not value,
    "functions": lambda value: not value,
    "tool_choice": lambda value: value in ("none", "auto"),
    "function_call": lambda value: value in ("none", "auto"),
    "parallel_tool_calls": lambda value: True,  # says something only beside tools, which are refused
    "response_format": lambda value: value == {"type": "text"},
    "modalities": lambda value: value == ["text"],
    "service_tier": lambda value: value in ("auto", "default"),
    "store": lambda value: value is False,
    "audio": lambda value: False,
    "prediction": lambda value: False,
    "reasoning_effort": lambda value: False,
    "verbosity": lambda value: False,
    "prompt_cache_key": lambda value: False,
    "safety_identifier": lambda value: False,
    "web_search_options": lambda value: False,
}

ELSEWHERE: Mapping[Endpoint, frozenset[str]] = {
    # What a policy may say that the endpoint has no field for. Fields beyond OpenAI's go to chat and completions,
    # because engines take them at both.
    "chat": frozenset({"best_of", "dimensions", "echo", "encoding_format", "suffix"}),
    "completions": frozenset({"dimensions", "encoding_format", "top_logprobs", *CHAT_ONLY} - {"response_format"}),
}
EMBEDDINGS = frozenset({"dimensions", "encoding_format", "user"})
"""All that a policy can say of embeddings: nothing is sampled there."""


@dataclass(frozen=True, slots=True)
class Effective:
    """The parameters as they will be sent, and what was changed on the way."""

    params: Mapping[str, Any]
    notices: tuple[Notice, ...] = ()
    top_logprobs: int | None = None
    """How many alternatives the client asked for; None: as many as the target gives."""


def apply(call: Call, policy: ParamsPolicy) -> Effective:
    """The policy's word on the client's parameters."""
    params = dict(call.params)
    notices: list[Notice] = []
    asked = call.given - _asking_nothing(call)
    for name in policy.forbid:
        for alias in _aliases(name):
            if alias in asked:
                raise ForbiddenParameter(f"{alias} is not allowed by this model's policy; leave it out", param=alias)
    _unknown(call.unknown, policy, params, notices)
    for name, value in _meant_for(call.endpoint, policy.default):
        if not any(alias in params for alias in _aliases(name)):
            params[name] = value
            notices.append(Notice("default_parameter", f"{name}={value}"))
    for name, bound in _meant_for(call.endpoint, policy.clamp):
        for alias in _aliases(name):
            value = params.get(alias)
            if isinstance(value, int | float) and not isinstance(value, bool) and value > bound:
                params[alias] = _like(value, bound)
                notices.append(Notice("clamped_parameter", f"{alias}={params[alias]}"))
    for name, value in _meant_for(call.endpoint, policy.force):
        given = {alias: params.pop(alias) for alias in _aliases(name) if alias in params}
        params[name] = value
        if given != {name: value}:
            notices.append(Notice("forced_parameter", f"{name}={value}"))
    return Effective(params, tuple(notices))


def spelled_out(effective: Effective, policy: ParamsPolicy, engine_defaults: Mapping[str, Any] | None) -> Effective:
    """OpenAI's sampling defaults in so many words, where ``params.explicit`` asks for it.

    ``engine_defaults``: what fields must say at this engine to mean OpenAI's defaults; a field that is None is left
    out. None in place of it: the target's provider has defaults of its own, which are nobody's to spell out.
    """
    if not policy.explicit or engine_defaults is None:
        return effective
    defaults = {**OPENAI_DEFAULTS, **engine_defaults}
    told = {name: value for name, value in defaults.items() if value is not None}
    return replace(effective, params={**told, **effective.params})


def bounded(effective: Effective, policy: ParamsPolicy) -> Effective:
    """A limit for a message target whose client sets none, where the policy bounds it: no limit would be above it."""
    bounds = [(policy.clamp[name], name) for name in LIMITS if name in policy.clamp]
    if not bounds or any(name in effective.params for name in LIMITS):
        return effective
    bound, name = min(bounds)
    limit = int(bound)
    notice = Notice("clamped_parameter", f"{name}={limit}")
    return replace(effective, params={**effective.params, name: limit}, notices=(*effective.notices, notice))


def for_text(effective: Effective, policy: ParamsPolicy, room: int | None) -> Effective:
    """Chat parameters in the names of the completions endpoint, with an explicit limit (design 5.1).

    ``room``: tokens left in the context; None when unknown.
    """
    params = dict(effective.params)
    notices = list(effective.notices)
    for name, asks_nothing in CHAT_ONLY.items():
        if name in params and not asks_nothing(params.pop(name)):
            raise UnsupportedParameter(
                f"{name} cannot be expressed to a model that takes plain text; leave it out or use a chat model",
                param=name,
            )
    wanted = params.pop("logprobs", None)
    top = params.pop("top_logprobs", None)
    if top is not None and not wanted:
        raise InvalidValue("top_logprobs needs logprobs: true", param="top_logprobs")
    if wanted:
        # Some engines read 0 as "none"; ask for one and cut the surplus from the answer.
        params["logprobs"] = max(top or 0, 1)
    _limit(params, policy, room, notices)
    return Effective(params, tuple(notices), (top or 0) if wanted else None)


def _limit(params: dict[str, Any], policy: ParamsPolicy, room: int | None, notices: list[Notice]) -> None:
    newer, older = (params.pop(name, None) for name in LIMITS)
    if newer is not None and older is not None and newer != older:
        raise InvalidValue(
            "max_completion_tokens and max_tokens differ; send one of them", param="max_completion_tokens"
        )
    if newer is not None and older is None:
        notices.append(Notice("renamed_parameter", "max_completion_tokens sent as max_tokens"))
    limit = newer if newer is not None else older
    if limit is None:
        # Without a limit a completions engine stops after 16 tokens; a chat request means "until the end".
        limit = room if room is not None else policy.max_tokens
        limit = min([limit, *[int(policy.clamp[name]) for name in LIMITS if name in policy.clamp]])
        notices.append(Notice("default_parameter", f"max_tokens={limit}"))
    params["max_tokens"] = limit


def _unknown(unknown: Mapping[str, Any], policy: ParamsPolicy, params: dict[str, Any], notices: list[Notice]) -> None:
    if not unknown:
        return
    names = sorted(plain(name) for name in unknown)
    if policy.unknown == "reject":
        raise UnsupportedParameter(
            f"unknown field {names[0]}: this model's policy refuses fields that OpenAI's API does not have",
            param=names[0],
        )
    if policy.unknown == "drop":
        notices.append(Notice("dropped_parameter", " ".join(names[:8])))
    else:
        params.update(unknown)


def _asking_nothing(call: Call) -> set[str]:
    """Fields that say what their absence says."""
    idle = {"n": call.n == 1, "stop": not call.stops, "stream": not call.stream}
    return {name for name, nothing in idle.items() if nothing}


def _meant_for(endpoint: Endpoint, said: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """What of a policy's words the endpoint has a field for, in the endpoint's names."""
    if endpoint == "embeddings":
        return [(name, value) for name, value in said.items() if name in EMBEDDINGS]
    rows = [(name, value) for name, value in said.items() if name not in ELSEWHERE[endpoint]]
    if endpoint == "completions":
        return [("max_tokens" if name in LIMITS else name, value) for name, value in rows]
    return rows


def _aliases(name: str) -> tuple[str, ...]:
    """Every name of the parameter."""
    return LIMITS if name in LIMITS else (name,)


def _like(value: float, bound: float) -> float:
    """A whole bound for a whole number: ``max_tokens: 4096.0`` is refused by servers."""
    return int(bound) if isinstance(value, int) and bound == int(bound) else bound
