"""Forced calls of tools with ``strict``, for models that read strings: the engine constrains the whole call to JSON.

The prompt ends before the JSON of the call, and the format of the answer is one call of a tool that may be called.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import orjson

from gateway.backend.openai.request.constraint import refusing_target
from gateway.calls.route import Route
from gateway.core.call import Call
from gateway.core.dialogue import Dialogue
from gateway.core.errors import InvalidValue, UnsupportedParameter
from gateway.core.exchange import AnswerFormat
from gateway.core.prompt import Notice
from gateway.stream.json_schema.limits import MAX_SIZE, MAX_SUBSCHEMAS, check_limits
from gateway.stream.json_schema.strict import check_strict
from gateway.stream.json_schema.subschemas import subschemas
from gateway.template.spec import ToolsSpec
from gateway.template.tools import choice_of, name_of, tools_of

CALL_KEYS: Mapping[str, str] = {"hermes": "arguments", "json": "arguments", "llama3_json": "parameters"}
"""Tool-call format whose call is one JSON object → the key of the arguments, if the template does not declare it."""
MOVES_REFERENCES = ("$id", "$anchor", "$dynamicAnchor", "$dynamicRef")
"""Keywords that cannot be used in the parameters of a tool, because the parameters become a part of another schema."""


def with_strict_call(route: Route, call: Call, dialogue: Dialogue) -> tuple[Call, Dialogue]:
    """Return the call and its conversation, with ``json_call`` if the request forces a call of a tool with ``strict``.

    If a target cannot constrain its answer, the call is forced as without ``strict``, with a notice. Raises
    ``UnsupportedParameter`` if the calls of the model are not single JSON objects.
    """
    if choice_of(dialogue).mode not in ("required", "named") or not any(map(_is_strict, _callable(dialogue).values())):
        return call, dialogue
    tools = route.template.spec.tools
    if tools is None:  # the template refuses the request
        return call, dialogue
    if refusing_target(route.spec.targets) is not None:
        notice = Notice("strict_not_enforced", "a target cannot constrain its answer to JSON")
        return replace(call, notices=(*call.notices, notice)), dialogue
    if tools.parser not in CALL_KEYS or _begins_list(tools):
        raise UnsupportedParameter(
            f"this model writes its tool calls in the format {tools.parser}, and a call is not one JSON object, so "
            "strict cannot be enforced; leave out strict",
            param="tools",
        )
    notice = Notice("strict_call", "the prompt ends before the JSON of the call")
    options = replace(dialogue.options, json_call=True)
    return replace(call, notices=(*call.notices, notice)), replace(dialogue, options=options)


def strict_call_format(route: Route, dialogue: Dialogue) -> AnswerFormat:
    """Return the format of one call of a callable tool. Tools without ``strict`` may have any arguments.

    Raises ``InvalidValue`` if the parameters of a tool are too large or break the rules of ``strict``.
    """
    tools = route.template.spec.tools
    assert tools is not None  # see ``with_strict_call``
    key = CALL_KEYS[tools.parser] if tools.calls is None else tools.calls.key
    calls, definitions, size, count = [], {}, 0, 0
    for number, tool in _callable(dialogue).items():
        parameters, where = tool["function"].get("parameters"), f"tools[{number}].function.parameters"
        if not _is_strict(tool):
            parameters = {"type": "object"}
        elif parameters is None:
            parameters = {"type": "object", "properties": {}, "additionalProperties": False}
        else:
            size += _size(parameters, where)
            if size <= MAX_SIZE:
                found = check_limits(parameters, where)
                check_strict(found, where)
                count += len(found)
            if size > MAX_SIZE or count > MAX_SUBSCHEMAS:
                raise InvalidValue(
                    f"the parameters of all strict tools together have more than {MAX_SIZE} bytes or {MAX_SUBSCHEMAS} "
                    "schemas; send smaller ones, or fewer tools",
                    param=where,
                )
        name = f"call{number}"
        definitions[name] = _with_root(parameters, f"#/$defs/{name}", where)
        calls.append({
            "type": "object",
            "properties": {"name": {"const": name_of(tool)}, key: {"$ref": f"#/$defs/{name}"}},
            "required": ["name", key],
            "additionalProperties": False,
        })  # fmt: skip
    one = calls[0] if len(calls) == 1 else {"anyOf": calls}
    return AnswerFormat(schema={**one, "$defs": definitions}, name="tool_call", param="tools", call_key=key)


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


def _begins_list(tools: ToolsSpec) -> bool:
    """Return whether the template begins a forced call inside a list."""
    return tools.force is not None and tools.force.begin.partition("{")[0].rstrip().endswith("[")


def _callable(dialogue: Dialogue) -> dict[int, Mapping[str, Any]]:
    """Return the tools that the request allows to call, by their indexes in ``tools``."""
    chosen = choice_of(dialogue).name
    return {number: tool for number, tool in enumerate(tools_of(dialogue)) if chosen in ("", name_of(tool))}


def _is_strict(tool: Mapping[str, Any]) -> bool:
    return tool["function"].get("strict") is True
