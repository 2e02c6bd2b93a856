"""The keys ``tools`` and ``thinking``, for every kind of template that makes a string."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from gateway.template.roles import SYSTEM, role_names
from gateway.template.spec.template import RoleSpec, TemplateSpec
from gateway.template.spec.tools import ReasoningField, ThinkingSpec, ToolsSpec
from gateway.template.validation.problems import Path, Problems

KEYS = ("tools", "thinking")
WRITING_KEYS = ("declare", "calls", "results")
"""The keys for kinds that do not have their own form for tools."""
MAX_INDENT = 8


def read_tools(keys: Mapping[str, Any], problems: Problems, *, writes: bool) -> ToolsSpec | None:
    """The key ``tools``. ``writes``: the file gives the form of tools, because its kind has none."""
    if "tools" not in keys:
        return None
    path: Path = ("tools",)
    given = _mapping(keys["tools"])
    for key in WRITING_KEYS if not writes else ():
        if key in given:
            problems.add((*path, key), "has no effect: this kind of template writes tools in its own way; remove it")
    tools = problems.record(ToolsSpec, keys["tools"], path)
    if given.get("tokens") is not None:
        _check_tokens(tools, problems)
    if tools.declare is not None and (tools.declare.indent or 0) > MAX_INDENT:
        problems.add((*path, "declare", "indent"), f"must be a number of spaces, 0 to {MAX_INDENT}")
    if tools.calls is not None:
        _check_calls(tools.calls.body, _mapping(given["calls"]), problems)
    if tools.results.separator and not tools.results.together:
        problems.add((*path, "results", "separator"), "needs results in one turn: set together: true, or remove it")
    return tools


def read_thinking(keys: Mapping[str, Any], problems: Problems) -> ThinkingSpec | None:
    """The key ``thinking``."""
    if "thinking" not in keys:
        return None
    path: Path = ("thinking",)
    thinking = problems.record(ThinkingSpec, keys["thinking"], path)
    for key in ("begin", "end"):
        if _mapping(keys["thinking"]).get(key) == "":
            problems.add((*path, key), "must not be empty: write the marker that the model writes, such as </think>")
    if not thinking.fields:
        problems.add((*path, "fields"), f"is empty: name at least one of {', '.join(get_args(ReasoningField))}")
    return thinking


def refuse_tools(keys: Mapping[str, Any], problems: Problems) -> None:
    """Add a problem for each of the two keys in a template that makes messages."""
    for key in KEYS:
        if key in keys:
            problems.add((key,), f"has no effect where messages are sent: the target does that itself; remove {key}")


def _mapping(value: Any) -> Mapping[str, Any]:
    """The value, or an empty mapping for a value that ``Problems.record`` has refused."""
    return value if isinstance(value, Mapping) else {}


def _check_tokens(tools: ToolsSpec, problems: Problems) -> None:
    path: Path = ("tools", "tokens")
    if tools.parser != "lazyllm":
        problems.add(path, f"applies only to parser lazyllm; {tools.parser} has its own markers: remove it")
    for key in ("start", "end"):
        if not getattr(tools.tokens, key):
            problems.add(path, f"has no `{key}`: a call stands between `start` and `end`")


def _check_calls(body: str, given: Mapping[str, Any], problems: Problems) -> None:
    path: Path = ("tools", "calls")
    if "key" in given and body != "json":
        problems.add((*path, "key"), f"applies only to body: json; {body} has no key for the arguments: remove it")
    if "between" in given and body != "named":
        problems.add(
            (*path, "between"), "applies only to body: named, where it stands between name and arguments: remove it"
        )


# ---------------------------------------------------------------- keys that must fit together


def check_forced(spec: TemplateSpec, problems: Problems) -> None:
    """A call that the prompt begins must not begin inside the reasoning. For every kind."""
    tools, thinking = spec.tools, spec.thinking
    if tools is None or tools.force is None or thinking is None or not thinking.open:
        return
    if thinking.open == "auto":
        problems.add(
            ("tools", "force"),
            "with thinking.open: auto, the position of a forced call is not known: write open: true or false",
        )
    elif thinking.end not in tools.force.begin:
        problems.add(
            ("tools", "force", "begin"),
            f"would be inside the reasoning, which the prompt has opened: begin with {thinking.end!a}",
        )


def check_written(spec: TemplateSpec, problems: Problems) -> None:
    """The keys that a meta template needs to write tools."""
    tools = spec.tools
    if tools is None:
        return
    path: Path = ("tools",)
    if spec.turns == "opencompass":
        problems.add(path, "turns: opencompass has no tools; use turns: natural, or remove `tools`")
    roles = {entry.role: entry for entry in (*spec.round, *spec.reserved_roles) if isinstance(entry, RoleSpec)}
    if tools.declare is None:
        problems.add(path, "has no `declare`: write the form of the list of tools in the prompt")
    elif tools.declare.turn == "system" and SYSTEM not in roles:
        problems.add((*path, "declare", "turn"), "system needs a role SYSTEM: add it, or use first_user or last_user")
    elif tools.declare.system and tools.declare.turn != "system":
        problems.add((*path, "declare", "system"), "is the text of an added system turn, and none is added: remove it")
    if tools.calls is not None and role_names(spec).get("tool") not in roles:
        problems.add((*path, "calls"), "no role writes the results of calls: write `roles: {tool: …}`")
    if tools.results.together and any(not isinstance(entry, RoleSpec) or entry.prompt for entry in spec.round):
        problems.add(
            (*path, "results", "together"), "is not possible where the round has its own texts between turns: remove it"
        )
