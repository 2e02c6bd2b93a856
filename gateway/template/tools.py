"""What tools, calls and choices does a conversation hold? Read once, in one form, for every template that writes them.

Templates that make a string call these; where messages are sent, the target reads them itself. What is wrong is a 400
that names its place: nothing is guessed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

from gateway.core.dialogue import Dialogue, Message
from gateway.core.errors import InvalidValue, UnsupportedParameter
from gateway.template.spec.tools import ForceForm, ToolsSpec

NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
"""What a function may be called: OpenAI's signs, and the dot that other servers take."""

Mode = Literal["auto", "none", "required", "named"]
MODES: Mapping[str, Mode] = {"auto": "auto", "none": "none", "required": "required"}


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that an assistant's message holds."""

    name: str
    arguments: Mapping[str, Any]
    """Parsed: on the wire they are JSON in a string."""
    id: str = ""


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """What ``tool_choice`` asks for."""

    mode: Mode
    name: str = ""
    """The tool that must be called, with ``named``."""


AUTO, NONE = ToolChoice("auto"), ToolChoice("none")


def tools_of(dialogue: Dialogue) -> tuple[Mapping[str, Any], ...]:
    """The request's tools, each ``{type: function, function: {name: …}}``, whole, names unique.

    Raises InvalidValue, and UnsupportedParameter for tools that are no functions.
    """
    names: set[str] = set()
    for number, tool in enumerate(dialogue.tools):
        param = f"tools[{number}]"
        if tool.get("type", "function") != "function":
            raise UnsupportedParameter(f"{param}.type: this model takes functions only", param=f"{param}.type")
        function = tool.get("function")
        name = function.get("name") if isinstance(function, Mapping) else None
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise InvalidValue(
                f"{param}.function.name must be 1 to 64 letters, digits, underscores, dots or dashes",
                param=f"{param}.function.name",
            )
        if name in names:
            raise InvalidValue(f"{param}.function.name comes twice", param=f"{param}.function.name")
        names.add(name)
    return dialogue.tools


def name_of(tool: Mapping[str, Any]) -> str:
    """The name of a tool that ``tools_of`` has let through."""
    return str(tool["function"]["name"])


def choice_of(dialogue: Dialogue) -> ToolChoice:
    """What the answer may be; without tools ``none``. Raises InvalidValue."""
    raw = dialogue.tool_choice
    choice = AUTO if raw is None else _choice(raw)
    if not dialogue.tools:
        if choice.mode not in ("auto", "none"):
            raise InvalidValue("tool_choice demands a call, but there are no tools", param="tool_choice")
        return NONE
    if choice.mode == "named" and choice.name not in map(name_of, tools_of(dialogue)):
        raise InvalidValue("tool_choice names a function that is not among the tools", param="tool_choice")
    return choice


def _choice(raw: str | Mapping[str, Any]) -> ToolChoice:
    if isinstance(raw, str):
        mode = MODES.get(raw)
        if mode is not None:
            return ToolChoice(mode)
    elif raw.get("type") == "function":
        function = raw.get("function")
        name = function.get("name") if isinstance(function, Mapping) else None
        if isinstance(name, str):
            return ToolChoice("named", name)
    raise InvalidValue(
        'tool_choice must be "none", "auto", "required" or {"type": "function", "function": {"name": …}}',
        param="tool_choice",
    )


def calls_of(message: Message, number: int) -> tuple[ToolCall, ...]:
    """The calls of ``messages[number]``, arguments parsed. Raises InvalidValue and UnsupportedParameter."""
    if message.raw.get("function_call"):
        raise UnsupportedParameter(
            "function_call is the old form of tool_calls, which this model takes; send tool_calls",
            param=f"messages[{number}].function_call",
        )
    raws = message.raw.get("tool_calls") or ()
    if raws and message.role != "assistant":
        raise InvalidValue("only the assistant calls tools", param=f"messages[{number}].tool_calls")
    return tuple(_call(raw, f"messages[{number}].tool_calls[{at}]") for at, raw in enumerate(raws))


def _call(raw: Mapping[str, Any], param: str) -> ToolCall:
    if raw.get("type", "function") != "function":
        raise UnsupportedParameter(f"{param}.type: this model takes functions only", param=f"{param}.type")
    function = raw.get("function")
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str) or not function["name"]:
        raise InvalidValue(f"{param}.function.name is missing", param=f"{param}.function.name")
    if not NAME.fullmatch(function["name"]):
        raise InvalidValue(
            f"{param}.function.name must be 1 to 64 letters, digits, underscores, dots or dashes",
            param=f"{param}.function.name",
        )
    said = function.get("arguments", "{}")
    arguments = _object(said) if isinstance(said, str) else None
    if arguments is None:
        raise InvalidValue(
            f"{param}.function.arguments must be a string that holds a JSON object",
            param=f"{param}.function.arguments",
        )
    id_ = raw.get("id")
    return ToolCall(function["name"], arguments, id_ if isinstance(id_, str) else "")


def _object(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text, parse_constant=_refuse)
        as_json(value).encode()  # half a character, or a number too large for a float
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


def as_json(value: Any, indent: int | None = None) -> str:
    """JSON as chat templates write it: a blank after each comma and colon, nothing escaped that need not be."""
    return json.dumps(value, ensure_ascii=False, indent=indent, allow_nan=False)


def forced(tools: ToolsSpec, dialogue: Dialogue, choice: ToolChoice) -> tuple[str, str, str]:
    """What the prompt ends with for this choice: the opening of a call, a name, and what follows it.

    All empty where nothing is demanded. Raises UnsupportedParameter where the template cannot demand a call.
    """
    if choice.mode not in ("required", "named"):
        return "", "", ""
    force: ForceForm | None = tools.force
    if force is None:
        raise UnsupportedParameter(
            "this model cannot be made to call a tool: its template declares no `force` under `tools`. "
            "Leave tool_choice out, or say auto.",
            param="tool_choice",
        )
    if dialogue.continue_final:
        raise InvalidValue(
            "tool_choice cannot demand a call inside a message that is to be continued", param="tool_choice"
        )
    return (force.begin, choice.name, force.end) if choice.name else (force.begin, "", "")
