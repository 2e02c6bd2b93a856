"""How does a setting of a LazyLLM prompter become a template? The constructor's arguments become the file's keys.

Read from JSON or YAML with the arguments and the class, or from Python with calls of the classes, as syntax
(``specs/lazyllm.md`` 1).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.importer.draft import Draft
from gateway.importer.python_source.module import read_module
from gateway.importer.python_source.values import Module, refuse_changed, refuse_trouble
from gateway.importer.source import Source
from gateway.template.lazyllm.families import family, family_names

CLASSES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "AlpacaPrompter": ("alpaca", ("instruction", "extra_keys", "show", "tools")),
    "ChatPrompter": ("chat", ("instruction", "extra_keys", "show", "tools", "skills", "history")),
    "EmptyPrompter": ("empty", ("show", "tools", "skills", "history")),
}
"""Class → our word for it, and its arguments in order; ``enable_system`` is only given by name."""
BY_WORD = {word: name for name, (word, _) in CLASSES.items()}
NOT_CARRIED: Mapping[str, str] = {
    "show": "LazyLLM logs the prompt; here /v1/render and the recording show it",
    "skills": "a text that LazyLLM puts behind the instruction: write it there",
    "enable_system": "has no effect on a text prompt in LazyLLM either",
    "tools": "the list of tools itself: clients send it with each request",
}
MISSPELT = {"extro_keys": "extra_keys"}
"""Names of early releases."""


def read_lazyllm(source: Source, *, marks_of: str = "") -> list[Draft]:
    """A draft for each prompter of the file. Raises ``ConfigError``."""
    if marks_of and marks_of not in family_names():
        raise source.refuse(0, f"no family {marks_of!r} in LazyLLM's table; there are: {', '.join(family_names())}",
                            "--marks-of")  # fmt: skip
    if not source.name.endswith(".py"):
        value = source.value()
        if not isinstance(value, dict):
            raise source.refuse(0, "holds no prompter: a mapping with class, instruction, extra_keys …")
        return [_draft(*_from_mapping(value, source), source.stem, 0, marks_of, Module(), source)]
    module = read_module(source)
    found = list(module.find_calls(tuple(CLASSES)))
    if not found:
        raise source.refuse(0, f"calls none of {', '.join(CLASSES)} where it could be read as syntax")
    drafts = []
    for name, call in found:
        if (error := refuse_changed(module, call, f"the {call.last}", source)) is not None:
            raise error
        arguments = dict(zip(CLASSES[call.last][1], call.args, strict=False)) | dict(call.keywords)
        named = name if len(found) > 1 and name else source.stem
        drafts.append(_draft(call.last, arguments, named, call.line, marks_of, module, source))
    return drafts


def _from_mapping(value: Mapping[str, Any], source: Source) -> tuple[str, dict[str, Any]]:
    form = value.get("class", value.get("prompter"))
    name = BY_WORD.get(form, form) if isinstance(form, str) else ""
    if name not in CLASSES:
        raise source.refuse(0, f"must be one of {', '.join(CLASSES)}", "class")
    return name, {key: one for key, one in value.items() if key not in ("class", "prompter")}


def _draft(
    form: str, arguments: dict[str, Any], name: str, line: int, marks_of: str, module: Module, source: Source
) -> Draft:
    word, known = CLASSES[form]
    notes: list[str] = []
    for old, new in MISSPELT.items():
        if old in arguments:
            arguments[new] = arguments.pop(old)
            notes.append(f"{old} is the spelling of 0.1: written as {new}")
    for key in arguments:
        if key not in (*known, "enable_system"):
            raise source.refuse(line, f"{form} takes no argument {str(key)[:40]}: {', '.join(known)}")
    keys: dict[str, Any] = {
        "kind": "prompter",
        "description": f"Imported from {source.short}: LazyLLM's {form}.",
        "class": word,
        **({"marks_of": marks_of} if marks_of else {}),
    }
    for key, value in arguments.items():
        if key in NOT_CARRIED:
            if value not in (None, False, [], ()):
                notes.append(f"{key}: {NOT_CARRIED[key]}")
            continue
        if (error := refuse_trouble(module, value, f"{key} of {form}", source)) is not None:
            raise error
        if value not in (None, "", [], ()):
            keys[key] = _plain(value)
    if arguments.get("tools"):
        _take_tools(keys, marks_of, notes)
    if not marks_of and word != "empty":
        notes.append("no tokens: name the model's family with --marks-of, or write marks")
    return Draft(
        name=name.lower().replace(" ", "-"),
        origin=f"the LazyLLM prompter {form} of {source.short}" + (f", line {line}" if line else ""),
        digest=source.digest,
        keys=keys,
        notes=(*notes, *module.notes),
        stands_for="this gateway's own prompter, which was compared with lazyllm 1.4.0",
    )


def _take_tools(keys: dict[str, Any], marks_of: str, notes: list[str]) -> None:
    """The prompter writes tools; here that needs the marks of calls, by which the answer is read as well."""
    marks = family(marks_of) if marks_of else {}
    if all(marks.get(name) for name in ("tool_start_token", "tool_args_token", "tool_end_token")):
        keys["tools"] = {"parser": "lazyllm"}
    else:
        notes.append("tools: the template takes none, because it has no marks for calls: "
                     "write them under marks, and tools: {parser: lazyllm}")  # fmt: skip


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return [_plain(one) for one in value] if isinstance(value, list) else value
