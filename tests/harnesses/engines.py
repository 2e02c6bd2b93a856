"""The columns of the two tables: the engines of tests/engines, LiteLLM in front of one of them, and a wrong template.

Where clients ask for objects of a type, the columns are the engines that can constrain an answer: fakes and real ones.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from tests.engines.engine import ENGINES, MODEL, NAME, Engine
from tests.upstream.modes_constraint import DIALECTS
from tests.upstream.server import FaultyUpstream

WRONG_TEMPLATE = "chatml"
"""A template that the demo model was not trained on."""
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""The same format as a chat template, for clients that apply the tokenizer's."""

COLUMNS = {
    **ENGINES,
    "litellm": replace(
        ENGINES["numpy"],
        name="litellm",
        title="LiteLLM",
        target=f'speaks: litellm, model: "hosted_vllm/{NAME}", url: "{{url}}"',
        template="chat",
        refusals={"completions": "invalid_value"},
    ),
    "wrong-template": replace(
        ENGINES["embedded"],
        name="wrong-template",
        title="embedded, wrong template",
        template=WRONG_TEMPLATE,
    ),
}


class FakeEngine(Engine):
    """A server of ``tests/upstream`` whose answers are the JSON that the engine ``name`` would be constrained to."""

    @contextmanager
    def running(self, engines: Path, work: Path) -> Iterator[str]:
        """See ``Engine``; it runs in this process."""
        with FaultyUpstream() as server:
            yield server.url(f"constrained-{self.name.removeprefix('fake-')}")


OBJECT_COLUMNS = {
    **{
        f"fake-{engine}": FakeEngine(
            name=f"fake-{engine}",
            title=f"{title} (fake)",
            command=None,
            target=f'speaks: completions, url: "{{url}}", engine: {engine}',
        )
        for engine, title in zip(DIALECTS, ("vLLM", "SGLang", "llama.cpp", "llama-cpp-python"), strict=True)
    },
    "vllm": ENGINES["vllm"],
    "llama-cpp": ENGINES["llama-cpp"],
    "embedded": replace(ENGINES["embedded"], refusals={"json_schema": "unsupported_parameter"}),
}
"""The engines that can constrain an answer, and one that cannot."""


def tokenizer(engine: Engine, folder: Path) -> Path:
    """The tokenizer's folder for an engine's clients: the demo model's, or a copy with ``CHATML`` in ``folder``."""
    if engine.template != WRONG_TEMPLATE:
        return MODEL
    copied = folder / "tokenizer"
    shutil.copytree(MODEL, copied, ignore=shutil.ignore_patterns("*.safetensors"), dirs_exist_ok=True)
    (copied / "chat_template.jinja").write_text(CHATML, encoding="utf-8")
    return copied
