"""One gateway in front of every mode of the rude server: a model for each mode, raw and as chat."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.serving import Gateway, eventually, gateway
from tests.upstream.server import MODES, RudeServer, blackhole_url, refused_url

POLICY = """
delivery:
  timeout: {connect: 300ms, first_token: 700ms, idle: 400ms, total: 2s}
  retry: {attempts: 2}
"""

TEMPLATE = r"""
round:
  - {role: HUMAN, begin: "<HUMAN>: ", end: "<eoh>\n"}
  - {role: BOT, begin: "<BOT>: ", end: "<eob>\n", generate: true}
"""


@pytest.fixture(scope="session")
def up() -> Iterator[RudeServer]:
    with RudeServer() as server:
        yield server


def model(name: str, url: str, speaks: str = "completions", template: str = "sft", extra: str = "") -> str:
    target = f'{{speaks: {speaks}, url: "{url}", model: m{extra}}}'
    return f'  "{name}": {{template: {template}, policy: fast, targets: [{target}]}}\n'


@pytest.fixture(scope="session")
def faulty(up: RudeServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """Model ``MODE`` takes a prompt, ``chat/MODE`` takes messages; some modes come with options."""
    folder = tmp_path_factory.mktemp("faulty")
    (folder / "policies").mkdir()
    (folder / "policies" / "fast.yaml").write_text(POLICY)
    (folder / "meta_templates").mkdir()
    (folder / "meta_templates" / "sft.yaml").write_text(TEMPLATE)
    with blackhole_url() as blackhole:
        config = "models:\n"
        for mode in sorted(MODES):
            config += model(mode, up.url(mode))
            config += model(f"chat/{mode}", up.url(mode), "chat", "chat")
        for name, url in (
            ("refused", refused_url()),
            ("blackhole", blackhole),
            ("nowhere", "http://nosuch.invalid/v1"),
        ):
            config += model(name, url)
        config += model("llamacpp-n", up.url("rude-n-ignored"), extra=", engine: llamacpp")
        config += model("llamacpp-endless", up.url("stop-then-endless"), extra=", engine: llamacpp")
        config += model("vllm-bos", up.url("rude-bos-echo"), extra=", engine: vllm")
        with gateway(folder, config) as served:
            yield served


@pytest.fixture(autouse=True)
def nothing_is_left(faulty: Gateway, up: RudeServer) -> Iterator[None]:
    """Every row also asserts: the process lives, nothing is in flight, and the upstream is free."""
    yield
    assert faulty.settled()
    assert eventually(lambda: up.active == 0), f"{up.active} exchanges still open at the upstream"
    assert faulty.http.get("/health/live").status_code == 200
