"""Prompts that LazyLLM's own ChatPrompter renders per second: ``PYTHON -m bench.rendering.render_lazyllm SECONDS``.

``PYTHON`` is a Python with ``lazyllm`` installed.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from functools import partial

from bench.rendering.inputs import (
    CONTEXT,
    INSTRUCTION,
    PROMPTERS,
    TOOLS,
    TURNS,
    WITH_SLOT,
    WITH_TOOLS,
    calls_per_second,
    conversation,
)
from bench.rendering.python_build import result_json


def main() -> None:
    """Print renders per second by prompter and turns, and the Python build, as one line of JSON."""
    seconds = float(sys.argv[1])
    with contextlib.redirect_stdout(sys.stderr):  # the package prints during its import
        chat_prompter = importlib.import_module("lazyllm").ChatPrompter
        model_manager = importlib.import_module("lazyllm.components.utils").ModelManager
    metrics: dict[str, float] = {}
    for name in (*PROMPTERS, WITH_SLOT, WITH_TOOLS):
        prompter = chat_prompter(INSTRUCTION) if name == WITH_SLOT else chat_prompter()
        prompter._set_model_configs(**model_manager.get_model_prompt_keys(name.removeprefix("lazyllm-").split()[0]))
        tools = TOOLS if name == WITH_TOOLS else None
        for turns in TURNS:
            *history, last = conversation(turns)
            question = last["content"]
            given = {"context": CONTEXT, "input": question} if name == WITH_SLOT else question
            render = partial(prompter.generate_prompt, given, history=history, tools=tools)
            metrics[f"{name} x{turns}"] = calls_per_second(render, seconds)
    print(result_json(metrics))


if __name__ == "__main__":
    main()
