"""How are tools announced to a model that reads text? (``specs/lazyllm.md`` 7)"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from typing import Any

from gateway.template.lazyllm.dialects import CURRENT, Dialect
from gateway.template.lazyllm.errors import PrompterError, missing_key
from gateway.template.lazyllm.json5_write import write_json5
from gateway.template.lazyllm.marks import SpecialMarks
from gateway.template.lazyllm.runs import Run, Runs, joined, replaced

PLACE = "<!lazyllm-fc-prompt!>"
"""Where an instruction wants the preamble; without it the preamble comes last."""

PREAMBLE = (
    "{tool_start_token}tool name (one of {tool_names})\n"
    "{tool_args_token}the input to the tool, in a JSON format representing the kwargs. Can only return json.\n"
    "{tool_end_token}end of tool.\n"
    "(e.g. {tool_start_token}tool_name\n"
    "{tool_args_token}{{'input': 'hello world', 'num_beams': 5}}\n"
    "{tool_end_token}).\n"
)

WHAT_A_CALLABLE_MAY_ASK = ("query", "history")


def write_tools(tools: Any, dialect: Dialect = CURRENT) -> str:
    """The list as the prompt shows it; empty without tools."""
    if not tools:
        return ""
    listed = write_json5(tools) if dialect.modern else json.dumps(tools)
    return f"### Function-call Tools. \n\n{listed}\n\n"


def with_preamble(instruction: Runs, *, wanted: bool) -> Runs:
    """The instruction with the explanation of calls at its place, or at its end; without it when not wanted."""
    if wanted and PLACE not in joined(instruction):
        instruction = (*instruction, Run("\n\n" + PREAMBLE))
    return replaced(instruction, PLACE, Run(PREAMBLE if wanted else ""))


def with_tool_tokens(instruction: Runs, marks: SpecialMarks, tools: Any) -> Runs:
    """The configured tool tokens and the tools' names, wherever the instruction asks for them."""
    for name, token in marks.tool_tokens:
        if token and name in joined(instruction):
            instruction = replaced(instruction, f"{{{name}}}", Run(token))
    if "tool_names" in joined(instruction):
        instruction = replaced(instruction, "{tool_names}", Run(tool_names(tools), "tools", True))
    return instruction


def tool_names(tools: Any) -> str:
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


def resolved(given: Any, query: Any, history: Any) -> Any:
    """Tools or skills; a callable is asked with what its signature names."""
    if not callable(given):
        return given
    asked: Callable[..., Any] = given
    known: Mapping[str, Any] = {"query": query, "history": history}
    wanted = inspect.signature(asked).parameters
    return asked(**{name: known[name] for name in WHAT_A_CALLABLE_MAY_ASK if name in wanted})


def check_one_source(both: Any, dialect: Dialect) -> None:
    """The 0.1 releases take tools from the constructor or from the call. Raises PrompterError for both."""
    if both and not dialect.modern:
        raise PrompterError("AssertionError")
