"""Recognises the format of a source file by the file name or, if the name is not enough, by the content."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from gateway.workshop.importer.dataset import DATASETS, INFER, PROMPT, find_datasets
from gateway.workshop.importer.lazyllm import LAZYLLM_CLASSES
from gateway.workshop.importer.ollama import INSTRUCTIONS
from gateway.workshop.importer.opencompass import META, MODELS
from gateway.workshop.importer.python_file import PythonFile
from gateway.workshop.importer.source import Source
from metatemplate.datasets.validation import DATASET_TEMPLATES

SOURCE_KINDS: Mapping[str, str] = {
    "hf": "a chat template: a tokenizer folder, tokenizer_config.json or a .jinja file",
    "opencompass": "models of an OpenCompass or AISBench config, or a meta_template as JSON or YAML",
    "lazyllm": "a LazyLLM prompter: calls in Python, or its arguments as JSON or YAML",
    "ollama": "an Ollama Modelfile",
    "dataset": "datasets of an OpenCompass or AISBench config",
}
"""Format → description. The formats are the values of the option ``--kind``."""

CHAT_TEMPLATES = ("tokenizer_config.json", "chat_template.json", "processor_config.json")
PARTS_OF_A_FOLDER = ("config.json", "generation_config.json", "tokenizer.json")
"""Files of a model's folder that have no chat template."""
WEIGHTS = (".gguf", ".safetensors", ".bin")
INSTRUCTION = re.compile(rf"^[^\S\n]*({'|'.join(INSTRUCTIONS)})\s", re.IGNORECASE | re.MULTILINE)

BY_KEYS: Mapping[str, Callable[[Mapping[str, Any]], bool]] = {
    "hf": lambda value: "chat_template" in value,
    "opencompass": lambda value: META in value or "round" in value or isinstance(value.get(MODELS), list),
    "lazyllm": lambda value: "class" in value or "prompter" in value,
    "dataset": lambda value: any(key.endswith(DATASETS) or key in (INFER, *DATASET_TEMPLATES) for key in value),
}
"""Format → test whether a mapping from a JSON or YAML file has the keys of this format."""


def kind_of(source: Source) -> str:
    """Return the format of a file, one of ``SOURCE_KINDS``. Raises ``ConfigError`` if not exactly one matches."""
    name = source.name.replace("\\", "/").rsplit("/", 1)[-1]
    if name in PARTS_OF_A_FOLDER or name.endswith(WEIGHTS):
        what = "weights have no template that can be read" if name.endswith(WEIGHTS) else "this file has no template"
        raise source.refuse(0, f"{what}; give the model's folder, with its tokenizer_config.json")
    if name in CHAT_TEMPLATES or name.endswith((".jinja", ".jinja2", ".j2")):
        return "hf"
    if name.endswith(".py"):
        found = _kinds_of_python(PythonFile(source))
    elif name.endswith((".json", ".yaml", ".yml")):
        value = source.value()
        first = value[0] if isinstance(value, list) and value else value
        found = [kind for kind, matches in BY_KEYS.items() if isinstance(first, dict) and matches(first)]
    else:
        found = ["ollama"] if INSTRUCTION.search(source.text()) else []
    if len(found) == 1:
        return found[0]
    what = f"the format may be {' or '.join(found)}" if found else "the format is not recognised"
    ways = "" if found else ", or write the template by hand (gateway docs templates)"
    raise source.refuse(0, f"{what}; choose the format with --kind {'|'.join(SOURCE_KINDS)}{ways}")


def _kinds_of_python(file: PythonFile) -> list[str]:
    found = ["lazyllm"] if any(True for _ in file.find_calls(tuple(LAZYLLM_CLASSES))) else []
    if any(name == MODELS or name.endswith(f"_{MODELS}") for name in file.names):
        found.append("opencompass")
    has_datasets = _has_datasets(file, alone=not found and not any(META in name for name in file.names))
    if not found and not has_datasets and any(META in name for name in file.names):
        return ["opencompass"]  # beside datasets, a template with a name is the judge's
    return [*found, "dataset"] if has_datasets else found


def _has_datasets(file: PythonFile, *, alone: bool) -> bool:
    """Return whether a file has datasets. ``alone``: no other format matches, so the names of variables are enough."""
    named = any(name.endswith((DATASETS, INFER, PROMPT)) for name in file.names)
    return bool(find_datasets(file)) or (alone and named)
