"""Checks the keys ``tools`` and ``thinking`` of templates that make a string."""

from __future__ import annotations

from typing import get_args

from metatemplate.files.problems import Problems
from metatemplate.templates.roles import SYSTEM, role_names
from metatemplate.templates.spec import ResultForm, RoleSpec, TemplateSpec, ToolsSpec
from metatemplate.values.answer_markers import ReasoningField, ToolTokens
from metatemplate.values.json_values import KeyPath, not_one_of

MAX_INDENT = 8
PATH: KeyPath = ("tools",)


def check_tools(spec: TemplateSpec, problems: Problems) -> None:
    """Check that the values of ``tools`` and ``thinking`` fit together."""
    if spec.thinking is not None and not spec.thinking.fields:
        problems.add(("thinking", "fields"), f"is empty: name at least one of {', '.join(get_args(ReasoningField))}")
    if spec.tools is None:
        return
    from metatemplate.answers.tool_calls.registry import FORMATS  # a template without tools does not need the formats

    tools = spec.tools
    if tools.parser not in FORMATS:
        problems.add((*PATH, "parser"), not_one_of(FORMATS, tools.parser))
    if tools.tokens != ToolTokens() and not (tools.tokens.start and tools.tokens.end):
        problems.add((*PATH, "tokens"), "needs both `start` and `end`: add the missing key")
    if tools.declare is not None and (tools.declare.indent or 0) > MAX_INDENT:
        problems.add((*PATH, "declare", "indent"), f"must be a number of spaces, 0 to {MAX_INDENT}")
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
            problems.add(
                (*PATH, key), "has no effect: this kind of template writes tools in its own way; remove this key"
            )


def _check_forced(spec: TemplateSpec, problems: Problems) -> None:
    """Check that a forced call cannot begin inside the reasoning."""
    tools, thinking = spec.tools, spec.thinking
    if tools is None or tools.force is None or thinking is None or not thinking.open:
        return
    if thinking.open == "auto":
        problems.add(
            (*PATH, "force"),
            "needs thinking.open: true or false; auto is not possible with force",
        )
    elif thinking.end not in tools.force.begin:
        problems.add(
            (*PATH, "force", "begin"),
            f"must contain {thinking.end!a}, because the prompt opens the reasoning",
        )


def _check_written(spec: TemplateSpec, tools: ToolsSpec, problems: Problems) -> None:
    """Check that a meta template has the keys that are needed to write tools."""
    if spec.turns == "opencompass":
        problems.add(PATH, "turns: opencompass does not support tools; use turns: natural, or remove `tools`")
    roles = [entry.role for entry in (*spec.round, *spec.reserved_roles) if isinstance(entry, RoleSpec)]
    if tools.declare is None:
        problems.add(PATH, "has no `declare`: add this key, which describes the list of tools in the prompt")
    elif tools.declare.turn == "system" and SYSTEM not in roles:
        problems.add(
            (*PATH, "declare", "turn"), "system needs a role SYSTEM: add this role, or use first_user or last_user"
        )
    if tools.calls is not None and role_names(spec).get("tool") not in roles:
        problems.add((*PATH, "calls"), "no role writes the results of calls: write `roles: {tool: …}`")
    if tools.results.together and any(not isinstance(entry, RoleSpec) or entry.prompt for entry in spec.round):
        problems.add(
            (*PATH, "results", "together"),
            "is not possible if the round has its own texts between turns: remove this key",
        )
