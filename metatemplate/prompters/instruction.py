"""The texts that LazyLLM writes: the instruction template of each class, with open slots, and the list of tools.

``docs/spec/lazyllm.md`` 3 and 7 describe these texts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from metatemplate.prompters.dialects import PrompterDialect, refusal
from metatemplate.prompters.json5 import write_json5
from metatemplate.templates.spec import SpecialTokens

USER_BEGINS = "<!lazyllm-spliter!>"
USER_ENDS = "</!lazyllm-spliter!>"
"""``USER_BEGINS`` and ``USER_ENDS`` are LazyLLM's tags around the user part of a ``{system, user}`` instruction."""

EXTRA = "Here are some extra messages you can referred to:\n\n"
TASK = (
    "Below is an instruction that describes a task, paired with extra messages such as input that provides "
    "further context if possible. Write a response that appropriately completes the request."
)

SLOT = re.compile(r"\{(\w+)\}")
"""A slot is a name in braces. A name has word characters of any script. ``{{a}}`` contains a slot too."""

Instruction = str | tuple[str, str]
"""An instruction is one text, or a text for the system part and a text for the user part."""


def slots_of(text: str) -> tuple[str, ...]:
    """Return the names of the slots in a text, in the order of the text and without duplicates."""
    return tuple(dict.fromkeys(SLOT.findall(text)))


def alpaca_instruction(instruction: Instruction, extra_keys: Sequence[str], dialect: PrompterDialect) -> str:
    """Return the instruction template of LazyLLM's single-turn prompter (the class ``alpaca``)."""
    extra, begin = _extra_messages(extra_keys), TASK + dialect.heading
    if isinstance(instruction, str):
        return f"{begin}{instruction}\n\n{extra}"
    if dialect.parts == "line":
        return f"{begin}{_parts(instruction)}\n\n{extra}"
    return begin + _parts(instruction, f"\n\n{extra}" if extra else "")


def chat_instruction(instruction: Instruction, extra_keys: Sequence[str], dialect: PrompterDialect) -> str:
    """Return the instruction template of LazyLLM's prompter ``chat``.

    As in LazyLLM, extra keys of an empty instruction are ignored.
    """
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


# ---------------------------------------------------------------- tools

PREAMBLE_PLACE = "<!lazyllm-fc-prompt!>"
"""The preamble replaces this tag in an instruction. If the tag is missing, the preamble follows the instruction."""

PREAMBLE = (
    "{tool_start_token}tool name (one of {tool_names})\n"
    "{tool_args_token}the input to the tool, in a JSON format representing the kwargs. Can only return json.\n"
    "{tool_end_token}end of tool.\n"
    "(e.g. {tool_start_token}tool_name\n"
    "{tool_args_token}{{'input': 'hello world', 'num_beams': 5}}\n"
    "{tool_end_token}).\n"
)
"""LazyLLM's instruction for the model about writing tool calls."""

LIST_HEADING = "### Function-call Tools. \n\n"
TOOL_NAMES = "tool_names"
"""The name of the slot for the names of the tools."""


def write_tools(tools: Sequence[Any], dialect: PrompterDialect) -> str:
    """Return the text of the tool list in the prompt; empty without tools."""
    if not tools:
        return ""
    written = write_json5(tools) if dialect.modern else json.dumps(tools)
    return f"{LIST_HEADING}{written}\n\n"


def tool_names(tools: Sequence[Mapping[str, Any]]) -> str:
    """Return the names of the tools as JSON5; empty without tools. Raises InvalidInput for a tool without a name."""
    try:
        return write_json5([tool["function"]["name"] for tool in tools]) if tools else ""
    except (KeyError, TypeError) as error:
        raise refusal(type(error).__name__, str(error)) from error


def with_preamble(text: str, tokens: SpecialTokens, *, preamble: bool) -> str:
    """Replace ``PREAMBLE_PLACE`` with the preamble or with an empty text, and fill the slots of the tool tokens."""
    text = text.replace(PREAMBLE_PLACE, PREAMBLE if preamble else "")
    for name, token in tokens.tool_tokens:
        if token:
            text = text.replace(f"{{{name}}}", token)
    return text
