"""The texts that describe tools in the prompt (``docs/spec/lazyllm.md`` 7)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from gateway.template.lazyllm.dialects import PrompterDialect
from gateway.template.lazyllm.errors import missing_key
from gateway.template.lazyllm.json5 import write_json5
from gateway.template.lazyllm.tokens import SpecialTokens

PREAMBLE_PLACE = "<!lazyllm-fc-prompt!>"
"""In an instruction: replaced by the preamble. Without it the preamble follows the instruction."""

PREAMBLE = (
    "{tool_start_token}tool name (one of {tool_names})\n"
    "{tool_args_token}the input to the tool, in a JSON format representing the kwargs. Can only return json.\n"
    "{tool_end_token}end of tool.\n"
    "(e.g. {tool_start_token}tool_name\n"
    "{tool_args_token}{{'input': 'hello world', 'num_beams': 5}}\n"
    "{tool_end_token}).\n"
)
"""LazyLLM's explanation of calls."""

LIST_HEADING = "### Function-call Tools. \n\n"
TOOL_NAMES = "tool_names"
"""The slot of the tools' names."""


def write_tools(tools: Sequence[Any], dialect: PrompterDialect) -> str:
    """The list of tools as the prompt shows it; empty without tools."""
    if not tools:
        return ""
    written = write_json5(tools) if dialect.modern else json.dumps(tools)
    return f"{LIST_HEADING}{written}\n\n"


def tool_names(tools: Sequence[Mapping[str, Any]]) -> str:
    """The names as JSON5; empty without tools. Raises PrompterError for a tool without a name."""
    if not tools:
        return ""
    names: list[Any] = []
    for tool in tools:
        if "function" not in tool:
            raise missing_key("function")
        if "name" not in tool["function"]:
            raise missing_key("name")
        names.append(tool["function"]["name"])
    return write_json5(names)


def with_preamble(text: str, tokens: SpecialTokens, *, preamble: bool) -> str:
    """The text with the preamble in its place, if it is wanted there, and the tool tokens in their slots."""
    text = text.replace(PREAMBLE_PLACE, PREAMBLE if preamble else "")
    for name, token in tokens.tool_tokens:
        if token:
            text = text.replace(f"{{{name}}}", token)
    return text
