"""One gateway in front of each engine that is installed; the others are skipped with the command that installs them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import openai
import pytest

from tests.support.engines.engine import ENGINES, Engine, engines_folder
from tests.support.serving import Gateway, gateway

WRITES_BOS = r"""
round:
  - {role: HUMAN, begin: "<HUMAN>: ", end: "<eoh>\n"}
  - {role: BOT, begin: "<BOT>: ", end: "<eob>\n", generate: true}
begin: "<s>"
bos: text
bos_text: "<s>"
"""
"""The demo model's format with a BOS in the text, as a chat template of a tokenizer's folder writes it."""


@dataclass(frozen=True)
class Served:
    """A gateway whose models ``demo``, ``writes-bos``, ``wrong``, ``chat`` and ``lost`` are one engine's."""

    engine: Engine
    gateway: Gateway
    folder: Path
    sdk: openai.OpenAI

    def lacks(self, what: str) -> bool:
        return what in self.engine.lacks


@pytest.fixture(scope="session", params=ENGINES)
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    engine, folder = ENGINES[request.param], engines_folder()
    if not engine.is_installed(folder):
        pytest.skip(f"{engine.title} is not installed; run tests/support/engines/install {engine.name}")
    place = tmp_path_factory.mktemp(engine.name)
    with engine.running(folder, place) as url:
        (place / "meta_templates").mkdir()
        (place / "meta_templates" / "writes-bos.yaml").write_text(WRITES_BOS)
        with (
            gateway(place, configuration(engine, url)) as running,
            openai.OpenAI(base_url=running.url, api_key="none", max_retries=0, timeout=60) as sdk,
        ):
            yield Served(engine, running, place, sdk)


def configuration(engine: Engine, url: str) -> str:
    """The gateway.yaml in front of an engine at ``url``."""
    target = engine.target.format(url=url)
    models = {
        "demo": ("sft-demo", target),
        "writes-bos": ("writes-bos", target),
        "wrong": ("chatml", target),
    }
    if engine.chat is not None:
        models["chat"] = ("chat", engine.chat.format(url=url))
        models["lost"] = ("sft-demo", target.replace(engine.model, "nosuch"))
    rows = "".join(
        f"  {name}: {{template: {template}, policy: eval, targets: [{{{given}}}]}}\n"
        for name, (template, given) in models.items()
    )
    return f"models:\n{rows}"
