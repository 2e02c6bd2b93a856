"""The tools of a request: functions, and namespaces, which are groups of functions.

Chat requests have no namespaces. So the function ``add`` of the namespace ``sums`` becomes the function
``sums__add``, and a call of this function in the answer has the client's two names again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gateway.core.errors import InvalidValue, UnsupportedParameter
from gateway.wire.responses_api.fields import FunctionChoice, FunctionTool, NamespaceTool
from gateway.wire.responses_api.items import checked, flat_name
from metatemplate.values.words import quoted

CHOICES = ("none", "auto", "required")
SWITCHES: Mapping[str, str] = {"web_search": ' (Codex CLI: web_search = "disabled" in config.toml)'}
"""Type of a tool that the server would run → how to switch it off in a client that sends it by default."""


def read_tools(raws: Sequence[Mapping[str, Any]]) -> list[FunctionTool | NamespaceTool]:
    """Return the checked tools. Raises ``RequestError`` for a tool that the server would run."""
    return [_tool(raw, f"tools[{number}]") for number, raw in enumerate(raws)]


def _tool(raw: Mapping[str, Any], where: str) -> FunctionTool | NamespaceTool:
    kind = raw.get("type")
    if kind == "namespace":
        return checked(NamespaceTool, raw, where)
    return _function(raw, where)


def _function(raw: Mapping[str, Any], where: str) -> FunctionTool:
    kind = raw.get("type")
    if isinstance(kind, str) and kind != "function":
        raise UnsupportedParameter(
            f"{where} has the type {quoted(kind)}; the gateway runs no tools, so it accepts only functions; "
            f"leave the tool out{SWITCHES.get(kind, '')}",
            param=f"{where}.type",
        )
    if "name" not in raw and isinstance(raw.get("function"), Mapping):
        raise InvalidValue(
            f"{where} has the form of /v1/chat/completions; here name and parameters are beside type: "
            '{"type": "function", "name": "add", "parameters": {…}}',
            param=f"{where}.name",
        )
    return checked(FunctionTool, raw, where)


def chat_tools(tools: Sequence[FunctionTool | NamespaceTool]) -> list[dict[str, Any]]:
    """Return the tools of a chat request. Raises ``InvalidValue`` if functions of a namespace share their name."""
    functions: list[dict[str, Any]] = []
    for number, tool in enumerate(tools):
        own = (
            [tool]
            if isinstance(tool, FunctionTool)
            else [_function(raw, f"tools[{number}].tools[{place}]") for place, raw in enumerate(tool.tools)]
        )
        namespace = tool.name if isinstance(tool, NamespaceTool) else None
        for function in own:
            fields = function.model_dump(exclude={"type"}, exclude_none=True)
            functions.append({**fields, "name": flat_name(namespace, function.name)})
    count = Counter([function["name"] for function in functions])
    for flat, (namespace, name) in namespaced([tool.model_dump() for tool in tools]).items():
        if count[flat] > 1:
            raise InvalidValue.at(
                "tools",
                f" has two functions with the name {quoted(flat)}, which is also that of the function "
                f"{quoted(name)} in the namespace {quoted(namespace)}; rename one of them",
            )
    return [{"type": "function", "function": function} for function in functions]


def namespaced(tools: Iterable[Mapping[str, Any]]) -> dict[str, tuple[str, str]]:
    """Return the functions of all namespaces: name in chat requests → (namespace, name). ``tools``: the request's."""
    return {
        flat_name(tool["name"], function["name"]): (tool["name"], function["name"])
        for tool in tools
        if tool["type"] == "namespace"
        for function in tool["tools"]
    }


def chat_tool_choice(value: str | Mapping[str, Any], tools: Sequence[FunctionTool | NamespaceTool]) -> Any:
    """Return the ``tool_choice`` of a chat request. Raises ``RequestError`` for an unsupported choice.

    ``tools``: the request's tools, which ``chat_tools`` has accepted.
    """
    if isinstance(value, str):
        if value in CHOICES:
            return value
        raise InvalidValue.at("tool_choice", f" must be one of {', '.join(CHOICES)}, or a function")
    kind = value.get("type")
    if isinstance(kind, str) and kind != "function":
        raise UnsupportedParameter(
            f"tool_choice of type {quoted(kind)} is not supported; send only the tools that may be called, "
            "or choose one function",
            param="tool_choice.type",
        )
    name = _chosen_name(checked(FunctionChoice, value, "tool_choice"), tools)
    return {"type": "function", "function": {"name": name}}


def _chosen_name(choice: FunctionChoice, tools: Sequence[FunctionTool | NamespaceTool]) -> str:
    """Return the name in chat requests of the chosen function. A name that no function has is returned unchanged."""
    names = namespaced([tool.model_dump() for tool in tools])
    if choice.namespace is not None:
        flat = flat_name(choice.namespace, choice.name)
        if names.get(flat) != (choice.namespace, choice.name):
            raise InvalidValue(
                f"tools has no function {quoted(choice.name)} in the namespace {quoted(choice.namespace)}, "
                "which tool_choice names",
                param="tool_choice",
            )
        return flat
    own = {tool.name for tool in tools if isinstance(tool, FunctionTool)}
    found = {flat: namespace for flat, (namespace, name) in names.items() if name == choice.name}
    if choice.name in own or choice.name in names or not found:
        return choice.name
    if len(found) > 1:
        raise InvalidValue(
            f"tool_choice: the function {quoted(choice.name)} is in the namespaces "
            f"{', '.join(map(quoted, found.values()))}; choose one of them with tool_choice.namespace",
            param="tool_choice.namespace",
        )
    return next(iter(found))
