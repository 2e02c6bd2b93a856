"""The columns of the table: the engines of tests/engines, LiteLLM in front of one of them, and a wrong template."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

from tests.engines.engine import ENGINES, MODEL, NAME, Engine

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


def tokenizer(engine: Engine, folder: Path) -> Path:
    """The tokenizer's folder for an engine's clients: the demo model's, or a copy with ``CHATML`` in ``folder``."""
    if engine.template != WRONG_TEMPLATE:
        return MODEL
    copied = folder / "tokenizer"
    shutil.copytree(MODEL, copied, ignore=shutil.ignore_patterns("*.safetensors"), dirs_exist_ok=True)
    (copied / "chat_template.jinja").write_text(CHATML, encoding="utf-8")
    return copied
