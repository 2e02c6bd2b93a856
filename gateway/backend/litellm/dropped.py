"""What LiteLLM leaves out of a request without an error, for each provider.

Most of it is found by asking LiteLLM; the rest is listed here, under LiteLLM's names of the providers.
``tests/providers/test_drops.py`` compares both with the requests that providers receive.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Set
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from gateway.core.errors import UnsupportedParameter
from gateway.core.exchange import Exchange

LOG = logging.getLogger("gateway.litellm")

_NAMED = {"type": "function", "function": {"name": "probe"}}
_TOOLS = [{"type": "function", "function": {"name": "probe", "parameters": {"type": "object", "properties": {}}}}]


@dataclass(frozen=True, slots=True)
class Probe:
    """Values of one parameter, for each of which LiteLLM is asked what it sends."""

    values: tuple[Any, ...]
    beside: Mapping[str, Any]
    """Parameters without which the values have no effect."""
    off: Any = None
    """The value that switches the parameter's effect off."""


PARAMETER_PROBES: Mapping[str, Probe] = {
    "response_format": Probe(
        (
            {"type": "json_object"},
            {"type": "json_schema", "json_schema": {"name": "answer", "schema": {"type": "object", "properties": {}}}},
        ),
        {},
        off={"type": "text"},
    ),
    "tool_choice": Probe(("none", "required", _NAMED), {"tools": _TOOLS}),
    "parallel_tool_calls": Probe((False,), {"tools": _TOOLS}),
    "reasoning_effort": Probe(("minimal", "low", "medium", "high", "xhigh"), {}, off="none"),
}

Value = tuple[str, str]
"""A parameter's name, and the form of its value (``form_of``)."""

NEVER_SENT: Set[Value] = {("tool_choice", "allowed_tools"), ("tool_choice", "custom")}
"""Values that LiteLLM sends to no provider."""
DROPPED_HINTS: Set[str] = frozenset({"prompt_cache_retention"})
"""Hints that LiteLLM lists as supported, and sends to no provider."""
DROPPED_LATER: Mapping[str, Set[Value]] = {"gemini": {("parallel_tool_calls", "false")}}
"""Values that LiteLLM drops later than the probes can see."""
DISTORTED: Mapping[str, Set[str]] = {"ollama_chat": {"frequency_penalty", "functions"}}
"""Parameters that LiteLLM sends with another meaning: a penalty as ``repeat_penalty``, which is a factor, and functions
as tools, which have another form."""

_MESSAGE = ("name", "refusal", "audio")
IGNORED_FIELDS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "anthropic": {
        "message": (*_MESSAGE, "reasoning", "reasoning_content"),
        "image": ("detail",),
        "tool": ("strict",),
    },
    "gemini": {
        "message": (*_MESSAGE, "reasoning"),
        "tool": ("strict",),
        "search": ("search_context_size", "user_location"),
    },
    "hosted_vllm": {"tool": ("strict",)},
    "ollama_chat": {"message": _MESSAGE, "image": ("detail",)},
}
"""Provider → kind of object in a request → its fields that LiteLLM leaves out."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """What LiteLLM leaves out for one provider, although it lists the parameters as supported."""

    values: Set[Value]
    """Values that change the answer. The gateway refuses them."""
    merged: Set[Value]
    """Values that are sent like another value, such as each effort as ``think: true``."""
    fields: Mapping[str, tuple[str, ...]]
    """See ``IGNORED_FIELDS``."""

    def refuse(self, params: Mapping[str, Any]) -> None:
        """Raise ``UnsupportedParameter`` for a value that would be left out."""
        for name in sorted(PARAMETER_PROBES.keys() & params.keys()):
            form = form_of(params[name])
            if (name, form) in self.values and PARAMETER_PROBES[name].beside.keys() <= params.keys():
                message = f"the gateway does not send {name}={form} to this model's provider"
                raise UnsupportedParameter(f"{message}; leave it out or send another value", param=name)

    def notices(self, exchange: Exchange) -> tuple[str, ...]:
        """Return a notice for each value and field that LiteLLM drops or changes for the provider."""
        params = exchange.params
        merged = [(name, form_of(params[name])) for name in sorted({name for name, _ in self.merged} & params.keys())]
        paths = [f"{name}={form}" for name, form in merged if (name, form) in self.merged]
        for kind, place, value in _objects(exchange) if self.fields else ():
            fields = self.fields.get(kind, ())
            paths += [f"{place}.{name}" for name in fields if value.get(name) not in (None, "", False, "auto")]
        return tuple([f"ignored_field: {path}" for path in paths])


def dropped_for(litellm: Any, model: str, provider: str, params: Set[str]) -> Dropped:
    """Return what LiteLLM leaves out for a provider. ``params``: the parameters that LiteLLM translates for it."""

    def request(parameters: Mapping[str, Any]) -> Any:
        try:
            return litellm.get_optional_params(model=model, custom_llm_provider=provider, **deepcopy(dict(parameters)))
        except Exception as error:  # a call with these parameters fails, too, so that nothing is left out
            LOG.debug("LiteLLM does not translate %s for %s: %s", sorted(parameters), provider, error)
            return None

    values, merged = {*NEVER_SENT, *DROPPED_LATER.get(provider, ())}, set()
    for name, probe in PARAMETER_PROBES.items():
        if name not in params:
            continue
        without = [request(probe.beside), request({**probe.beside, name: probe.off})]
        sent = [(form_of(value), request({**probe.beside, name: value})) for value in probe.values]
        values |= {(name, form) for form, body in sent if body is not None and body in without}
        bodies = [body for _, body in sent]
        merged |= {(name, form) for form, body in sent if body is not None and bodies.count(body) > 1}
    return Dropped(values, merged - values, IGNORED_FIELDS.get(provider, {}))


def form_of(value: object) -> str:
    """Return a value in words: the type of an object, else the value itself."""
    return str(value.get("type") if isinstance(value, Mapping) else value).lower()


def _objects(exchange: Exchange) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Yield the objects of a request that ``IGNORED_FIELDS`` names: kind, place and object."""
    for number, message in enumerate(exchange.messages):
        if message.get("role") != "tool":
            yield "message", f"messages[{number}]", message
        content = message.get("content")
        for i, part in enumerate(content if isinstance(content, list) else ()):
            if isinstance(image := part.get("image_url"), Mapping):
                yield "image", f"messages[{number}].content[{i}].image_url", image
    for i, tool in enumerate(exchange.params.get("tools") or ()):
        if isinstance(function := tool.get("function"), Mapping):
            yield "tool", f"tools[{i}].function", function
    if isinstance(options := exchange.params.get("web_search_options"), Mapping):
        yield "search", "web_search_options", options
