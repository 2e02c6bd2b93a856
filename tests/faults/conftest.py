"""One gateway with a model for each mode of the served upstream, as a text target and as a chat target."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.serving import Gateway, eventually, gateway
from tests.support.upstream.modes import MODES
from tests.support.upstream.server import FaultyUpstream, blackhole_url, refused_url

POLICIES = {
    "patient": """
delivery:
  timeout: {connect: 20s, first_token: 50s, idle: 50s, total: 60s}
  retry: {attempts: 2}
""",
    "no-content": """
delivery:
  timeout: {connect: 1s, first_token: 400ms, idle: 1s, total: 1s}
  retry: {attempts: 2}
""",
    "no-connect": "delivery: {timeout: {connect: 300ms, total: 60s}, retry: {attempts: 2}}",
    "short-idle": "delivery: {timeout: {connect: 20s, first_token: 50s, idle: 400ms, total: 60s}}",
}
SILENT = {
    **dict.fromkeys(("hang-headers", "dribble-headers", "keepalive-only", "empty-deltas"), "no-content"),
    "stall-midstream": "short-idle",
}
"""Mode that ends only at a timeout → its policy, whose other timeouts are long, because the machine may be busy."""

TEMPLATE = r"""
round:
  - {role: HUMAN, begin: "<HUMAN>: ", end: "<eoh>\n"}
  - {role: BOT, begin: "<BOT>: ", end: "<eob>\n", generate: true}
"""


FILES = {**{f"policies/{name}.yaml": text for name, text in POLICIES.items()}, "meta_templates/sft.yaml": TEMPLATE}
"""The policies, and the template ``sft``."""


def model(
    name: str, url: str, speaks: str = "completions", template: str = "sft", extra: str = "", policy: str = "patient"
) -> str:
    target = f'{{speaks: {speaks}, url: "{url}", model: m{extra}}}'
    return f'  "{name}": {{template: {template}, policy: {policy}, targets: [{target}]}}\n'


@pytest.fixture(scope="session")
def served(up: FaultyUpstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """Model ``MODE`` takes a prompt, ``chat/MODE`` takes messages; some modes come with options.

    A silent mode's timeouts are short; ``patient/MODE`` is the same mode with long ones.
    """
    with blackhole_url() as blackhole:
        config = "models:\n"
        for mode in sorted(MODES):
            policy = SILENT.get(mode, "patient")
            config += model(mode, up.url(mode), policy=policy)
            config += model(f"chat/{mode}", up.url(mode), "chat", "chat", policy=policy)
        for mode in SILENT:
            config += model(f"patient/{mode}", up.url(mode))
        config += model("refused", refused_url())
        config += model("blackhole", blackhole, policy="no-connect")
        config += model("nowhere", "http://nosuch.invalid/v1")
        config += model("llamacpp-n", up.url("quirk-n-ignored"), extra=", engine: llamacpp")
        config += model("llamacpp-odd", up.url("odd-index"), extra=", engine: llamacpp")
        config += model("llamacpp-endless", up.url("stop-then-endless"), extra=", engine: llamacpp")
        config += model("vllm-bos", up.url("quirk-bos-echo"), extra=", engine: vllm")
        with gateway(tmp_path_factory.mktemp("faulty"), config, files=FILES) as served:
            yield served


@pytest.fixture(autouse=True)
def nothing_is_left(served: Gateway, up: FaultyUpstream) -> Iterator[None]:
    """After each test: the gateway is alive, no call is in flight, and the upstream has no open request."""
    yield
    assert served.wait_until_idle()
    assert eventually(lambda: up.active == 0), f"{up.active} exchanges still open at the upstream"
    assert served.http.get("/health/live").status_code == 200
