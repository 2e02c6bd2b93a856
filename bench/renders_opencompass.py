"""How many prompts a second does OpenCompass' own parser render? ``PYTHON renders_opencompass.py SECONDS``.

Run by a Python that has ``opencompass`` and ``pyyaml``; its heavy dependencies are not needed.
"""

from __future__ import annotations

import importlib.util
import logging
import sys
import types
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import yaml
from conversation import FAMILIES, TEMPLATES, TURNS, conversation, per_second  # type: ignore[import-not-found]
from interpreter import report  # type: ignore[import-not-found]

KEYS = ("begin", "end", "round", "reserved_roles", "eos_token_id")
HEAVY = ("torch", "mmengine.dist")
"""What the parser's file imports and the parser does not use."""
ROLES = {"user": "HUMAN", "assistant": "BOT"}


def parsers() -> tuple[Any, Any]:
    """``opencompass.models.base`` and ``PromptList``, without what the packages around them import."""
    spec = importlib.util.find_spec("opencompass")
    assert spec is not None, "this Python has no opencompass"
    assert spec.submodule_search_locations is not None
    home = Path(spec.submodule_search_locations[0])
    for name in ("opencompass", "opencompass.models", "opencompass.utils"):
        package = types.ModuleType(name)
        package.__path__ = [str(home.joinpath(*name.split(".")[1:]))]
        sys.modules[name] = package
    sys.modules["opencompass.utils"].get_logger = logging.getLogger  # type: ignore[attr-defined]
    has_torch = importlib.util.find_spec("torch") is not None
    for name in () if has_torch else HEAVY:
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].Tensor = object  # type: ignore[attr-defined]  # named in annotations only
    prompt = importlib.import_module("opencompass.utils.prompt")
    sys.modules["opencompass.utils"].PromptList = prompt.PromptList  # type: ignore[attr-defined]
    return importlib.import_module("opencompass.models.base"), prompt.PromptList


def main() -> None:
    """Print one line of JSON: renders a second by family and turns, and the Python."""
    seconds = float(sys.argv[1])
    base, prompt_list = parsers()
    numbers: dict[str, float] = {}
    for family in FAMILIES:
        raw = yaml.safe_load((TEMPLATES / f"{family}.yaml").read_text(encoding="utf-8"))
        parser = base.LMTemplateParser({key: raw[key] for key in KEYS if key in raw})
        for turns in TURNS:
            talk = [{"role": ROLES[role], "prompt": text} for role, text in conversation(turns)]
            marks = [{"section": "round", "pos": pos} for pos in ("begin", "end")]
            items = prompt_list([marks[0], *talk, {"role": "BOT", "prompt": ""}, marks[1]])
            numbers[f"{family} x{turns}"] = per_second(
                lambda i=items, p=parser: p.parse_template(i, mode="gen"), seconds
            )
    print(report(numbers))


if __name__ == "__main__":
    main()
