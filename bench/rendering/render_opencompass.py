"""Prompts that OpenCompass' own parser renders per second: ``PYTHON -m bench.rendering.render_opencompass SECONDS``.

``PYTHON`` is a Python with ``opencompass`` and ``pyyaml``; the heavy dependencies of OpenCompass are not needed.
"""

from __future__ import annotations

import importlib.util
import logging
import sys
import types
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from bench.rendering.inputs import FAMILIES, META_TEMPLATES, TURNS, calls_per_second, conversation
from bench.rendering.python_build import result_json

META_TEMPLATE_KEYS = ("begin", "end", "round", "reserved_roles", "eos_token_id")
HEAVY_MODULES = ("torch", "mmengine.dist")
"""Imported by the parser's module but not used by the parser."""
ROLES = {"user": "HUMAN", "assistant": "BOT"}


def import_parser() -> tuple[Any, Any]:
    """Import ``opencompass.models.base`` and ``PromptList`` without the imports of their packages' ``__init__``."""
    spec = importlib.util.find_spec("opencompass")
    assert spec is not None, "opencompass is not installed in this Python"
    assert spec.submodule_search_locations is not None
    folder = Path(spec.submodule_search_locations[0])
    for name in ("opencompass", "opencompass.models", "opencompass.utils"):
        package = types.ModuleType(name)
        package.__path__ = [str(folder.joinpath(*name.split(".")[1:]))]
        sys.modules[name] = package
    sys.modules["opencompass.utils"].get_logger = logging.getLogger  # type: ignore[attr-defined]
    has_torch = importlib.util.find_spec("torch") is not None
    for name in () if has_torch else HEAVY_MODULES:
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].Tensor = object  # type: ignore[attr-defined]  # occurs in annotations only
    prompt = importlib.import_module("opencompass.utils.prompt")
    sys.modules["opencompass.utils"].PromptList = prompt.PromptList  # type: ignore[attr-defined]
    return importlib.import_module("opencompass.models.base"), prompt.PromptList


def main() -> None:
    """Print renders per second by meta template and turns, and the Python build, as one line of JSON."""
    seconds = float(sys.argv[1])
    base, prompt_list = import_parser()
    metrics: dict[str, float] = {}
    for family in FAMILIES:
        raw = yaml.safe_load((META_TEMPLATES / f"{family}.yaml").read_text(encoding="utf-8"))
        parser = base.LMTemplateParser({key: raw[key] for key in META_TEMPLATE_KEYS if key in raw})
        for turns in TURNS:
            messages = [{"role": ROLES[each["role"]], "prompt": each["content"]} for each in conversation(turns)]
            begin, end = ({"section": "round", "pos": pos} for pos in ("begin", "end"))
            prompt = prompt_list([begin, *messages, {"role": "BOT", "prompt": ""}, end])
            render = partial(parser.parse_template, prompt, mode="gen")
            metrics[f"{family} x{turns}"] = calls_per_second(render, seconds)
    print(result_json(metrics))


if __name__ == "__main__":
    main()
