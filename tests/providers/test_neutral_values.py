"""Values that cannot change an answer, as clients send them by default, at every provider through LiteLLM."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.providers.conftest import MODELS
from tests.providers.test_matrix import TOOLS
from tests.support.providers.server import Providers
from tests.support.serving import Gateway

NEUTRAL: dict[str, Any] = {
    "frequency_penalty": 0,
    "logit_bias": {},
    "logprobs": False,
    "modalities": ["text"],
    "parallel_tool_calls": True,
    "presence_penalty": 0,
    "response_format": {"type": "text"},
    "service_tier": "auto",
    "store": False,
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": 0,
    "user": "",
}
OPENAI = ("openai", "azure", "vllm")
"""The providers with OpenAI's fields, which get them all."""
LEFT_OUT: Mapping[str, set[str]] = {
    "azure": {"service_tier"},
    "anthropic": {
        "frequency_penalty",
        "logit_bias",
        "logprobs",
        "modalities",
        "presence_penalty",
        "service_tier",
        "store",
        "top_logprobs",
    },
    "gemini": {"logit_bias", "store", "top_logprobs", "user"},
    "ollama": {
        "frequency_penalty",
        "logit_bias",
        "logprobs",
        "modalities",
        "parallel_tool_calls",
        "presence_penalty",
        "service_tier",
        "store",
        "top_logprobs",
        "user",
    },
}
"""Provider → the fields that it does not have."""


def notices(headers: Mapping[str, str]) -> set[str]:
    return set(headers.get("x-gateway-notice", "").split("; ")) - {""}


@pytest.mark.parametrize("name", NEUTRAL)
@pytest.mark.parametrize("dialect", MODELS)
def test_a_neutral_value_is_sent_or_left_out_with_a_notice(
    served: Gateway, providers: Providers, dialect: str, name: str
) -> None:
    with_tools: dict[str, Any] = (
        {"tools": TOOLS} if name == "tool_choice" else {}
    )  # without tools, LiteLLM leaves the choice out
    reply = served.chat(dialect, **with_tools, **{name: NEUTRAL[name]})
    assert reply.status_code == 200, reply.text
    left_out = name in LEFT_OUT.get(dialect, ())
    assert notices(reply.headers) == ({f"omitted_parameter: {name}"} if left_out else set())
    if dialect in OPENAI and not left_out:
        assert providers.received[-1].body[name] == NEUTRAL[name]


@pytest.mark.parametrize("dialect", MODELS)
def test_the_first_message_of_a_chat_page_reaches_every_provider(served: Gateway, dialect: str) -> None:
    """LibreChat's and Open WebUI's usual body."""
    fields: dict[str, Any] = {
        "temperature": 1,
        "top_p": 1,
        "presence_penalty": 0,
        "frequency_penalty": 0,
        "user": "",
        "stream": True,
    }
    reply = served.chat(dialect, **fields, stream_options={"include_usage": True})
    assert (reply.status_code, reply.text.endswith("data: [DONE]\n\n")) == (200, True)


@pytest.mark.parametrize("dialect", MODELS)
def test_usage_in_every_chunk_may_be_requested_and_comes_once(served: Gateway, dialect: str) -> None:
    """GuideLLM always requests it."""
    options = {"include_usage": True, "continuous_usage_stats": True}
    reply = served.chat(dialect, stream=True, stream_options=options)
    assert (reply.status_code, reply.text.count('"usage":{')) == (200, 1)
    assert notices(reply.headers) == {"omitted_parameter: stream_options.continuous_usage_stats"}


@pytest.mark.parametrize(("name", "value"), [("presence_penalty", 0.5), ("logprobs", True), ("store", True)])
def test_a_value_that_asks_for_something_is_refused_by_name(served: Gateway, name: str, value: Any) -> None:
    reply = served.chat("anthropic", **{name: value})
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, name)


def test_sampling_defaults_of_openai_are_sent(served: Gateway, providers: Providers) -> None:
    """Providers have other defaults, so these values are not neutral."""
    assert served.chat("ollama", temperature=1, top_p=1).status_code == 200
    options = providers.received[-1].body["options"]
    assert (options["temperature"], options["top_p"]) == (1, 1)
