"""Which conversations are rendered? Standard library only: OpenCompass' own environment reads this file too."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

TEMPLATES = Path(__file__).resolve().parent.parent / "meta_templates"
FAMILIES = ("sft-demo", "internlm", "chatml", "moss")
PROMPTERS = ("lazyllm-qwen", "lazyllm-internlm")
INSTRUCTION = "Answer from this context only: {context}"
CONTEXT = "17 plus 25 is 42."
SLOT = "lazyllm-qwen with a slot"
"""One more prompter: the first one with this instruction, its slot filled in each call."""
CALLS = "lazyllm-qwen with two tools"
"""The first one again, with these tools in each call."""
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


def conversation(turns: int) -> list[tuple[str, str]]:
    """(role, text) of so many questions, all but the last answered."""
    talk: list[tuple[str, str]] = []
    for number in range(turns):
        talk += [("user", f"{number}: What is 17 plus 25?"), ("assistant", "42")]
    return talk[:-1]


def per_second(render: Callable[[], object], seconds: float) -> float:
    """How often it can be called in a second, measured for about ``seconds``."""
    render()
    calls, batch, began = 0, 1, time.perf_counter()
    while (elapsed := time.perf_counter() - began) < seconds:
        for _ in range(batch):
            render()
        calls += batch
        batch = min(batch * 2, 256) if elapsed < seconds / 8 else batch
    return calls / elapsed
