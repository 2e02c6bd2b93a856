"""The tools, tool calls and tool choice of a request, for templates that write them into a string.

A wrong value gives a 400 that names the field. Templates that make messages pass these fields on without a check.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

from metatemplate.errors import InvalidInput, UnsupportedInput
from metatemplate.templates.spec import ForceForm, ToolsSpec
from metatemplate.values.dialogue import Dialogue, Message
from metatemplate.values.prompt import Segment
from metatemplate.values.words import suggest

NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
"""A valid function name has the characters that OpenAI allows, and dots, which other servers allow."""

Mode = Literal["auto", "none", "required", "named"]
MODES: Mapping[str, Mode] = {"auto": "auto", "none": "none", "required": "required"}


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call in an assistant's message."""

    name: str
    arguments: Mapping[str, Any]
    """The parsed arguments. The client sends the arguments as JSON text."""


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """The checked ``tool_choice`` of a request."""

    mode: Mode
    name: str = ""
    """The name of the tool that must be called, if the choice is ``named``."""


AUTO, NONE = ToolChoice("auto"), ToolChoice("none")


def tools_of(dialogue: Dialogue) -> tuple[Mapping[str, Any], ...]:
    """Check and return the request's tools. Each is ``{type: function, function: {name: …}}`` with a unique name.

    Raises UnsupportedInput for a tool that is not a function, and InvalidInput for other mistakes.
    """
    names: set[str] = set()
    for number, tool in enumerate(dialogue.options.tools):
        name = _checked_name(tool, f"tools[{number}]")
        if name in names:
            param = f"tools[{number}].function.name"
            raise InvalidInput(f"{param} is used by two tools; give each tool its own name", param=param)
        names.add(name)
    return dialogue.options.tools


def _name_in(tool: Mapping[str, Any]) -> Any:
    function = tool.get("function")
    return function.get("name") if isinstance(function, Mapping) else None


def _checked_name(raw: Mapping[str, Any], place: str) -> str:
    """Return the name of the function of a tool or a call. ``place``: the place of ``raw`` in the request."""
    if raw.get("type", "function") != "function":
        param = f"{place}.type"
        raise UnsupportedInput(f"{param}: this model accepts only tools of type function", param=param)
    name, param = _name_in(raw), f"{place}.function.name"
    if name is None:
        message = f'{param} is missing; write {{"type": "function", "function": {{"name": "add", …}}}}'
        raise InvalidInput(message, param=param)
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise InvalidInput(f"{param} must be 1 to 64 letters, digits, underscores, dots or dashes", param=param)
    return name


def name_of(tool: Mapping[str, Any]) -> str:
    """Return the name of a tool from ``tools_of``."""
    return str(tool["function"]["name"])


def choice_of(dialogue: Dialogue) -> ToolChoice:
    """Return the tool choice of the request; ``none`` if the request has no tools. Raises InvalidInput."""
    raw = dialogue.options.tool_choice
    choice = AUTO if raw is None else _choice(raw)
    if not dialogue.options.tools:
        if choice.mode not in ("auto", "none"):
            raise InvalidInput(
                "tool_choice forces a call, but the request has no tools; add tools, or leave tool_choice out",
                param="tool_choice",
            )
        return NONE
    if dialogue.options.whole and choice.mode in ("required", "named"):
        raise InvalidInput(
            "tool_choice forces a call, but add_generation_prompt is false; leave out one of the two fields",
            param="tool_choice",
        )
    if choice.mode == "named" and choice.name not in map(name_of, tools_of(dialogue)):
        known = suggest(choice.name, map(name_of, dialogue.options.tools))
        raise InvalidInput(f"tool_choice names a function that is not in tools{known}", param="tool_choice")
    return choice


def _choice(raw: str | Mapping[str, Any]) -> ToolChoice:
    if isinstance(raw, str):
        if raw in MODES:
            return ToolChoice(MODES[raw])
    elif raw.get("type") == "function" and isinstance(name := _name_in(raw), str):
        return ToolChoice("named", name)
    raise InvalidInput(
        'tool_choice must be "none", "auto", "required" or {"type": "function", "function": {"name": …}}',
        param="tool_choice",
    )


def calls_of(message: Message, number: int) -> tuple[ToolCall, ...]:
    """Return the tool calls of ``messages[number]`` with parsed arguments.

    Raises UnsupportedInput for ``function_call`` and for calls of other types, and InvalidInput for other mistakes.
    """
    if message.raw.get("function_call"):
        raise UnsupportedInput(
            "function_call is the old form of tool_calls; send tool_calls", param=f"messages[{number}].function_call"
        )
    raws = message.raw.get("tool_calls") or ()
    if raws and message.role != "assistant":
        raise InvalidInput("only an assistant message may have tool_calls", param=f"messages[{number}].tool_calls")
    return tuple(_call(raw, f"messages[{number}].tool_calls[{at}]") for at, raw in enumerate(raws))


def _call(raw: Mapping[str, Any], param: str) -> ToolCall:
    name = _checked_name(raw, param)
    text, value = raw["function"].get("arguments", "{}"), None
    with suppress(ValueError, RecursionError):
        value = json.loads(text) if isinstance(text, str) else None
        as_json(value).encode()  # fails on a lone surrogate, and on a number that JSON does not have
        if isinstance(value, dict):
            return ToolCall(name, value)
    param = f"{param}.function.arguments"
    raise InvalidInput(f"{param} must be a string that holds a JSON object", param=param)


def as_json(value: Any, indent: int | None = None) -> str:
    """Return a value as JSON, as chat templates write it: a space after each comma and colon, and no ASCII escapes."""
    return json.dumps(value, ensure_ascii=False, indent=indent, allow_nan=False)


def forced(tools: ToolsSpec, dialogue: Dialogue, choice: ToolChoice, role: str) -> tuple[Segment, ...]:
    """Return the beginning of the forced call, for the end of the prompt. A ``named`` choice includes the tool's name.

    With ``json_call``, only the text before the JSON of the call is returned.

    Return an empty tuple if ``tool_choice`` forces no call. Raises UnsupportedInput if the template cannot force a
    call, and InvalidInput if the last message is to be continued.
    """
    if choice.mode not in ("required", "named"):
        return ()
    force: ForceForm | None = tools.force
    if force is None:
        raise UnsupportedInput(
            "this model's template cannot force a call: it has no key `force` under `tools`. "
            "Leave tool_choice out, or write auto.",
            param="tool_choice",
        )
    if dialogue.options.continue_final:
        raise InvalidInput(
            "tool_choice cannot force a call if continue_final_message is true; leave out one of the two",
            param="tool_choice",
        )
    begin = force.begin.partition("{")[0] if dialogue.options.json_call else force.begin
    segments = [Segment(begin, role, "generate", True)]
    if choice.name and not dialogue.options.json_call:
        segments += [Segment(choice.name, role, "tool_choice", False), Segment(force.end, role, "generate", True)]
    return tuple([segment for segment in segments if segment.text])
