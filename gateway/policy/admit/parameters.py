"""Which parameters go out? The client's, the policy's, and nothing in silence.

In order: fields that steer the engine refused, other unknown ones by rule, forbidden ones refused, defaults filled in,
bounds kept, forced values set, and what the model refuses left out. Every change leaves a notice. A text target then
gets them in the names of the completions endpoint; what cannot be said there is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from heapq import nsmallest
from typing import Any, Literal

from gateway.backend.openai.control_fields import STEERING
from gateway.config.snapshot import ParamsPolicy
from gateway.core.call import Call
from gateway.core.dialogue import EMPTY_MAPPING
from gateway.core.errors import ForbiddenParameter, InvalidValue, UnsupportedParameter
from gateway.core.exchange import Endpoint
from gateway.core.frozen import dataclass
from gateway.core.prompt import Notice
from gateway.wire.error_object import plain

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

OLD_NAMES = {"functions": "tools", "function_call": "tool_choice"}
"""Fields that OpenAI's API has under newer names."""

WRITTEN: Mapping[str, Any] = {"tools": None, "tool_choice": "auto", "parallel_tool_calls": True}
"""What a template that declares tools has put into the prompt, or sees to when the answer comes; and what each says
when it is absent."""

ALIKE = frozenset({
    "max_tokens", "temperature", "top_p", "presence_penalty", "frequency_penalty", "logit_bias", "seed", "user",
})  # fmt: skip
"""Parameters that both endpoints call the same, whatever they say."""

ELSEWHERE: Mapping[Endpoint, frozenset[str]] = {
    # What a policy may say that the endpoint has no field for. Fields beyond OpenAI's go to chat and completions,
    # because engines take them at both.
    "chat": frozenset({"best_of", "dimensions", "echo", "encoding_format", "suffix"}),
    "completions": frozenset({"dimensions", "encoding_format", "top_logprobs", *CHAT_ONLY} - {"response_format"}),
}
EMBEDDINGS = frozenset({"dimensions", "encoding_format", "user"})
"""All that a policy can say of embeddings: nothing is sampled there."""


Form = Literal["text", "messages"]
"""What a model's targets take."""

Row = tuple[str, Any, tuple[str, ...], Notice]
"""(name, value, every name of the parameter, what the client hears of it)"""


@dataclass(frozen=True, slots=True)
class Effective:
    """The parameters as they will be sent, and what was changed on the way."""

    params: Mapping[str, Any]
    notices: tuple[Notice, ...] = ()
    top_logprobs: int | None = None
    """How many alternatives the client asked for; None: as many as the target gives."""


class ParameterPolicy:
    """What a policy comes to for one endpoint, one form of target and one engine; made once for a route.

    Everything that follows from the configuration is decided here, so a policy that says nothing costs nothing.
    """

    def __init__(
        self,
        policy: ParamsPolicy,
        endpoint: Endpoint,
        form: Form = "text",
        engine_defaults: Mapping[str, Any] | None = EMPTY_MAPPING,
        *,
        tools: bool = False,
        omit: tuple[str, ...] = (),
    ) -> None:
        """``engine_defaults``: what fields must say at this engine to mean OpenAI's defaults, if the policy wants
        them ``explicit``; a field that is None is left out. None in place of it: the target's provider has defaults
        of its own, which are nobody's to spell out.

        ``tools``: the template puts a request's tools into the prompt. ``omit``: parameters that the model's targets
        refuse, which are left out.
        """
        self._forbidden = tuple([alias for name in policy.forbid for alias in _aliases(name)])
        self._unknown = policy.unknown
        self._allowed = frozenset(policy.allow)
        self._defaults = _rows("default_parameter", endpoint, policy.default)
        self._bounds = tuple([(_aliases(name), bound) for name, bound in _meant_for(endpoint, policy.clamp)])
        self._forced = _rows("forced_parameter", endpoint, policy.force)
        self._changes = bool(self._defaults or self._bounds or self._forced)
        self._to_text = endpoint == "chat" and form == "text"
        self._written = tools and self._to_text
        limits = [(policy.clamp[name], name) for name in LIMITS if name in policy.clamp]
        self._ceiling = limits if endpoint == "chat" and form == "messages" else []
        self._most = [int(bound) for bound, _ in limits]
        self.limit = min([policy.max_tokens, *self._most])
        """Tokens of an answer whose client sets no limit, where the room for it is not known."""
        self._limit_notice = Notice("default_parameter", f"max_tokens={self.limit}")
        self.refuses = bool(self._forbidden) or self._unknown == "reject"
        """Without it ``check`` has nothing to look for."""
        self._told: dict[str, Any] = {}
        if policy.explicit and engine_defaults is not None and endpoint != "embeddings":
            told = {**OPENAI_DEFAULTS, **engine_defaults}
            self._told = {name: value for name, value in told.items() if value is not None and name not in omit}
        self._omitted = frozenset(omit)
        self._leaves_alone = self._to_text and not (self._changes or self._told or self._omitted)

    def check(self, call: Call) -> None:
        """Refuse what the policy refuses: a field it forbids, or one it does not know."""
        if self._forbidden:
            asked = call.given - _asking_nothing(call)
            for name in self._forbidden:
                if name in asked:
                    raise ForbiddenParameter(f"{name} is not allowed by this model's policy; leave it out", param=name)
        if call.unknown and self._unknown != "drop":
            self._check_unknown(call.unknown.keys() - self._allowed)

    def _check_unknown(self, names: Set[str]) -> None:
        if steering := names & STEERING:
            name = min(steering)
            raise ForbiddenParameter(
                f"{name} steers the engine, not the completion; leave it out, or ask the operator to allow it "
                f"(params.allow: [{name}] in the model's policy)",
                param=name,
            )
        if names and self._unknown == "reject":
            name = plain(min(names))
            raise UnsupportedParameter(
                f"unknown field {name}: this model's policy refuses fields that OpenAI's API does not have", param=name
            )

    def ordinary(self, call: Call) -> dict[str, Any] | None:
        """What ``effective`` would send for a checked call where nothing is to be changed or told; None: ask it."""
        params = call.params
        if not self._leaves_alone or call.unknown or "max_tokens" not in params or not params.keys() <= ALIKE:
            return None
        sent = dict(params)
        sent["max_tokens"] = sent.pop("max_tokens")  # the limit comes last
        return sent

    def effective(self, call: Call, room: int | None = None) -> Effective:
        """What goes out for this call. ``room``: tokens left in the context; None when unknown."""
        self.check(call)
        params = dict(call.params)
        notices: list[Notice] = []
        if call.unknown:
            self._take_unknown(call.unknown, params, notices)
        if self._changes:
            self._change(params, notices)
        if self._written:
            _take_written(call, params)
        top = None
        if self._to_text:
            top = _in_words_of_completions(params)
            self._set_limit(params, room, notices)
        elif self._ceiling:
            self._keep_below(params, notices)
        if self._told:
            params = {**self._told, **params}
        if self._omitted:
            notices = self._omit(params, notices)
        return Effective(params, tuple(notices), top)

    def leaves_limit_open(self, call: Call) -> bool:
        """Is the room in the context the limit, if anybody knows it?"""
        if not self._to_text:
            return False
        forced = [value for name, value, _, _ in self._forced if name in LIMITS]
        if forced:
            return forced[-1] is None
        default = [value for name, value, _, _ in self._defaults if name in LIMITS]
        return not _limited(call.params) and (not default or default[0] is None)

    def _change(self, params: dict[str, Any], notices: list[Notice]) -> None:
        """Defaults filled in, bounds kept, forced values set."""
        for name, value, aliases, notice in self._defaults:
            if params.keys().isdisjoint(aliases):
                params[name] = value
                notices.append(notice)
        for aliases, bound in self._bounds:
            for alias in aliases:
                value = params.get(alias)
                if isinstance(value, int | float) and not isinstance(value, bool) and value > bound:
                    params[alias] = _like(value, bound)
                    notices.append(Notice("clamped_parameter", f"{alias}={params[alias]}"))
        for name, value, aliases, notice in self._forced:
            given = {alias: params.pop(alias) for alias in aliases if alias in params}
            params[name] = value
            if given != {name: value}:
                notices.append(notice)

    def _take_unknown(self, unknown: Mapping[str, Any], params: dict[str, Any], notices: list[Notice]) -> None:
        if self._unknown != "drop":
            params.update(unknown)
            return
        params.update({name: value for name, value in unknown.items() if name in self._allowed})
        if dropped := unknown.keys() - self._allowed:
            notices.append(Notice("dropped_parameter", " ".join(map(plain, nsmallest(8, dropped)))))

    def _keep_below(self, params: dict[str, Any], notices: list[Notice]) -> None:
        """A limit for a message target whose client sets none, where the policy bounds it: none would be above it."""
        if not _limited(params):
            bound, name = min(self._ceiling)
            name = next((alias for alias in (name, *LIMITS) if alias not in self._omitted), name)
            params[name] = limit = int(bound)
            notices.append(Notice("clamped_parameter", f"{name}={limit}"))

    def _omit(self, params: dict[str, Any], notices: list[Notice]) -> list[Notice]:
        """Leave out what the targets refuse; the notices of what is sent, then those of what is not."""
        kept = [notice for notice in notices if notice.detail.partition("=")[0] not in self._omitted]
        for name in sorted(self._omitted & params.keys()):
            value = params.pop(name)
            told = name if isinstance(value, list | Mapping) else f"{name}={value}"
            kept.append(Notice("omitted_parameter", told))
        return kept

    def _set_limit(self, params: dict[str, Any], room: int | None, notices: list[Notice]) -> None:
        """An explicit limit under its older name, which is the only one the completions endpoint has (design 5.1)."""
        limit = params.pop("max_tokens", None)
        newer = params.pop("max_completion_tokens", None)
        if newer is not None:
            if limit is None:
                notices.append(Notice("renamed_parameter", "max_completion_tokens sent as max_tokens"))
            elif newer != limit:
                raise InvalidValue(
                    "max_completion_tokens and max_tokens differ; send one of them", param="max_completion_tokens"
                )
            limit = newer
        if limit is None:
            # Without a limit a completions engine stops after 16 tokens; a chat request means "until the end".
            if room is None:
                limit, notice = self.limit, self._limit_notice
            else:
                limit = min([room, *self._most])
                notice = Notice("default_parameter", f"max_tokens={limit}")
            notices.append(notice)
        params["max_tokens"] = limit


def _take_written(call: Call, params: dict[str, Any]) -> None:
    """Take out what the prompt says. A policy that wants it otherwise comes too late, and is not passed over."""
    for name, absent in WRITTEN.items():
        if name in params and params.pop(name) != call.params.get(name, absent):
            raise UnsupportedParameter(
                f"this model's policy sets {name}, but its template has written the client's into the prompt; "
                "take it out of the policy",
                param=name,
            )


def _in_words_of_completions(params: dict[str, Any]) -> int | None:
    """Chat parameters in the names of the completions endpoint; how many alternatives the client asked for."""
    if not CHAT_ONLY.keys().isdisjoint(params):
        for name, asks_nothing in CHAT_ONLY.items():
            if name in params and not asks_nothing(params.pop(name)):
                if name in OLD_NAMES:
                    raise UnsupportedParameter(
                        f"{name} is the old form of {OLD_NAMES[name]}; send {OLD_NAMES[name]}", param=name
                    )
                raise UnsupportedParameter(
                    f"{name} cannot be expressed to a model that takes plain text; leave it out or use a chat model",
                    param=name,
                )
    wanted = params.pop("logprobs", None)
    top: int | None = params.pop("top_logprobs", None)
    if top is not None and not wanted:
        raise InvalidValue("top_logprobs needs logprobs: true", param="top_logprobs")
    if not wanted:
        return None
    # Some engines read 0 as "none"; ask for one and cut the surplus from the answer.
    params["logprobs"] = max(top or 0, 1)
    return top or 0


def _rows(rule: str, endpoint: Endpoint, said: Mapping[str, Any]) -> tuple[Row, ...]:
    return tuple([
        (name, value, _aliases(name), Notice(rule, f"{name}={value}")) for name, value in _meant_for(endpoint, said)
    ])  # fmt: skip


def _limited(params: Mapping[str, Any]) -> bool:
    return "max_tokens" in params or "max_completion_tokens" in params


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
