"""Inputs of the rendering benchmarks and their timing loop. Standard library only: other Pythons import this module."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

META_TEMPLATES = Path(__file__).resolve().parent.parent.parent / "meta_templates"
FAMILIES = ("sft-demo", "internlm", "chatml", "moss")
"""Meta templates that OpenCompass renders too."""
PROMPTERS = ("lazyllm-qwen", "lazyllm-internlm")
"""Prompters that LazyLLM renders too."""
INSTRUCTION = "Answer from this context only: {context}"
CONTEXT = "17 plus 25 is 42."
WITH_SLOT = "lazyllm-qwen with a slot"
"""The first prompter with ``INSTRUCTION``; each render fills the slot with ``CONTEXT``."""
WITH_TOOLS = "lazyllm-qwen with two tools"
"""The first prompter with ``TOOLS`` in each render."""
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": f"The {name} of two numbers.",
            "parameters": {
                "type": "object",
                "properties": {key: {"type": "integer", "description": f"Number {key}"} for key in "ab"},
                "required": ["a", "b"],
            },
        },
    }
    for name in ("sum", "product")
]
TURNS = (1, 10, 50, 200)


def conversation(turns: int) -> list[dict[str, str]]:
    """Messages of a conversation that ends with the user's last question."""
    messages: list[dict[str, str]] = []
    for number in range(turns):
        messages.append({"role": "user", "content": f"{number}: What is 17 plus 25?"})
        messages.append({"role": "assistant", "content": "42"})
    return messages[:-1]


def calls_per_second(function: Callable[[], object], seconds: float) -> float:
    """Call ``function`` repeatedly for about ``seconds``; the first call is not counted."""
    function()
    calls, batch, began = 0, 1, time.perf_counter()
    while (elapsed := time.perf_counter() - began) < seconds:
        for _ in range(batch):
            function()
        calls += batch
        batch = min(batch * 2, 256) if elapsed < seconds / 8 else batch
    return calls / elapsed
