"""Makes a template from a LazyLLM prompter. The arguments of the constructor become the keys of the file.

The source is JSON or YAML with the class and its arguments, or Python with calls (``docs/spec/lazyllm.md`` 1).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gateway.importer.draft import Draft
from gateway.importer.python_file import PythonFile
from gateway.importer.source import Source
from gateway.template.lazyllm.tokens import family, family_names

CLASSES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "AlpacaPrompter": ("alpaca", ("instruction", "extra_keys", "show", "tools")),
    "ChatPrompter": ("chat", ("instruction", "extra_keys", "show", "tools", "skills", "history")),
    "EmptyPrompter": ("empty", ("show", "tools", "skills", "history")),
}
"""Class → its name in a template file, and its positional arguments. ``enable_system`` is only a keyword argument."""
WORDS = {word: name for name, (word, _) in CLASSES.items()}
NOT_CARRIED: Mapping[str, str] = {
    "show": "LazyLLM logs the prompt; the gateway shows it in /v1/render and in recordings",
    "skills": "LazyLLM puts this text after the instruction; add it to the instruction",
    "enable_system": "not imported, because it does not change a text prompt",
    "tools": "clients send the list of tools with each request",
}
CALL_MARKS = ("tool_start_token", "tool_args_token", "tool_end_token")
"""The arguments with the marks of tool calls. The same marks are used to find tool calls in an answer."""
MISSPELT = {"extro_keys": "extra_keys"}
"""Misspelt argument name of early LazyLLM releases → correct name."""


def read_lazyllm(source: Source, *, marks_of: str = "") -> list[Draft]:
    """Return a draft for each prompter of the file. Raises ``ConfigError``."""
    if marks_of and marks_of not in family_names():
        raise source.refuse(0, f"unknown family {marks_of!r}; the known families are {', '.join(family_names())}",
                            "--marks-of")  # fmt: skip
    if not source.name.endswith(".py"):
        value = source.value()
        if not isinstance(value, dict):
            raise source.refuse(0, "expected a mapping with class, instruction and other arguments of a prompter")
        word = value.get("class", value.get("prompter"))
        form = WORDS.get(word, word) if isinstance(word, str) else ""
        if form not in CLASSES:
            raise source.refuse(0, f"must be one of {', '.join(CLASSES)}", "class")
        arguments = {key: one for key, one in value.items() if key not in ("class", "prompter")}
        return [_draft(form, arguments, source.stem, 0, marks_of, source)]
    file = PythonFile(source)
    found = list(file.find_calls(tuple(CLASSES)))
    if not found:
        raise source.refuse(0, f"the file has no call of {' or '.join(CLASSES)} with plain values")
    drafts = []
    for name, call in found:
        file.check_unchanged(call, f"the {call.last}")
        arguments = dict(zip(CLASSES[call.last][1], call.args, strict=False)) | dict(call.keywords)
        for key, argument in arguments.items():
            if key not in NOT_CARRIED:
                file.check_plain(argument, f"{key} of {call.last}")
        name = name if len(found) > 1 and name else source.stem
        draft = _draft(call.last, arguments, name, call.line, marks_of, source)
        drafts.append(replace(draft, notes=(*draft.notes, *file.notes)))
    return drafts


def _draft(form: str, arguments: dict[str, Any], name: str, line: int, marks_of: str, source: Source) -> Draft:
    word, known = CLASSES[form]
    notes: list[str] = []
    for old, new in MISSPELT.items():
        if old in arguments:
            arguments[new] = arguments.pop(old)
            notes.append(f"{old} (the spelling of LazyLLM 0.1) was imported as {new}")
    for key in arguments:
        if key not in (*known, "enable_system"):
            raise source.refuse(line, f"{form} has no argument {str(key)[:40]}; known are {', '.join(known)}")
    keys: dict[str, Any] = {
        "kind": "prompter",
        "description": f"Imported from {source.short_name}: LazyLLM's {form}.",
        "class": word,
        **({"marks_of": marks_of} if marks_of else {}),
    }
    for key, value in arguments.items():
        if key in NOT_CARRIED:
            if value not in (None, False, [], ()):
                notes.append(f"{key}: {NOT_CARRIED[key]}")
        elif value not in (None, "", [], ()):
            keys[key] = value
    marks = family(marks_of) if marks_of else {}
    if arguments.get("tools") and all(marks.get(name) for name in CALL_MARKS):
        keys["tools"] = {"parser": "lazyllm"}
    elif arguments.get("tools"):
        notes.append("tools: the template accepts no tools, because it has no marks for tool calls; "
                     "write them under marks, and add `tools: {parser: lazyllm}`")  # fmt: skip
    if not marks_of and word != "empty":
        notes.append("special tokens are missing; give the model's family with --marks-of, or write marks")
    return Draft(
        name=name.lower().replace(" ", "-"),
        origin=f"the LazyLLM prompter {form} of {source.short_name}" + (f", line {line}" if line else ""),
        sha256=source.sha256,
        keys=keys,
        notes=tuple(notes),
        examples_by="this gateway's own prompter, which was compared with lazyllm 1.4.0",
    )
