"""What does a prompter say before anything is filled in? The instruction template (``specs/lazyllm.md`` 3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.template.lazyllm.dialects import Dialect
from gateway.template.lazyllm.errors import PrompterError

USER_BEGINS = "<!lazyllm-spliter!>"
USER_ENDS = "</!lazyllm-spliter!>"
"""Around the user part of a ``{system, user}`` instruction; the reference looks for them after filling in."""

EXTRA = "Here are some extra messages you can referred to:\n\n"
TASK = (
    "Below is an instruction that describes a task, paired with extra messages such as input that provides "
    "further context if possible. Write a response that appropriately completes the request."
)


def extra_messages(keys: Any) -> str:
    """The lines of ``extra_keys``: one key, or several. Raises PrompterError."""
    if not keys:
        return ""
    if isinstance(keys, str):
        keys = (keys,)
    if not isinstance(keys, (list, tuple)):
        raise PrompterError("AssertionError", "Only str, tuple[str], list[str] are supported")
    return EXTRA + "".join([f"### {key}:\n{{{key}}}\n\n" for key in keys])


def alpaca_instruction(instruction: Any, keys: Any, dialect: Dialect) -> str:
    """The single-turn form's instruction."""
    extra, begin = extra_messages(keys), TASK + dialect.heading
    if isinstance(instruction, Mapping) and dialect.parts != "none":
        if dialect.parts == "line":
            return f"{begin}{_parts(instruction)}\n\n{extra}"
        return begin + _parts(instruction, f"\n\n{extra}" if extra else "")
    if not dialect.modern:
        return f"{begin}{instruction}\n\n{extra}"
    return _sum(begin, instruction or "", "\n\n", extra)


def chat_instruction(instruction: Any, keys: Any, dialect: Dialect) -> str:
    """The multi-turn form's instruction. An empty one loses the extra keys, as in the reference."""
    extra = extra_messages(keys)
    if isinstance(instruction, Mapping) and dialect.parts != "none":
        if dialect.parts == "line":
            return f"{_parts(instruction)}\n{extra}\n"
        return _parts(instruction, extra) + "\n"
    if dialect.modern and not instruction:
        return ""
    return f"{instruction}\n{extra}\n"


def _parts(instruction: Mapping[str, Any], extra: str = "") -> str:
    """System text, then the user text between its tags."""
    return _sum(instruction.get("system") or "", USER_BEGINS, instruction.get("user") or "", extra, USER_ENDS)


def _sum(first: Any, *further: Any) -> str:
    """The texts, one after the other. What is no text fails as it fails in the reference."""
    total = first
    try:
        for part in further:
            total = total + part
    except TypeError as error:
        raise PrompterError("TypeError", str(error)) from error
    return str(total)
