"""What of a request goes to a target, and what never does? Seen at a real server behind a real gateway."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from tests.serving import Gateway, gateway
from tests.upstream.server import RudeServer

CONFIG = """
models:
  text: {{template: sft-demo, targets: [{{speaks: completions, url: "{url}"}}]}}
  talk: {{template: chat, targets: [{{speaks: chat, url: "{url}"}}]}}
  carried: {{template: chat, policy: carried, targets: [{{speaks: chat, url: "{url}"}}]}}
"""
POLICIES = {
    "carried": "media: {https: refuse}",
}


@dataclass(frozen=True)
class World:
    """A gateway, and the server behind it."""

    served: Gateway
    up: RudeServer

    def chat(self, model: str, content: Any = "hi", **fields: Any) -> httpx.Response:
        return self.served.chat(model, content, **fields)

    def sent(self) -> Any:
        """The body that the server got last."""
        return self.up.heard[-1].body


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("passing_on")
    (folder / "policies").mkdir()
    for name, text in POLICIES.items():
        (folder / "policies" / f"{name}.yaml").write_text(text)
    with RudeServer() as up, gateway(folder, CONFIG.format(url=up.url("ok"))) as served:
        yield World(served, up)


def error(answer: httpx.Response) -> tuple[int, str, str]:
    told = answer.json()["error"]
    return answer.status_code, told["code"], told["message"]


# ---------------------------------------------------------------- media

IMAGE = [{"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}]


def test_an_https_image_reaches_a_chat_target_as_it_came(world: World) -> None:
    assert world.chat("talk", IMAGE).status_code == 200
    assert world.sent()["messages"] == [{"role": "user", "content": IMAGE}]


def test_a_policy_keeps_https_images_from_the_target(world: World) -> None:
    before = world.up.requests
    status, code, message = error(world.chat("carried", IMAGE))
    assert (status, code) == (400, "media_not_allowed")
    assert "must be a data: URI" in message
    assert world.up.requests == before


@pytest.mark.parametrize("url", ["https://example.com/a.png", "file:///etc/passwd", "data:image/png;base64,AAAA"])
def test_a_text_model_says_first_that_it_takes_text_only(world: World, url: str) -> None:
    status, code, message = error(world.chat("text", [{"type": "image_url", "image_url": {"url": url}}]))
    assert (status, code) == (400, "media_not_supported")
    assert message.startswith("this model takes text only")
