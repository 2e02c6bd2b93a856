# ruff: noqa: E501 - rows of words
"""Random conversations, the same on every machine, and the templates that are rendered with them.

The recorder (``record_goldens.py``) runs in a Python that has ``transformers`` and imports this file and nothing of the
gateway; so here is the standard library only.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
FOLDER = HERE / "templates"
GOLDENS = HERE / "goldens.json"
COUNT = 300
"""Conversations for each template."""
WHOLE = 6
"""Number of them that are recorded as text, for people to read; the others as a hash of eight digits."""
DAY = "2024-07-26"

TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}

WORDS = (
    "hello", "What is 17 plus 25?", "42", "", "  padded  ", "\n\nlines\n", "a\nb\nc", "naïve café", "你好，世界", "🙂🙃",
    "<|im_end|>", "<s>", "</s>", "{{ 7 * 7 }}", "{% raw %}", "%s %d {0} {question}", 'say "no"', "back\\slash", "<b>&amp;</b>",
    "<think>\nhm\n</think>\n\nyes", "no </think> yes", "<tool_response>\n1\n</tool_response>", "\ue000123\ue001", "tab\there",
    "x" * 90, "assistant", "role", "\u2028", "user: hi\nassistant: no",
)  # fmt: skip


@dataclass(frozen=True)
class Kind:
    """What a template is asked with."""

    roles: tuple[str, ...] = ("system", "user", "assistant")
    tools: bool = False
    calls: bool = False
    parts: bool = False
    kwargs: dict[str, tuple[Any, ...]] = field(default_factory=dict)


KINDS: dict[str, Kind] = {
    "chatml": Kind(("system", "user", "assistant", "tool"), True, True, kwargs={"enable_thinking": (True, False)}),
    "headers": Kind(("system", "user", "assistant", "tool"), True, True, kwargs={"date_string": ("1 May 2031",)}),
    "inst": Kind(("user", "assistant", "tool"), True, True),
    "turns": Kind(("user", "assistant")),
    "plain": Kind(("system", "user", "assistant", "critic")),
    "generation": Kind(),
    "documents": Kind(
        tools=True,
        kwargs={"documents": ([{"title": "One", "text": "first\nline "}, {"title": 'T"wo', "text": "😀"}], [])},
    ),
    "parts": Kind(parts=True),
    "controls": Kind(),
    "thinking": Kind(kwargs={"enable_thinking": (True, False), "keep_thoughts": (True,)}),
    "gathered": Kind(("system", "user", "assistant", "tool")),
    "columns": Kind(),
}

TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "The weather at a place.\nNow.",
            "parameters": {
                "type": "object",
                "properties": {
                    "place": {"type": "string", "description": "Ort, größer als <b>"},
                    "days": {"type": "integer", "enum": [1, 2, 3]},
                    "where": {"type": "object", "properties": {"x": {"type": "number"}}},
                    "tags": {"type": "array", "items": {"type": "string"}},
                },
                "required": ["place"],
            },
        },
    },
    {"type": "function", "function": {"name": "nothing", "description": "", "parameters": {"type": "object"}}},
]


def cases(name: str) -> list[dict[str, Any]]:
    """The conversations for one template: ``messages``, ``tools``, ``kwargs``, ``continue_final``."""
    dice = random.Random(f"{name}-1")
    return [_case(KINDS[name], dice) for _ in range(COUNT)]


def _case(kind: Kind, dice: random.Random) -> dict[str, Any]:
    ordered = dice.random() < 0.6
    messages: list[dict[str, Any]] = []
    if "system" in kind.roles and dice.random() < 0.5:
        messages.append({"role": "system", "content": _text(dice)})
    for turn in range(dice.randint(1, 9)):
        role = ("user", "assistant")[turn % 2] if ordered else dice.choice(kind.roles)
        messages += _said(role, kind, dice)
    going_on = messages[-1]["role"] == "assistant" and bool(messages[-1].get("content")) and dice.random() < 0.5
    return {
        "messages": messages,
        "tools": TOOLS[: dice.randint(1, 2)] if kind.tools and dice.random() < 0.4 else None,
        "kwargs": {name: dice.choice(values) for name, values in kind.kwargs.items() if dice.random() < 0.4},
        "continue_final": going_on,
    }


def _said(role: str, kind: Kind, dice: random.Random) -> list[dict[str, Any]]:
    if role == "tool":
        return [{"role": "tool", "content": _text(dice), "tool_call_id": "abc456789"}]
    if role == "assistant" and kind.calls and dice.random() < 0.25:
        calls = [
            {
                "id": dice.choice(("abc456789", "call_1")) if dice.random() < 0.2 else "abc456789",
                "type": "function",
                "function": {"name": "weather", "arguments": {"place": _text(dice), "days": dice.randint(1, 3)}},
            }
            for _ in range(dice.choice((1, 1, 1, 2)))
        ]
        called = {"role": role, "content": dice.choice(("", None, "let me see")), "tool_calls": calls}
        return [called, {"role": "tool", "content": _text(dice), "tool_call_id": "abc456789"}]
    said: dict[str, Any] = {"role": role, "content": _text(dice)}
    if kind.parts and dice.random() < 0.5:
        said["content"] = [{"type": "text", "text": _text(dice)} for _ in range(dice.randint(1, 3))]
    if role == "assistant" and dice.random() < 0.2:
        said["reasoning_content"] = _text(dice)
    return [said]


def _text(dice: random.Random) -> str:
    return " ".join(dice.choice(WORDS) for _ in range(dice.choice((1, 1, 2, 3))))
