"""Applies a policy to the parameters of a client's request, and renames them for the target's endpoint.

The steps: pass or drop unknown fields, fill in defaults, apply upper limits, set forced values, remove parameters that
the targets refuse. Every change gives a notice. A chat parameter that a text target cannot receive is an error.

Fields that no client may send are refused in ``wire/request_fields.py``. The control fields of the engines are refused
here, if the policy does not allow them. ``backend/openai/request/control_fields.py`` lists the control fields.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import replace
from heapq import nsmallest
from typing import Any, Literal

from gateway.backend.openai.request.control_fields import STEERING
from gateway.backend.openai.request.neutral_values import is_neutral
from gateway.config.snapshot import ParamsPolicy
from gateway.core.call import Call
from gateway.core.errors import ForbiddenParameter, InvalidValue, UnsupportedParameter
from gateway.core.exchange import EndpointName
from gateway.wire.request_fields import HINTS, OPENAI_DEFAULTS, ChatRequest, CompletionRequest, EmbeddingRequest
from metatemplate.values.dialogue import EMPTY_MAPPING
from metatemplate.values.frozen import dataclass
from metatemplate.values.prompt import Notice
from metatemplate.values.words import closest, plain

LIMITS = ("max_completion_tokens", "max_tokens")
"""The two names of the token limit. The newer name is first."""

CHAT_ONLY = (
    "tools",
    "functions",
    "tool_choice",
    "function_call",
    "parallel_tool_calls",
    "response_format",
    "modalities",
    "service_tier",
    "store",
    "audio",
    "prediction",
    "reasoning_effort",
    "verbosity",
    "web_search_options",
)
"""Fields that the completions endpoint does not have. A neutral value is left out; any other value is refused.
Hints are not listed: the load balancer reads them, and the backend leaves them out."""
CHAT_FIELDS = frozenset({*CHAT_ONLY, "logprobs", "top_logprobs"})
"""Fields that the completions endpoint does not have, or that have other values there."""

WITHOUT_TOOLS = {"tool_choice": "none", "function_call": "none", "parallel_tool_calls": False}
"""Field → a value that is also neutral in a request without tools. ``CHAT_ONLY`` refuses the tools first."""

OLD_NAMES = {"functions": "tools", "function_call": "tool_choice"}
"""Deprecated field of OpenAI's API → the field that replaced it."""

IN_PROMPT: Mapping[str, Any] = {"tools": None, "tool_choice": "auto", "parallel_tool_calls": True}
"""Field → its default value, for fields that a template with tools writes into the prompt or applies to the answer."""

NOT_AT: Mapping[EndpointName, frozenset[str]] = {
    # Parameters of a policy that do not exist at the endpoint. Fields that OpenAI does not have are not listed,
    # because engines accept them at both endpoints.
    "chat": frozenset({"best_of", "dimensions", "echo", "encoding_format", "suffix"}),
    "completions": frozenset(
        {"dimensions", "encoding_format", "top_logprobs", *CHAT_ONLY, *HINTS} - {"response_format"}
    ),
}
KNOWN: Mapping[EndpointName, Set[str]] = {
    "chat": ChatRequest.model_fields.keys(),
    "completions": CompletionRequest.model_fields.keys(),
    "embeddings": EmbeddingRequest.model_fields.keys(),
}
"""The known fields of the requests to each endpoint."""
EMBEDDINGS = frozenset({"dimensions", "encoding_format", "user"})
"""The only parameters of a policy that apply to embeddings."""

Form = Literal["text", "messages"]
"""The form of input that the targets of a model accept."""

Row = tuple[str, Any, tuple[str, ...], Notice]
"""A default or forced value: (name, value, all names of the same parameter, notice of the change)."""


@dataclass(frozen=True, slots=True)
class EffectiveParameters:
    """The parameters that are sent to the engine, and a notice for each change."""

    params: Mapping[str, Any]
    notices: tuple[Notice, ...] = ()
    top_logprobs: int | None = None
    """The number of alternatives per token that the client requested. None to keep all alternatives of the target."""
    default_limit: bool = False
    """True if ``max_tokens`` is the policy's default. Then the tokens left in the context may replace this value."""


class ParameterPolicy:
    """The rules of a policy for the parameters of one endpoint, one form of input and one engine."""

    def __init__(
        self,
        policy: ParamsPolicy,
        endpoint: EndpointName,
        form: Form = "text",
        engine_defaults: Mapping[str, Any] | None = EMPTY_MAPPING,
        *,
        tools: bool = False,
        omit: tuple[str, ...] = (),
    ) -> None:
        """Prepare the rules. ``engine_defaults``: the engine's values that replace OpenAI's defaults, if the policy has
        ``explicit``. A field with the value None is not sent. If the whole argument is None, no default is sent.

        ``tools``: whether the template writes the tools of a request into the prompt. ``omit``: parameters that the
        targets refuse.
        """
        self._forbidden = tuple([alias for name in policy.forbid for alias in aliases(name)])
        self._unknown = policy.unknown
        self._known = KNOWN[endpoint]
        self._allowed = frozenset(policy.allow)
        self._defaults = _rows("default_parameter", endpoint, policy.default)
        self._bounds = tuple([(aliases(name), bound) for name, bound in _applicable(endpoint, policy.clamp)])
        self._forced = _rows("forced_parameter", endpoint, policy.force)
        self._changes = bool(self._defaults or self._bounds or self._forced)
        self._to_text = endpoint == "chat" and form == "text"
        self._tools_in_prompt = tools and self._to_text
        limits = [(policy.clamp[name], name) for name in LIMITS if name in policy.clamp]
        self._message_limits = limits if endpoint == "chat" and form == "messages" else []
        self._max_limits = [int(bound) for bound, _ in limits]
        self.limit = min([policy.max_tokens, *self._max_limits])
        """The default ``max_tokens``, for a request without a limit. The tokens left in the context may replace it."""
        self._limit_notice = Notice("default_parameter", f"max_tokens={self.limit}")
        self._explicit: dict[str, Any] = {}
        if policy.explicit and engine_defaults is not None and endpoint != "embeddings":
            explicit = {**OPENAI_DEFAULTS, **engine_defaults}
            self._explicit = {name: value for name, value in explicit.items() if value is not None and name not in omit}
        self._omitted = frozenset(omit)

    def check(self, call: Call) -> None:
        """Raise ``ForbiddenParameter`` or ``UnsupportedParameter`` if the policy refuses a field of the request."""
        if self._forbidden:
            defaults = {"n": call.n == 1, "stop": not call.stops, "stream": not call.stream}
            for name in self._forbidden:
                if name in call.given and not defaults.get(name):  # a default value has no effect
                    raise ForbiddenParameter(f"this model's policy does not allow {name}; leave it out", param=name)
        if not call.unknown or self._unknown == "drop":
            return
        names: Set[str] = call.unknown.keys() - self._allowed
        if steering := names & STEERING:
            name = min(steering)
            raise ForbiddenParameter(
                f"{name} controls the engine, not the completion; leave it out, or ask the operator to allow it "
                f"(params.allow: [{name}] in the model's policy)",
                param=name,
            )
        if names and self._unknown == "reject":
            name = plain(min(names))
            near = closest(name, self._known)
            advice = f' (did you mean "{near}"?)' if near is not None else "; leave it out"
            raise UnsupportedParameter(
                f"unknown field {name}: this model's policy refuses fields that are not in OpenAI's API{advice}",
                param=name,
            )

    def effective(self, call: Call) -> EffectiveParameters:
        """Return the parameters to send for a call. The caller must call ``check`` first."""
        params = dict(call.params)
        notices: list[Notice] = []
        if call.unknown:
            self._add_unknown(call.unknown, params, notices)
        if self._changes:
            self._change(params, notices)
        if self._tools_in_prompt:
            _remove_tools(call, params)
        top, default_limit = None, False
        if self._to_text:
            if not CHAT_FIELDS.isdisjoint(params):
                top = _to_completions(params, notices)
            default_limit = self._set_limit(params, notices)
        elif self._message_limits:
            self._set_message_limit(params, notices)
        if self._explicit:
            params = {**self._explicit, **params}
        if self._omitted:
            notices = self._omit(params, notices)
        return EffectiveParameters(params, tuple(notices), top, default_limit and "max_tokens" in params)

    def limited(self, effective: EffectiveParameters, room: int) -> EffectiveParameters:
        """Replace the default ``max_tokens`` by ``room``, the number of tokens left in the context."""
        limit = min([room, *self._max_limits])
        notice = Notice("default_parameter", f"max_tokens={limit}")
        return replace(
            effective,
            params={**effective.params, "max_tokens": limit},
            notices=tuple([notice if one is self._limit_notice else one for one in effective.notices]),
        )

    def _change(self, params: dict[str, Any], notices: list[Notice]) -> None:
        """Fill in defaults, apply upper limits and set forced values, in place."""
        for name, value, aliases, notice in self._defaults:
            if params.keys().isdisjoint(aliases):
                params[name] = value
                notices.append(notice)
        for aliases, bound in self._bounds:
            for alias in aliases:
                value = params.get(alias)
                if isinstance(value, int | float) and not isinstance(value, bool) and value > bound:
                    # An integer must stay an integer: servers refuse ``max_tokens: 4096.0``.
                    params[alias] = int(bound) if isinstance(value, int) and bound == int(bound) else bound
                    notices.append(Notice("clamped_parameter", f"{alias}={params[alias]}"))
        for name, value, aliases, notice in self._forced:
            given = {alias: params.pop(alias) for alias in aliases if alias in params}
            params[name] = value
            if given != {name: value}:
                notices.append(notice)

    def _add_unknown(self, unknown: Mapping[str, Any], params: dict[str, Any], notices: list[Notice]) -> None:
        if self._unknown != "drop":
            params.update(unknown)
            return
        params.update({name: value for name, value in unknown.items() if name in self._allowed})
        if dropped := unknown.keys() - self._allowed:
            notices.append(Notice("dropped_parameter", " ".join(map(plain, nsmallest(8, dropped)))))

    def _set_message_limit(self, params: dict[str, Any], notices: list[Notice]) -> None:
        """Set the policy's maximum as the token limit if the client sends no limit.

        Without a limit in the request, the answer could be longer than the policy's maximum.
        """
        if params.keys().isdisjoint(LIMITS):
            bound, name = min(self._message_limits)
            name = next((alias for alias in (name, *LIMITS) if alias not in self._omitted), name)
            params[name] = limit = int(bound)
            notices.append(Notice("clamped_parameter", f"{name}={limit}"))

    def _omit(self, params: dict[str, Any], notices: list[Notice]) -> list[Notice]:
        """Remove parameters that the targets refuse.

        Returns the notices about the parameters that are still sent, and a notice for each parameter that is removed.
        """
        kept = [notice for notice in notices if notice.detail.partition("=")[0] not in self._omitted]
        for name in sorted(self._omitted.intersection(params)):
            value = params.pop(name)
            kept.append(Notice("omitted_parameter", name if isinstance(value, list | Mapping) else f"{name}={value}"))
        return kept

    def _set_limit(self, params: dict[str, Any], notices: list[Notice]) -> bool:
        """Set ``max_tokens``, the only token limit of completions. Returns True if the client sent no limit."""
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
        # Without a limit a completions engine stops after 16 tokens, but a chat request has no default limit.
        params["max_tokens"] = self.limit if limit is None else limit
        if limit is None:
            notices.append(self._limit_notice)
        return limit is None


def _remove_tools(call: Call, params: dict[str, Any]) -> None:
    """Remove the fields that the prompt already contains.

    Raises ``UnsupportedParameter`` if the policy has changed such a field, because the prompt is already rendered.
    """
    for name, absent in IN_PROMPT.items():
        if name in params and params.pop(name) != call.params.get(name, absent):
            raise UnsupportedParameter(
                f"the policy sets another {name}, but the prompt already contains {name} of the request; "
                f"the operator must remove {name} from the policy",
                param=name,
            )


def _to_completions(params: dict[str, Any], notices: list[Notice]) -> int | None:
    """Change chat parameters to parameters of the completions endpoint, in place. Add a notice for each left out.

    Returns the requested ``top_logprobs``, or None if no log probabilities are requested.
    """
    for name in CHAT_ONLY:
        if name not in params:
            continue
        value = params.pop(name)
        if not is_neutral(name, value) and value != WITHOUT_TOOLS.get(name):
            if name == "response_format":  # see ``calls/preparation/structured_output.py``
                params[name] = value
                continue
            if name in OLD_NAMES:
                raise UnsupportedParameter(
                    f"{name} is the old form of {OLD_NAMES[name]}; send {OLD_NAMES[name]}", param=name
                )
            raise UnsupportedParameter(
                f"{name} cannot be sent to a model that accepts plain text; leave it out or use a chat model",
                param=name,
            )
        notices.append(Notice("omitted_parameter", name))
    logprobs = params.pop("logprobs", None)
    top: int | None = params.pop("top_logprobs", None)
    if top is not None and not logprobs:
        raise InvalidValue("top_logprobs needs logprobs: true", param="top_logprobs")
    if not logprobs:
        return None
    # Some engines read 0 as "no log probabilities". So 1 is sent, and the alternative removed from the answer.
    params["logprobs"] = max(top or 0, 1)
    return top or 0


def _rows(rule: str, endpoint: EndpointName, values: Mapping[str, Any]) -> tuple[Row, ...]:
    rows = _applicable(endpoint, values)
    return tuple([(name, value, aliases(name), Notice(rule, f"{name}={value}")) for name, value in rows])


def _applicable(endpoint: EndpointName, values: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return the parameters of a policy that exist at the endpoint, with the endpoint's names."""
    if endpoint == "embeddings":
        return [(name, value) for name, value in values.items() if name in EMBEDDINGS]
    rows = [(name, value) for name, value in values.items() if name not in NOT_AT[endpoint]]
    if endpoint == "completions":
        return [("max_tokens" if name in LIMITS else name, value) for name, value in rows]
    return rows


def aliases(name: str) -> tuple[str, ...]:
    """Return all names of a parameter."""
    return LIMITS if name in LIMITS else (name,)
