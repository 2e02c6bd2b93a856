"""The drop matrix: every value of every feature at every provider, compared with what the provider received.

A value that changes the request is *sent* if the provider received another request than without the value, and another
one than for the feature's other values. All other values must be refused or noticed by name.
Values that mean the same as no value, such as ``tool_choice: auto``, have no rows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.providers.conftest import MODELS
from tests.providers.test_matrix import CALL, JSON_SCHEMA, PIXEL, TOOLS, user
from tests.support.providers.server import Providers
from tests.support.serving import ROOT, Gateway

NAMED = {"type": "function", "function": {"name": "weather"}}
ALLOWED = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [NAMED]}}
CITY = {"city": "Rome"}
SECOND = {"type": "function", "function": {"name": "time", "parameters": {"type": "object", "properties": {}}}}
OTHER_SCHEMA = {"type": "json_schema", "json_schema": {"name": "answer", "schema": {"required": ["answer"]}}}


@dataclass(frozen=True)
class Feature:
    """Values of one feature, and the providers that do not receive them."""

    values: Mapping[str, Mapping[str, Any]]
    """Name of the value → fields of the request."""
    over: Mapping[str, Any] = field(default_factory=dict)
    """Fields of all requests of the feature."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Provider → names of the values that are refused; ``*``: all."""
    noticed: Mapping[str, str] = field(default_factory=dict)
    """Provider → names of the values that a notice names; ``*``: all."""

    def expected(self, dialect: str) -> dict[str, str]:
        """What comes of each value at a provider."""
        words = dict.fromkeys(self.values, "sent")
        for word, providers in (("refused", self.refused), ("noticed", self.noticed)):
            names = providers.get(dialect, "").split()
            words |= dict.fromkeys([*self.values] if names == ["*"] else names, word)
        return words


def each(name: str, *values: Any) -> dict[str, dict[str, Any]]:
    """The values of one field, under their own names; an object has the name of its type."""
    return {str(value["type"] if isinstance(value, dict) else value).lower(): {name: value} for value in values}


def alone(**fields: Any) -> dict[str, dict[str, Any]]:
    """One value of each field, under the name of the field."""
    return {name: {name: value} for name, value in fields.items()}


def tools(**function: Any) -> list[dict[str, Any]]:
    weather: Any = TOOLS[0]["function"]
    return [{"type": "function", "function": {**weather, **function}}]


def said(role: str, **fields: Any) -> dict[str, Any]:
    """A conversation with one message that has further fields."""
    rows = {"system": "be brief", "user": "hi", "assistant": "hello"}
    messages = [{"role": name, "content": text, **(fields if name == role else {})} for name, text in rows.items()]
    return {"messages": [*messages, *user("chat")]}


def seen(**detail: str) -> dict[str, Any]:
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}", **detail}}
    return {"messages": [{"role": "user", "content": [{"type": "text", "text": "chat"}, image]}]}


FEATURES: Mapping[str, Feature] = {
    "tool_choice": Feature(
        each("tool_choice", "none", "required", NAMED, ALLOWED), {"tools": TOOLS},
        refused={**dict.fromkeys(MODELS, "allowed_tools"), "ollama": "*"},
    ),
    "parallel_tool_calls": Feature(
        each("parallel_tool_calls", False), {"tools": TOOLS}, refused={"gemini": "*", "ollama": "*"},
    ),
    "parallel_tool_calls with two tools": Feature(
        each("parallel_tool_calls", False), {"tools": [*TOOLS, SECOND]}, refused={"gemini": "*", "ollama": "*"},
    ),
    "tools": Feature(
        {"second": {"tools": [*TOOLS, SECOND]}, "strict": {"tools": tools(strict=True)},
         "history": {"messages": [*user("chat"), {"role": "assistant", "content": "", "tool_calls": [CALL]},
                                  {"role": "tool", "tool_call_id": "call_0", "content": "sunny"}]}},
        {"tools": TOOLS}, noticed={"vllm": "strict", "anthropic": "strict", "gemini": "strict"},
    ),
    "old form of tools": Feature(
        alone(functions=[TOOLS[0]["function"]]), refused={"anthropic": "*", "ollama": "*"},
    ),
    "response_format": Feature(  # strict is no value: a provider that gets the schema enforces it
        {**each("response_format", {"type": "json_object"}, JSON_SCHEMA),
         "other_schema": {"response_format": OTHER_SCHEMA}},
        {"messages": user("json")}, refused={"anthropic": "json_object"},
    ),
    "temperature": Feature(each("temperature", 0, 0.5)),
    "top_p": Feature(each("top_p", 0.5)),
    "seed": Feature(each("seed", 7, 0), refused={"anthropic": "*"}),
    "penalties": Feature(
        alone(presence_penalty=0.5, frequency_penalty=-0.5), refused={"anthropic": "*", "ollama": "*"},
    ),
    "limits": Feature(alone(max_tokens=5, max_completion_tokens=6)),
    "stop": Feature(each("stop", ["a"], ["a", "b", "c", "d"], "e")),
    "log probabilities": Feature(
        {"logprobs": {"logprobs": True}, "top_logprobs": {"logprobs": True, "top_logprobs": 3}},
        refused={"anthropic": "*", "gemini": "top_logprobs", "ollama": "*"},
    ),
    "bias": Feature(alone(logit_bias={"5": -100}), refused=dict.fromkeys(("anthropic", "gemini", "ollama"), "*")),
    "reasoning_effort": Feature(
        each("reasoning_effort", "none", "minimal", "low", "medium", "high", "xhigh"),
        refused={"azure": "*", "anthropic": "*", "gemini": "xhigh", "ollama": "minimal xhigh"},
        noticed={"ollama": "low medium high"},  # all are sent as think: true
    ),
    "name of a message": Feature(
        {role: said(role, name="ann") for role in ("system", "user", "assistant")}, said(""),
        noticed=dict.fromkeys(("anthropic", "gemini", "ollama"), "*"),
    ),
    "fields of an answer in the history": Feature(
        {**{name: said("assistant", **{name: f"In {name}."}) for name in ("reasoning_content", "reasoning", "refusal")},
         "audio": said("assistant", audio={"id": "a"})},
        said(""),
        noticed={"anthropic": "*", "gemini": "reasoning refusal audio", "ollama": "refusal audio"},
    ),
    "detail of an image": Feature({"low": seen(detail="low"), "high": seen(detail="high")}, seen(),
                                  noticed={"anthropic": "*", "ollama": "*"}),
    "caller": Feature(alone(user="ann"), refused={"gemini": "*", "ollama": "*"}),
    "hints": Feature(
        alone(safety_identifier="ann", prompt_cache_key="ann", prompt_cache_retention="24h",
              prompt_cache_options={"mode": "implicit"}, metadata={"a": "b"}, client_metadata={"a": "b"}),
        noticed={"openai": "prompt_cache_retention metadata client_metadata",
                 "azure": "safety_identifier prompt_cache_retention prompt_cache_options metadata client_metadata",
                 "vllm": "prompt_cache_retention metadata client_metadata",
                 "anthropic": "*", "gemini": "*", "ollama": "*"},
    ),
    "store": Feature(each("store", True), refused=dict.fromkeys(("anthropic", "gemini", "ollama"), "*")),
    "service_tier": Feature(
        each("service_tier", "flex", "priority"), refused=dict.fromkeys(("azure", "anthropic", "ollama"), "*"),
    ),
    "verbosity": Feature(
        each("verbosity", "low", "high"), refused=dict.fromkeys(("azure", "anthropic", "gemini", "ollama"), "*"),
    ),
    "output": Feature(
        alone(modalities=["text", "audio"], audio={"voice": "alloy", "format": "pcm16"},
              prediction={"type": "content", "content": "hi"}),
        refused={"anthropic": "*", "gemini": "audio prediction", "ollama": "*"},
    ),
    "web_search_options": Feature(
        {"empty": {"web_search_options": {}},
         "search_context_size": {"web_search_options": {"search_context_size": "high"}},
         "user_location": {"web_search_options": {"user_location": {"type": "approximate", "approximate": CITY}}}},
        refused={"ollama": "*"}, noticed={"gemini": "search_context_size user_location"},
    ),
}  # fmt: skip


def table() -> list[str]:
    """The rows of the table in ``docs/configuration.md``: the values that a provider does not receive."""
    rows = []
    for name, feature in FEATURES.items():
        groups: dict[tuple[str, ...], list[str]] = {}
        for value in feature.values:
            words = tuple([feature.expected(dialect)[value] for dialect in MODELS])
            groups.setdefault(words, []).append(f"`{value}`")
        rows += [
            f"| {name}: {', '.join(values)} | {' | '.join(words)} |"
            for words, values in groups.items()
            if {*words} != {"sent"}
        ]
    return rows


@dataclass(frozen=True)
class Outcome:
    """What came of one request."""

    sent: tuple[str, Any] | None
    """Path and body that the provider received; None: the gateway refused the request by the name of a field."""
    noticed: bool

    def word(self, base: Outcome, others: Sequence[Outcome]) -> str:
        """``base``: without the value. ``others``: with the feature's other values."""
        if self.sent is None:
            return "refused"
        if self.noticed:
            return "noticed" if self.sent in [one.sent for one in (base, *others)] else "noticed, but sent"
        return "silent" if self.sent in [one.sent for one in (base, *others) if not one.noticed] else "sent"


def ask(
    served: Gateway, providers: Providers, dialect: str, over: Mapping[str, Any], fields: Mapping[str, Any]
) -> Outcome:
    before = len(providers.received)
    reply = served.http.post(
        "/v1/chat/completions", json={"model": dialect, "messages": user("chat"), **over, **fields}
    )
    sent = [(one.path, one.body) for one in providers.received[before:] if one.path != "api/show"]
    if reply.status_code == 400:
        error = reply.json()["error"]
        assert (error["code"], error["param"] in fields, sent) == ("unsupported_parameter", True, []), error
        return Outcome(None, False)
    assert (reply.status_code, len(sent)) == (200, 1), reply.text
    rules = re.findall(r"(\w+):", reply.headers.get("x-gateway-notice", ""))
    return Outcome(sent[0], not {"ignored_field", "omitted_parameter"}.isdisjoint(rules))


@pytest.mark.parametrize("dialect", MODELS)
@pytest.mark.parametrize("name", FEATURES)
def test_a_value_is_sent_or_refused_or_noticed(served: Gateway, providers: Providers, name: str, dialect: str) -> None:
    feature = FEATURES[name]
    without = ask(served, providers, dialect, feature.over, {})
    outcomes = {
        value: ask(served, providers, dialect, feature.over, fields) for value, fields in feature.values.items()
    }
    words = {
        value: outcome.word(without, [other for name, other in outcomes.items() if name != value])
        for value, outcome in outcomes.items()
    }
    assert words == feature.expected(dialect)


def test_the_page_has_the_values_that_a_provider_does_not_receive() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8").splitlines()
    assert [line for line in page if line.endswith(("| sent |", "| refused |", "| noticed |"))] == table()


def test_a_notice_names_each_field_that_the_provider_does_not_receive(served: Gateway) -> None:
    body = {"model": "anthropic", **seen(detail="low"), "tools": tools(strict=True)}
    body["messages"][:0] = said("assistant", name="ann", reasoning="I thought.")["messages"]
    notice = served.http.post("/v1/chat/completions", json=body).headers["x-gateway-notice"]
    assert notice.split("; ") == [
        "ignored_field: messages[2].name",
        "ignored_field: messages[2].reasoning",
        "ignored_field: messages[4].content[1].image_url.detail",
        "ignored_field: tools[0].function.strict",
    ]


def test_a_choice_of_tools_without_tools_is_not_refused(served: Gateway) -> None:
    for dialect, fields in (("ollama", {"tool_choice": "none"}), ("gemini", {"parallel_tool_calls": False})):
        assert served.chat(dialect, "chat", **fields).status_code == 200
