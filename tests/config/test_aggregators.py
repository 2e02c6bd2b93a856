"""Which targets are pinned to one provider."""

from __future__ import annotations

import re
from typing import Any

import pytest

from gateway.config.schema.aggregators import unpinned
from gateway.config.snapshot import TargetSpec


def problem(model: str, *, speaks: str = "litellm", url: str = "", body: dict[str, Any] | None = None) -> str:
    options = {} if body is None else {"extra_body": body}
    return unpinned(TargetSpec(label="m/0", speaks=speaks, url=url, model=model, options=options))


PINNED: dict[str, dict[str, Any]] = {
    "no aggregator": {"model": "openai/a"},
    "a server at a host of its own": {"model": "huggingface/a/b", "url": "http://127.0.0.1/v1"},
    "one provider": {
        "model": "openrouter/a/b",
        "body": {"provider": {"only": ["x"], "allow_fallbacks": False, "quantizations": ["bf16"]}},
    },
    "one provider of the aggregator's address": {
        "model": "openai/a/b",
        "url": "https://openrouter.ai/api/v1",
        "body": {"provider": {"only": ["x"], "allow_fallbacks": False}},
    },
    "one provider under another field": {
        "model": "vercel_ai_gateway/a/b",
        "body": {"providerOptions": {"gateway": {"only": ["x"]}}},
    },
    "another host with a similar name": {"model": "a/b", "speaks": "chat", "url": "https://notopenrouter.ai/v1"},
    "a provider in the name": {"model": "huggingface/x/a/b"},
}
UNPINNED: dict[str, tuple[dict[str, Any], str]] = {
    "no pin": ({"model": "openrouter/a/b"}, "allow_fallbacks: false"),
    "fallbacks": ({"model": "openrouter/a/b", "body": {"provider": {"only": ["x"]}}}, "allow_fallbacks: false"),
    "two providers": (
        {"model": "openrouter/a/b", "body": {"provider": {"only": ["x", "y"], "allow_fallbacks": False}}},
        r"only: \[PROVIDER\]",
    ),
    "a fallback to another model": (
        {"model": "vercel_ai_gateway/a/b", "body": {"providerOptions": {"gateway": {"only": ["x"], "models": ["c"]}}}},
        r"gateway: {only: \[PROVIDER\]}",
    ),
    "no provider in the name": ({"model": "huggingface/a/b"}, "huggingface/PROVIDER/ORGANIZATION/NAME"),
    "a rule in the place of a provider": ({"model": "huggingface/a/b/c:fastest"}, "huggingface/PROVIDER"),
    "a target of messages": (
        {"model": "a/b", "speaks": "chat", "url": "https://openrouter.ai/api/v1"},
        "speaks: litellm .* model: openrouter/NAME",
    ),
    "a subdomain": ({"model": "a/b", "speaks": "chat", "url": "https://eu.openrouter.ai/v1"}, "openrouter/NAME"),
    "a host with a final dot": (
        {"model": "a", "speaks": "chat", "url": "https://openrouter.ai./v1"},
        "openrouter/NAME",
    ),
    "a model that the aggregator chooses": (
        {"model": "openrouter/openrouter/auto", "body": {"provider": {"only": ["x"], "allow_fallbacks": False}}},
        "auto in openrouter/openrouter/auto; name one model",
    ),
    "a provider that the aggregator chooses": (
        {"model": "huggingface/auto/a/b"},
        "huggingface makes .* one provider",
    ),
    "no way to pin": ({"model": "helicone/a"}, "cannot be pinned"),
}


@pytest.mark.parametrize("target", PINNED.values(), ids=PINNED)
def test_a_target_with_one_provider_has_no_problem(target: dict[str, Any]) -> None:
    assert problem(**target) == ""


@pytest.mark.parametrize(("target", "way"), UNPINNED.values(), ids=UNPINNED)
def test_a_target_with_several_providers_is_told_how_to_pin_it(target: dict[str, Any], way: str) -> None:
    assert re.search(way, problem(**target))
