"""Forced tool calls of models that read strings: the engine constrains the whole call to JSON where it can.

The prompt ends before the JSON of the call, and the format of the answer is one call of a tool that may be called.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import orjson

from gateway.backend.openai.request.constraint import ANY_OBJECT, CONSTRAINTS, refusing_target
from gateway.calls.route import Route
from gateway.core.call import Call
from gateway.core.errors import InvalidValue, UnsupportedParameter
from gateway.core.exchange import AnswerFormat
from gateway.stream.json_schema.limits import MAX_SIZE, MAX_SUBSCHEMAS, check_limits
from gateway.stream.json_schema.strict import check_strict
from gateway.stream.json_schema.subschemas import Subschema, subschemas
from metatemplate.templates.spec import ToolsSpec
from metatemplate.templates.tools import choice_of, name_of, tools_of
from metatemplate.values.dialogue import Dialogue
from metatemplate.values.prompt import Notice

CALL_KEYS: Mapping[str, str] = {"hermes": "arguments", "json": "arguments", "llama3_json": "parameters"}
"""Tool-call format whose call is one JSON object → the key of the arguments, if the template does not declare it."""
MOVES_REFERENCES = ("$id", "$anchor", "$dynamicAnchor", "$dynamicRef")
"""Keywords that cannot be used in the parameters of a tool, because the parameters become a part of another schema."""


def with_forced_call(route: Route, call: Call, dialogue: Dialogue) -> tuple[Call, Dialogue]:
    """Return the call and its conversation, with ``json_call`` if a forced call can be constrained.

    A notice names the constraint, or the reason why there is none. Raises ``UnsupportedParameter`` if a tool has
    ``strict`` and the calls of the model are not single JSON objects.
    """
    if choice_of(dialogue).mode not in ("required", "named") or route.template.spec.tools is None:
        return call, dialogue  # a template without tools refuses the request
    if reason := _obstacle(route, call, dialogue, route.template.spec.tools):
        return replace(call, notices=(*call.notices, Notice("unconstrained_call", reason))), dialogue
    notice = Notice("constrained_call", "the prompt ends before the JSON of the call")
    options = replace(dialogue.options, json_call=True)
    return replace(call, notices=(*call.notices, notice)), replace(dialogue, options=options)


def _obstacle(route: Route, call: Call, dialogue: Dialogue, tools: ToolsSpec) -> str:
    """Return why a forced call cannot be constrained; empty if it can."""
    if refusing_target(route.spec.targets) is not None:
        return "a target cannot constrain its answer to JSON"
    begins_list = tools.force is not None and tools.force.begin.partition("{")[0].rstrip().endswith("[")
    if tools.parser not in CALL_KEYS or begins_list:
        if has_strict_tool(dialogue):
            raise UnsupportedParameter(
                f"this model writes its tool calls in the format {tools.parser}, and a call is not one JSON object, so "
                "strict cannot be enforced; leave out strict",
                param="tools",
            )
        return f"a call in the format {tools.parser} of this model is not one JSON object"
    policy = route.spec.policy.params
    own = CONSTRAINTS.intersection((*call.params, *call.unknown, *policy.default, *policy.force))
    if own and not has_strict_tool(dialogue):
        return f"{min(own)} constrains the answer"
    return ""


def has_strict_tool(dialogue: Dialogue) -> bool:
    """Return whether a tool that may be called has ``strict``."""
    return any(map(_is_strict, _callable(dialogue).values()))


def forced_call_format(route: Route, dialogue: Dialogue, *, declared: bool = False) -> AnswerFormat:
    """Return the format of one call of a callable tool.

    Tools without ``strict`` may have any arguments; with ``declared``, their declared parameters apply as far as they
    keep the limits. Raises ``InvalidValue`` if the parameters of a tool with ``strict`` are too large or break its
    rules.
    """
    tools = route.template.spec.tools
    assert tools is not None  # see ``with_forced_call``
    key = CALL_KEYS[tools.parser] if tools.calls is None else tools.calls.key
    calls, definitions, room = [], {}, _Room()
    for number, tool in sorted(_callable(dialogue).items(), key=lambda one: not _is_strict(one[1])):
        where = f"tools[{number}].function.parameters"
        name = f"call{number}"
        definitions[name] = _parameters(tool, room, where, f"#/$defs/{name}", declared=declared)
        calls.append(
            {
                "type": "object",
                "properties": {"name": {"const": name_of(tool)}, key: {"$ref": f"#/$defs/{name}"}},
                "required": ["name", key],
                "additionalProperties": False,
            }
        )
    one = calls[0] if len(calls) == 1 else {"anyOf": calls}
    return AnswerFormat(schema={**one, "$defs": definitions}, name="tool_call", param="tools", call_key=key)


class _Room:
    """What the limits of one schema leave for the parameters of further tools."""

    __slots__ = ("size", "subschemas")

    def __init__(self) -> None:
        self.size = MAX_SIZE
        self.subschemas = MAX_SUBSCHEMAS

    def take(self, parameters: Any, where: str) -> list[Subschema]:
        """Return the schemas inside the parameters. Raises ``InvalidValue``, and takes no room, beyond a limit."""
        size = self.size - _size(parameters, where)
        found = check_limits(parameters, where) if size >= 0 else []
        if size < 0 or len(found) > self.subschemas:
            raise InvalidValue(
                f"the parameters of all strict tools together have more than {MAX_SIZE} bytes or {MAX_SUBSCHEMAS} "
                "schemas; send smaller ones, or fewer tools",
                param=where,
            )
        self.size, self.subschemas = size, self.subschemas - len(found)
        return found


def _parameters(tool: Mapping[str, Any], room: _Room, where: str, root: str, *, declared: bool) -> Mapping[str, Any]:
    """Return the schema of the arguments of a tool, for the place ``root`` of another schema."""
    parameters = tool["function"].get("parameters")
    if _is_strict(tool):
        if parameters is None:
            return {"type": "object", "properties": {}, "additionalProperties": False}
        check_strict(room.take(parameters, where), where)
        return _with_root(parameters, root, where)
    if declared and isinstance(parameters, dict) and parameters.get("type", "object") == "object":
        with suppress(InvalidValue):
            room.take(parameters, where)
            return _with_root({**parameters, "type": "object"}, root, where)
    return ANY_OBJECT


def _size(parameters: Any, where: str) -> int:
    if not isinstance(parameters, dict):
        raise InvalidValue(f"{where} must be an object", param=where)
    try:
        return len(orjson.dumps(parameters))
    except TypeError:
        raise InvalidValue(f"{where} has a value that JSON does not allow; leave it out", param=where) from None


def _with_root(schema: Mapping[str, Any], root: str, where: str) -> Mapping[str, Any]:
    """Return a copy of a schema whose local references are valid if the schema is at ``root`` of another schema."""
    moved: dict[str, Any] = orjson.loads(orjson.dumps(schema))
    moved.pop("$schema", None)
    for one in subschemas(moved):
        if not isinstance(one.value, dict):
            continue
        for keyword in MOVES_REFERENCES:
            if keyword in one.value:
                place = f"{one.place(where)}.{keyword}"
                raise InvalidValue(f'{place} is not supported; write a $ref such as "#/$defs/name"', param=place)
        if "$ref" in one.value:
            one.value["$ref"] = root + one.value["$ref"][1:]
    return moved


def _callable(dialogue: Dialogue) -> dict[int, Mapping[str, Any]]:
    """Return the tools that the request allows to call, by their indexes in ``tools``."""
    chosen = choice_of(dialogue).name
    return {number: tool for number, tool in enumerate(tools_of(dialogue)) if chosen in ("", name_of(tool))}


def _is_strict(tool: Mapping[str, Any]) -> bool:
    return tool["function"].get("strict") is True
