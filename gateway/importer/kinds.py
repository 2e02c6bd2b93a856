"""Which format is this file? By its name, else by what it holds; where two could be meant, the person says."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from gateway.importer.fastchat import CLASS as FASTCHAT_CLASS
from gateway.importer.lazyllm import CLASSES as LAZYLLM_CLASSES
from gateway.importer.modelfile import INSTRUCTIONS
from gateway.importer.opencompass import META
from gateway.importer.python_source.module import read_module
from gateway.importer.source import Source

KINDS = ("hf", "opencompass", "lazyllm", "ollama", "fastchat")

CHAT_TEMPLATES = ("tokenizer_config.json", "chat_template.json", "processor_config.json")
FIRST = re.compile(rf"^[^\S\n]*({'|'.join(INSTRUCTIONS)})\s", re.IGNORECASE | re.MULTILINE)

FIELDS: Mapping[str, Callable[[Mapping[str, Any]], bool]] = {
    "hf": lambda value: "chat_template" in value,
    "fastchat": lambda value: "sep_style" in value or "system_template" in value,
    "opencompass": lambda value: META in value or "round" in value,
    "lazyllm": lambda value: "class" in value or "prompter" in value,
}
"""By the keys of a JSON or YAML file."""


def kind_of(source: Source) -> str:
    """One of ``KINDS``. Raises ``ConfigError`` if none or several are meant."""
    name = source.name.replace("\\", "/").rsplit("/", 1)[-1]
    if name in CHAT_TEMPLATES or name.endswith((".jinja", ".jinja2", ".j2")):
        return "hf"
    if name.endswith(".py"):
        return _only(_in_python(source), source)
    if name.endswith((".json", ".yaml", ".yml")):
        value = source.value()
        first = value[0] if isinstance(value, list) and value else value
        found = [kind for kind, holds in FIELDS.items() if isinstance(first, dict) and holds(first)]
        return _only(found, source)
    return _only(["ollama"] if FIRST.search(source.text()) else [], source)


def _in_python(source: Source) -> list[str]:
    module = read_module(source)
    found = [
        kind
        for kind, classes in (("fastchat", FASTCHAT_CLASS), ("lazyllm", tuple(LAZYLLM_CLASSES)))
        if any(True for _ in module.find_calls(classes))
    ]
    if any(META in name or name == "models" or name.endswith("_models") for name in module.names):
        found.append("opencompass")
    return found


def _only(found: list[str], source: Source) -> str:
    if len(found) == 1:
        return found[0]
    what = f"may be {' or '.join(found)}" if found else "is nothing that is known here"
    raise source.refuse(0, f"{what}: name its format with --kind {'|'.join(KINDS)}")
