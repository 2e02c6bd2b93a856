"""How many prompts a second does LazyLLM's own ChatPrompter render? ``PYTHON renders_lazyllm.py SECONDS``.

Run by a Python that has ``lazyllm``.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from conversation import (  # type: ignore[import-not-found]
    CALLS,
    CONTEXT,
    INSTRUCTION,
    PROMPTERS,
    SLOT,
    TOOLS,
    TURNS,
    conversation,
    per_second,
)
from interpreter import report  # type: ignore[import-not-found]


def main() -> None:
    """Print one line of JSON: renders a second by family and turns, and the Python."""
    seconds = float(sys.argv[1])
    with contextlib.redirect_stdout(sys.stderr):  # the package talks while it is imported
        chat = importlib.import_module("lazyllm").ChatPrompter
        tokens = importlib.import_module("lazyllm.components.utils").ModelManager
    numbers: dict[str, float] = {}
    for family in (*PROMPTERS, SLOT, CALLS):
        prompter = chat(INSTRUCTION) if family == SLOT else chat()
        prompter._set_model_configs(**tokens.get_model_prompt_keys(family.removeprefix("lazyllm-").split()[0]))
        for turns in TURNS:
            *history, (_, last) = conversation(turns)
            before = [{"role": role, "content": text} for role, text in history]
            given = {"context": CONTEXT, "input": last} if family == SLOT else last
            numbers[f"{family} x{turns}"] = per_second(
                lambda h=before, p=prompter, g=given, t=TOOLS if family == CALLS else None: p.generate_prompt(
                    g, history=h, tools=t
                ),
                seconds,
            )
    print(report(numbers))


if __name__ == "__main__":
    main()
