"""The shipped OpenCompass value of each preset, and the changes to it.

``opencompass-meta-templates.json`` holds the 54 distinct values; each row here is
one of them with its preset and every difference, so that nothing differs unsaid.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

Value = dict[str, Any]
Change = Callable[[Value], Value]

HERE = Path(__file__).parent
VALUES: list[Value] = [
    entry["meta_template"] for entry in json.loads((HERE / "opencompass-meta-templates.json").read_bytes())["templates"]
]


def eos(token: int | None) -> Change:
    """The preset gives this ``eos_token_id``, or none."""
    return lambda value: {**value, "eos_token_id": token}


def system(begin: str, end: str) -> Change:
    """The preset adds a SYSTEM role that the config leaves out."""
    return lambda value: {**value, "reserved_roles": [{"role": "SYSTEM", "begin": begin, "end": end}]}


def system_reserved(value: Value) -> Value:
    """SYSTEM moves out of ``round``, where it invents an empty turn in every round."""
    inside = [role for role in value["round"] if role["role"] == "SYSTEM"]
    outside = [role for role in value["round"] if role["role"] != "SYSTEM"]
    return {**value, "round": outside, "reserved_roles": inside}


def generates(value: Value) -> Value:
    """BOT's ``generate: false`` becomes true."""
    return {**value, "round": [{**role, "generate": role["role"] == "BOT"} for role in value["round"]]}


def no_begin(value: Value) -> Value:
    """A meta begin that is null or empty is left out."""
    return {**value, "begin": ""}


chatml_system = system("<|im_start|>system\n", "<|im_end|>\n")
qwen_system = system("<|im_start|>system\n", "<|im_end|>")
unused_token_system = system("[UNUSED_TOKEN_146]system\n", "[UNUSED_TOKEN_145]\n")

# (position in the JSON file, preset, what differs)
COVERED: list[tuple[int, str, tuple[Change, ...]]] = [
    (0, "api", ()),
    (1, "tigerbot", ()),
    (2, "qwen", (qwen_system, eos(151645))),
    (2, "lemur-chat", (qwen_system,)),
    (3, "wizardlm", ()),
    (4, "wizardlm-7b", ()),
    (5, "qwen1.5", (chatml_system,)),
    (6, "internlm", ()),
    (7, "metamath", ()),
    (8, "vicuna", (system("", " "),)),
    (9, "internlm2", (chatml_system,)),
    (10, "mistral-instruct", ()),
    (11, "baichuan2", ()),
    (12, "bluelm", ()),
    (13, "abel", ()),
    (14, "chatml", (chatml_system,)),
    (14, "yi-chat", (chatml_system,)),
    (14, "dbrx", (chatml_system,)),
    (14, "dolphin", (chatml_system, eos(2))),
    (15, "openchat", ()),
    (16, "nanbeige", ()),
    (17, "telechat", ()),
    (18, "zephyr", (system("<|system|>\n", "</s>\n"),)),
    (19, "deepseek-chat", (system("", "\n\n"),)),
    (20, "deepseek-coder", (eos(32021),)),
    (21, "llama-2-chat", ()),
    (22, "aquilachat2-16k", (eos(100007),)),
    (23, "api-system", (generates,)),
    (24, "chatglm2", ()),
    (25, "internlm2", (system_reserved, eos(92542))),
    (26, "internlm2", (system_reserved, eos(92542))),
    (27, "moss", ()),
    (28, "internlm-8k", ()),
    (29, "arithmo", (no_begin,)),
    (30, "gsm8k-rft", ()),
    (31, "tigerbot-sft", ()),
    (32, "aquilachat2-16k", ()),
    (33, "gemma", (eos(107),)),
    (34, "internlm2", (system_reserved,)),
    (35, "internlm2-math", (unused_token_system,)),
    (36, "internlm2-math", (system_reserved,)),
    (37, "nanbeige-base", ()),
    (38, "minicpm", ()),
    (39, "aquilachat2", (eos(100007),)),
    (40, "aquilachat2-7b", (eos(2),)),
    (41, "api-system", ()),
    (42, "fashiongpt", (eos(2),)),
    (43, "orionstar-yi", (eos(2),)),
    (44, "orionstar", (eos(2),)),
    (45, "aquilachat2", ()),
    (46, "aquilachat2-7b", ()),
    (47, "nanbeige2", (no_begin, chatml_system)),
    (48, "dolphin", (chatml_system,)),
    (49, "fashiongpt", ()),
    (50, "orionstar-yi", ()),
    (51, "telechat-7b", ()),
    (52, "orionstar", ()),
    (53, "qwen", (qwen_system,)),
]

# Presets that no shipped config has: each says in its file where it comes from.
OURS = {"alpaca", "base", "chatml-tools", "moss-thoughts", "sft-demo"}

ROLE_DEFAULTS: Mapping[str, Any] = {
    "begin": "",
    "end": "",
    "prompt": None,
    "generate": False,
    "api_role": None,
    "fallback_role": None,
}


def normal(value: Value) -> Value:
    """The OpenCompass part of a value, with every default written out."""
    return {
        "begin": value.get("begin", ""),
        "end": value.get("end", ""),
        "round": [{**ROLE_DEFAULTS, **role} for role in value["round"]],
        "reserved_roles": [{**ROLE_DEFAULTS, **role} for role in value.get("reserved_roles", [])],
        "eos_token_id": value.get("eos_token_id"),
    }
