"""The instruction template of each class, before its slots are filled (``docs/spec/lazyllm.md`` 3)."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gateway.template.lazyllm.dialects import PrompterDialect

USER_BEGINS = "<!lazyllm-spliter!>"
USER_ENDS = "</!lazyllm-spliter!>"
"""LazyLLM's tags around the user part of a ``{system, user}`` instruction."""

EXTRA = "Here are some extra messages you can referred to:\n\n"
TASK = (
    "Below is an instruction that describes a task, paired with extra messages such as input that provides "
    "further context if possible. Write a response that appropriately completes the request."
)

SLOT = re.compile(r"\{(\w+)\}")
"""Word characters of any script between braces; the inner braces of ``{{a}}`` count too."""

Instruction = str | tuple[str, str]
"""One text, or (system, user)."""


def slots_of(text: str) -> tuple[str, ...]:
    """The slot names, each once, in the order in which they first appear."""
    return tuple(dict.fromkeys(SLOT.findall(text)))


def alpaca_instruction(instruction: Instruction, extra_keys: Sequence[str], dialect: PrompterDialect) -> str:
    """The template of the single-turn class."""
    extra, begin = _extra_messages(extra_keys), TASK + dialect.heading
    if isinstance(instruction, str):
        return f"{begin}{instruction}\n\n{extra}"
    if dialect.parts == "line":
        return f"{begin}{_parts(instruction)}\n\n{extra}"
    return begin + _parts(instruction, f"\n\n{extra}" if extra else "")


def chat_instruction(instruction: Instruction, extra_keys: Sequence[str], dialect: PrompterDialect) -> str:
    """The template of the multi-turn class. LazyLLM drops the extra keys of an empty instruction."""
    extra = _extra_messages(extra_keys)
    if isinstance(instruction, str):
        return f"{instruction}\n{extra}\n" if instruction or not dialect.modern else ""
    if dialect.parts == "line":
        return f"{_parts(instruction)}\n{extra}\n"
    return _parts(instruction, extra) + "\n"


def _extra_messages(keys: Sequence[str]) -> str:
    return EXTRA + "".join([f"### {key}:\n{{{key}}}\n\n" for key in keys]) if keys else ""


def _parts(instruction: tuple[str, str], extra: str = "") -> str:
    system, user = instruction
    return system + USER_BEGINS + user + extra + USER_ENDS
