"""The keys ``tools`` and ``thinking``, for every kind of template that makes a string."""

from __future__ import annotations

from typing import get_args

from gateway.template.roles import SYSTEM, role_names
from gateway.template.spec import ReasoningField, ResultForm, RoleSpec, TemplateSpec, ToolsSpec, ToolTokens
from gateway.template.validation.problems import Path, Problems

KEYS = ("tools", "thinking")
MAX_INDENT = 8
PATH: Path = ("tools",)


def check_tools(spec: TemplateSpec, problems: Problems) -> None:
    """The values of the two keys that must fit together."""
    if spec.thinking is not None and not spec.thinking.fields:
        problems.add(("thinking", "fields"), f"is empty: name at least one of {', '.join(get_args(ReasoningField))}")
    if spec.tools is None:
        return
    _check_parts(spec.tools, problems)
    _check_forced(spec, problems)
    if spec.kind == "meta":
        _check_written(spec, spec.tools, problems)
    else:
        own_form = {
            "declare": spec.tools.declare is not None,
            "calls": spec.tools.calls is not None,
            "results": spec.tools.results != ResultForm(),
        }
        for key in [key for key, is_given in own_form.items() if is_given]:
            problems.add((*PATH, key), "has no effect: this kind of template writes tools in its own way; remove it")


def _check_parts(tools: ToolsSpec, problems: Problems) -> None:
    tokens, calls = tools.tokens, tools.calls
    if tokens != ToolTokens():
        if tools.parser != "lazyllm":
            problems.add(
                (*PATH, "tokens"), f"applies only to parser lazyllm; {tools.parser} has its own markers: remove it"
            )
        for key in [key for key in ("start", "end") if not getattr(tokens, key)]:
            problems.add((*PATH, "tokens"), f"has no `{key}`: a call stands between `start` and `end`")
    if tools.declare is not None and (tools.declare.indent or 0) > MAX_INDENT:
        problems.add((*PATH, "declare", "indent"), f"must be a number of spaces, 0 to {MAX_INDENT}")
    if calls is not None and calls.key != "arguments" and calls.body != "json":
        problems.add((*PATH, "calls", "key"), "applies only to body: json: remove it")
    if calls is not None and calls.between and calls.body != "named":
        problems.add(
            (*PATH, "calls", "between"),
            "applies only to body: named, where it stands between name and arguments: remove it",
        )
    if tools.results.separator and not tools.results.together:
        problems.add((*PATH, "results", "separator"), "needs results in one turn: set together: true, or remove it")


def _check_forced(spec: TemplateSpec, problems: Problems) -> None:
    """A call that the prompt begins must not begin inside the reasoning."""
    tools, thinking = spec.tools, spec.thinking
    if tools is None or tools.force is None or thinking is None or not thinking.open:
        return
    if thinking.open == "auto":
        problems.add(
            (*PATH, "force"),
            "with thinking.open: auto, the position of a forced call is not known: write open: true or false",
        )
    elif thinking.end not in tools.force.begin:
        problems.add(
            (*PATH, "force", "begin"),
            f"would be inside the reasoning, which the prompt has opened: begin with {thinking.end!a}",
        )


def _check_written(spec: TemplateSpec, tools: ToolsSpec, problems: Problems) -> None:
    """The keys that a meta template needs to write tools."""
    if spec.turns == "opencompass":
        problems.add(PATH, "turns: opencompass has no tools; use turns: natural, or remove `tools`")
    roles = [entry.role for entry in (*spec.round, *spec.reserved_roles) if isinstance(entry, RoleSpec)]
    if tools.declare is None:
        problems.add(PATH, "has no `declare`: write the form of the list of tools in the prompt")
    elif tools.declare.turn == "system" and SYSTEM not in roles:
        problems.add((*PATH, "declare", "turn"), "system needs a role SYSTEM: add it, or use first_user or last_user")
    elif tools.declare.system and tools.declare.turn != "system":
        problems.add((*PATH, "declare", "system"), "is the text of an added system turn, and none is added: remove it")
    if tools.calls is not None and role_names(spec).get("tool") not in roles:
        problems.add((*PATH, "calls"), "no role writes the results of calls: write `roles: {tool: …}`")
    if tools.results.together and any(not isinstance(entry, RoleSpec) or entry.prompt for entry in spec.round):
        problems.add(
            (*PATH, "results", "together"), "is not possible where the round has its own texts between turns: remove it"
        )
