"""Records how ``transformers`` reads the folders: ``PYTHON record_folders.py [--check]``, as ``record_goldens.py``."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import folders  # type: ignore[import-not-found]  # beside this file; the other Python has no package around it
import transformers
from jinja2.exceptions import TemplateError
from tokenizers import Tokenizer, models


def outcomes(files: dict[str, Any]) -> dict[str, str]:
    """The prompts of one folder, each behind ``=``, or ``error``."""
    with tempfile.TemporaryDirectory() as name:
        folder = folders.write(Path(name), files)
        Tokenizer(models.WordLevel({"a": 0}, unk_token="a")).save(str(folder / "tokenizer.json"))
        tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(folder)
    return {asked: outcome(tokenizer, tools) for asked, tools in folders.ASKED.items()}


def outcome(tokenizer: Any, tools: list[dict[str, Any]] | None) -> str:
    """One prompt."""
    try:
        return "=" + str(
            tokenizer.apply_chat_template([folders.USER], tools=tools, tokenize=False, add_generation_prompt=True)
        )
    except (TemplateError, ValueError):
        return "error"


def main() -> int:
    """Record or compare."""
    found = {name: outcomes(files) for name, files in folders.FOLDERS.items()}
    if "--check" in sys.argv:
        known = json.loads(folders.GOLDENS.read_text(encoding="utf-8"))["folders"]
        parted = [name for name in found if known.get(name) != found[name]]
        print(f"differs: {'; '.join(parted)}" if parted else "the same as recorded")
        return 1 if parted else 0
    whole = {"transformers": transformers.__version__, "folders": found}
    folders.GOLDENS.write_text(json.dumps(whole, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
