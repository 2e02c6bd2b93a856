"""Are ``tools`` and ``thinking`` of a template file usable? For every kind that makes a string."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from gateway.template.roles import SYSTEM, role_names
from gateway.template.spec.template import RoleSpec, TemplateSpec
from gateway.template.spec.tools import (
    PARSERS,
    CallForm,
    ForceForm,
    ResultForm,
    ThinkingSpec,
    ToolList,
    ToolsSpec,
    ToolTokens,
)
from gateway.template.validation.problems import Path, Problems

KEYS = ("tools", "thinking")
PARSING_KEYS = ("parser", "tokens", "force")
"""What every kind declares; the rest says how a meta template writes."""
WRITING_KEYS = ("declare", "calls", "results")
FIELDS = ("reasoning_content", "reasoning")

TURNS = ("system", "first_user", "last_user")
PLACES = ("before_text", "after_text", "before_turn", "after_turn")
LIST_TEXTS = ("begin", "separator", "end", "between", "system")
CALL_TEXTS = ("after_text", "begin", "each_begin", "between", "each_end", "separator", "end")


def read_tools(keys: Mapping[str, Any], problems: Problems, *, writes: bool) -> ToolsSpec | None:
    """The key ``tools``. ``writes``: the file says how tools are written, because its kind does not."""
    if "tools" not in keys:
        return None
    path: Path = ("tools",)
    entry = problems.mapping(keys["tools"], path, "`tools`")
    for key in WRITING_KEYS if not writes else ():
        if key in entry:
            problems.add((*path, key), "has no effect: this kind of template writes tools in its own way; remove it")
    problems.keys(entry, (*PARSING_KEYS, *WRITING_KEYS), path)
    if "parser" not in entry:
        problems.add(path, f"has no `parser`: name the format of the model's calls, one of {', '.join(PARSERS)}")
    parser = problems.choice(entry.get("parser", "json"), (*path, "parser"), PARSERS, "json")
    return ToolsSpec(
        parser=parser,
        tokens=_tokens(entry, parser, problems),
        declare=_list(entry["declare"], problems) if "declare" in entry else None,
        calls=_calls(entry["calls"], problems) if "calls" in entry else None,
        results=_results(entry["results"], problems) if "results" in entry else ResultForm(),
        force=_force(entry["force"], problems) if "force" in entry else None,
    )


def read_thinking(keys: Mapping[str, Any], problems: Problems) -> ThinkingSpec | None:
    """The key ``thinking``."""
    if "thinking" not in keys:
        return None
    path: Path = ("thinking",)
    entry = problems.mapping(keys["thinking"], path, "`thinking`")
    problems.keys(entry, ("begin", "end", "open", "fields"), path)
    for key in ("begin", "end"):
        if key not in entry:
            problems.add(path, f"has no `{key}`: the marker that the model writes, such as </think>")
    listed = problems.items(entry.get("fields", FIELDS), (*path, "fields"))
    fields = [problems.choice(field, (*path, "fields", i), FIELDS, FIELDS[0]) for i, field in enumerate(listed)]
    if not fields:
        problems.add((*path, "fields"), f"is empty: name at least one of {', '.join(FIELDS)}")
    return ThinkingSpec(
        begin=problems.word(entry.get("begin", "?"), (*path, "begin")),
        end=problems.word(entry.get("end", "?"), (*path, "end")),
        open="auto" if entry.get("open") == "auto" else problems.flag(entry.get("open", False), (*path, "open")),
        fields=tuple(dict.fromkeys(fields)),
    )


def refuse_tools(keys: Mapping[str, Any], problems: Problems) -> None:
    """For templates that make messages: who answers them reads calls and reasoning itself."""
    for key in KEYS:
        if key in keys:
            problems.add((key,), f"has no effect where messages are sent: the target does that itself; remove {key}")


# ---------------------------------------------------------------- parts


def _tokens(tools: Mapping[str, Any], parser: str, problems: Problems) -> ToolTokens:
    if "tokens" not in tools:
        return ToolTokens()
    path: Path = ("tools", "tokens")
    entry = problems.mapping(tools["tokens"], path, "`tokens`")
    problems.keys(entry, ("start", "args", "end"), path)
    if parser != "lazyllm":
        problems.add(path, f"is for parser lazyllm only; {parser} has markers of its own: remove it")
    for key in ("start", "end"):
        if key not in entry:
            problems.add(path, f"has no `{key}`: a call stands between `start` and `end`")
    texts = {key: problems.word(entry[key], (*path, key)) for key in ("start", "args", "end") if key in entry}
    return ToolTokens(**texts)


def _list(value: Any, problems: Problems) -> ToolList:
    path: Path = ("tools", "declare")
    entry = problems.mapping(value, path, "`declare`")
    problems.keys(entry, ("turn", "place", "each", "indent", *LIST_TEXTS), path)
    return ToolList(
        turn=cast(Any, problems.choice(entry.get("turn", "system"), (*path, "turn"), TURNS, "system")),
        place=cast(Any, problems.choice(entry.get("place", "after_text"), (*path, "place"), PLACES, "after_text")),
        each=cast(Any, problems.choice(entry.get("each", "tool"), (*path, "each"), ("tool", "function"), "tool")),
        indent=_indent(entry, path, problems),
        **_texts(entry, LIST_TEXTS, path, problems),
    )


def _indent(entry: Mapping[str, Any], path: Path, problems: Problems) -> int | None:
    indent = entry.get("indent")
    if indent is None or (type(indent) is int and 0 <= indent <= 8):
        return indent
    problems.add((*path, "indent"), "must be a number of spaces, 0 to 8")
    return None


def _calls(value: Any, problems: Problems) -> CallForm:
    path: Path = ("tools", "calls")
    entry = problems.mapping(value, path, "`calls`")
    problems.keys(entry, ("body", "key", *CALL_TEXTS), path)
    body = problems.choice(entry.get("body", "json"), (*path, "body"), ("json", "named", "python"), "json")
    if "key" in entry and body != "json":
        problems.add((*path, "key"), f"is for body: json; {body} does not name the arguments: remove it")
    if "between" in entry and body != "named":
        problems.add((*path, "between"), f"is for body: named, between name and arguments; {body} has no such place")
    key = problems.choice(entry.get("key", "arguments"), (*path, "key"), ("arguments", "parameters"), "arguments")
    return CallForm(body=cast(Any, body), key=cast(Any, key), **_texts(entry, CALL_TEXTS, path, problems))


def _results(value: Any, problems: Problems) -> ResultForm:
    path: Path = ("tools", "results")
    entry = problems.mapping(value, path, "`results`")
    problems.keys(entry, ("begin", "end", "together", "separator"), path)
    together = problems.flag(entry.get("together", False), (*path, "together"))
    if "separator" in entry and not together:
        problems.add((*path, "separator"), "stands between results in one turn: set together: true, or remove it")
    return ResultForm(together=together, **_texts(entry, ("begin", "end", "separator"), path, problems))


def _force(value: Any, problems: Problems) -> ForceForm | None:
    path: Path = ("tools", "force")
    entry = problems.mapping(value, path, "`force`")
    problems.keys(entry, ("begin", "end"), path)
    for key in ("begin", "end"):
        if key not in entry:
            problems.add(path, f"has no `{key}`: begin stands before a demanded tool's name, end behind it")
    texts = _texts(entry, ("begin", "end"), path, problems)
    return ForceForm(**texts) if "begin" in texts else None


def _texts(entry: Mapping[str, Any], names: tuple[str, ...], path: Path, problems: Problems) -> dict[str, str]:
    return {name: problems.text(entry[name], (*path, name)) for name in names if name in entry}


# ---------------------------------------------------------------- what must fit together


def check_forced(spec: TemplateSpec, problems: Problems) -> None:
    """A call that the prompt begins must not begin inside the reasoning. For every kind."""
    tools, thinking = spec.tools, spec.thinking
    if tools is None or tools.force is None or thinking is None or not thinking.open:
        return
    if thinking.open == "auto":
        problems.add(
            ("tools", "force"),
            "where a call has to begin depends on the prompt with open: auto: say open: true or false",
        )
    elif thinking.end not in tools.force.begin:
        problems.add(
            ("tools", "force", "begin"),
            f"would stand inside the reasoning, which the prompt has opened: begin with {thinking.end!a}",
        )


def check_written(spec: TemplateSpec, problems: Problems) -> None:
    """What a meta template needs to write tools."""
    tools = spec.tools
    if tools is None:
        return
    path: Path = ("tools",)
    if spec.turns == "opencompass":
        problems.add(path, "turns: opencompass knows no tools; use turns: natural, or remove `tools`")
    roles = {entry.role: entry for entry in (*spec.round, *spec.reserved_roles) if isinstance(entry, RoleSpec)}
    if tools.declare is None:
        problems.add(path, "has no `declare`: say how the request's tools are written into the prompt")
    elif tools.declare.turn == "system" and SYSTEM not in roles:
        problems.add((*path, "declare", "turn"), "system needs a role SYSTEM: add it, or use first_user or last_user")
    elif tools.declare.system and tools.declare.turn != "system":
        problems.add((*path, "declare", "system"), "is the text of a system turn, and no such turn is made: remove it")
    if tools.calls is not None and role_names(spec).get("tool") not in roles:
        problems.add((*path, "calls"), "results follow calls, and nobody speaks them: write `roles: {tool: …}`")
    if tools.results.together and any(not isinstance(entry, RoleSpec) or entry.prompt for entry in spec.round):
        problems.add(
            (*path, "results", "together"), "cannot be where the round has texts of its own between turns: remove it"
        )
