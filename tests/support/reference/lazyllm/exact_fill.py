"""Fills slots as LazyLLM does, by searching the filled text (``docs/spec/lazyllm.md`` 4, 5)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from metatemplate.errors import InvalidInput
from metatemplate.prompters.dialects import PrompterDialect
from metatemplate.prompters.instruction import (
    PREAMBLE,
    PREAMBLE_PLACE,
    TOOL_NAMES,
    USER_BEGINS,
    USER_ENDS,
    slots_of,
    tool_names,
    with_preamble,
)
from metatemplate.templates.spec import SpecialTokens
from tests.support.reference.lazyllm.errors import PrompterError


def prepared(
    instruction: str, tokens: SpecialTokens, dialect: PrompterDialect, tools: Sequence[Any], *, preamble: bool
) -> str:
    """Return the instruction with the preamble, the tool tokens and the names of the tools. Other slots stay open.

    Raises PrompterError for a tool without a name.
    """
    if not dialect.modern:
        return instruction
    if preamble and PREAMBLE_PLACE not in instruction:
        instruction += "\n\n" + PREAMBLE
    text = with_preamble(instruction, tokens, preamble=preamble)
    if TOOL_NAMES not in text:
        return text
    try:
        names = tool_names(tools)
    except InvalidInput as error:  # a tool without a name
        exception, _, reason = error.message.partition("as LazyLLM does: ")[2].partition(": ")
        raise PrompterError(exception, reason) from error
    return text.replace(f"{{{TOOL_NAMES}}}", names)


def fill(instruction: str, given: Any, dialect: PrompterDialect) -> tuple[str, Any]:
    """Return the instruction with filled slots, and the value that fills no slot; ``""`` if every value fills a slot.

    ``given``: a text for the only slot, or values by slot name. Raises PrompterError with LazyLLM's error text. If
    LazyLLM's choice of a slot depends on the order of a set, the first slot in the text is used.
    """
    names = slots_of(instruction)
    if not isinstance(given, dict):
        if not names:
            return instruction, given
        if len(names) > 1:
            raise PrompterError("AssertionError")
        return formatted(instruction, {names[0]: given}), ""
    for name in names:
        if name not in given:
            raise PrompterError("KeyError", repr(name))
    values = {name: given[name] for name in names}
    rest = {name: value for name, value in given.items() if name not in values}
    if len(rest) > 1:
        raise PrompterError("AssertionError", f"Unexpected keys found in input: {list(rest)}")
    remaining = next(iter(rest.values()), "")
    if dialect.name == "0.1" and values:
        return formatted(instruction, values), remaining
    for name, value in values.items():
        if not isinstance(value, str):
            kind = "None" if value is None else type(value).__name__
            raise PrompterError("TypeError", f"replace() argument 2 must be str, not {kind}")
        instruction = instruction.replace(f"{{{name}}}", value)
    return instruction, remaining


def formatted(instruction: str, values: dict[str, Any]) -> str:
    """Apply ``str.format(**values)``. Raises PrompterError if formatting fails."""
    try:
        return instruction.format(**values)
    except (KeyError, IndexError, ValueError, AttributeError, TypeError) as error:
        raise PrompterError(type(error).__name__, str(error)) from error


def split_parts(text: str, parts: str) -> tuple[str, str]:
    """Return the system part and the user part. As in LazyLLM, tags inside slot values also split the text.

    Raises PrompterError if the tags are in an order in which LazyLLM fails.
    """
    if parts == "none" or USER_BEGINS not in text or USER_ENDS not in text:
        return text, ""
    found = user_part(text, parts)
    if found is None:  # the end tag is first, or in 0.1.2 on another line
        raise PrompterError("IndexError", "list index out of range")
    user = text[slice(*found)]
    tag = USER_BEGINS if parts == "all" else f"{USER_BEGINS}{user}{USER_ENDS}"
    return text[: text.index(tag)], user


def user_part(text: str, parts: str) -> tuple[int, int] | None:
    """Return the start and the end of the user part in a filled instruction; None if there is no user part.

    ``all`` finds the same as ``BEGINS(.*)ENDS`` in the whole text, and ``line`` the same as ``.*BEGINS(.*)ENDS`` in the
    first line that matches. These expressions take quadratic time on a long text. This function is linear.
    """
    if parts == "all":
        begin, end = text.find(USER_BEGINS) + len(USER_BEGINS), text.rfind(USER_ENDS)
        return (begin, end) if USER_BEGINS in text and begin <= end else None
    at = 0
    for line in text.split("\n"):
        end = line.rfind(USER_ENDS)
        begin = line.rfind(USER_BEGINS, 0, max(end, 0))
        if begin >= 0:
            return at + begin + len(USER_BEGINS), at + end
        at += len(line) + 1
    return None
