"""One gateway before all fake providers, for the whole folder: LiteLLM is loaded once."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

import pytest

from tests.support.providers.server import Providers
from tests.support.serving import Gateway, gateway

MODELS = {
    "openai": "openai/tiny",
    "azure": "azure/tiny",
    "vllm": "hosted_vllm/tiny",
    "anthropic": "anthropic/tiny",
    "gemini": "gemini/gemini-2.5-flash",
    "ollama": "ollama_chat/tiny",
}
"""The dialect of each fake, which is also the name of its model here, and the model as LiteLLM names it."""

POLICIES = {
    "once": "delivery: {retry: {attempts: 1}}",
    "impatient": "delivery: {retry: {attempts: 1}, timeout: {total: 1s}}",
}

OTHERS = """\
  reasoning: {{template: chat, policy: eval, omit: [temperature],
    targets: [{{speaks: litellm, model: openai/gpt-5, url: "{url}", key: "env:KEY"}}]}}
  reasoning-refused: {{template: chat, policy: eval,
    targets: [{{speaks: litellm, model: openai/gpt-5, url: "{url}", key: "env:KEY"}}]}}
  default-only: {{template: chat, policy: once,
    targets: [{{speaks: litellm, model: openai/tiny, url: "{url}", key: "env:KEY"}}]}}
  prompted: {{template: lazyllm-qwen, policy: once,
    targets: [{{speaks: litellm, model: openai/tiny, url: "{url}", key: "env:KEY"}}]}}
  lacks-a-package: {{template: chat,
    targets: [{{speaks: litellm, model: vertex_ai/tiny, options: {{vertex_project: p, vertex_location: l}}}}]}}
"""
"""Models that refuse a temperature, by LiteLLM's list and by the provider's own reply, one behind a prompter, and one
whose dialect LiteLLM speaks with a package that it does not require."""

KEY = "sk-up-0123456789"


def config(up: Providers) -> str:
    """Each dialect's model twice: as it is, and ``NAME-impatient`` with a total of one second."""
    rows = ["server: {port: 0}", "models:"]
    for name, model in MODELS.items():
        options = ', options: {api_version: "2024-10-21"}' if name == "azure" else ""
        target = f'{{speaks: litellm, model: {model}, url: "{up.url(name)}", key: "env:KEY"{options}}}'
        for suffix, policy in (("", "once"), ("-impatient", "impatient")):
            rows.append(f"  {name}{suffix}: {{template: chat, policy: {policy}, targets: [{target}]}}")
    return "\n".join(rows) + "\n" + OTHERS.format(url=up.url("openai"))


@pytest.fixture(scope="session")
def providers() -> Iterator[Providers]:
    """The fakes."""
    with Providers() as up:
        yield up


@pytest.fixture(scope="session")
def served(providers: Providers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """The gateway before them."""
    if importlib.util.find_spec("litellm") is None:
        pytest.skip("the litellm extra is not installed")
    files = {f"policies/{name}.yaml": f"description: A test.\n{text}\n" for name, text in POLICIES.items()}
    with gateway(tmp_path_factory.mktemp("providers"), config(providers), {"KEY": KEY}, files=files) as served:
        yield served
