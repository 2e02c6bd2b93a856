"""Makes a template from a LazyLLM prompter. The arguments of the constructor become keys of the template file.

The source is JSON or YAML with the class and its arguments, or Python with calls (``docs/spec/lazyllm.md`` 1).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from gateway.workshop.importer.draft import Draft
from gateway.workshop.importer.python.values import CallExpression
from gateway.workshop.importer.python_file import PythonFile, check_plain
from gateway.workshop.importer.source import Source
from metatemplate.prompters.instruction import TOOL_NAMES, slots_of
from metatemplate.prompters.tokens import family, family_names, family_of_model, online_system

LAZYLLM_CLASSES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "AlpacaPrompter": ("alpaca", ("instruction", "extra_keys", "show", "tools")),
    "ChatPrompter": ("chat", ("instruction", "extra_keys", "show", "tools", "skills", "history")),
    "EmptyPrompter": ("empty", ("show", "tools", "skills", "history")),
}
"""Class → (name in a template file, positional arguments). ``enable_system`` is only a keyword argument."""
WORDS = {word: name for name, (word, _) in LAZYLLM_CLASSES.items()}
NOT_CARRIED: Mapping[str, str] = {
    "show": "LazyLLM logs the prompt; the gateway shows it in /v1/render",
    "skills": "LazyLLM puts this text after the instruction; add it to the instruction",
    "enable_system": "not imported, because it does not change a text prompt",
}
CALL_MARKS = ("tool_start_token", "tool_args_token", "tool_end_token")
"""The arguments with the marks of tool calls. The same marks are used to find tool calls in an answer."""
INPUT = "input"
"""The name that LazyLLM's examples give to the slot for the user's text."""
LOCAL, ONLINE = "TrainableModule", "OnlineChatModule"
"""LazyLLM's model classes. Their method ``prompt`` sets the tokens or the system sentence of a prompter."""
MISSPELT = {"extro_keys": "extra_keys"}
"""Misspelt argument name of early LazyLLM releases → correct name."""


def read_lazyllm(source: Source, *, marks_of: str = "") -> list[Draft]:
    """Return a draft for each prompter of the file. Raises ``ConfigError`` if the file cannot be imported."""
    if marks_of and marks_of not in family_names() and not family_of_model(marks_of):
        raise source.refuse(
            0, f"unknown family or model {marks_of!r}; the known families are {', '.join(family_names())}", "--marks-of"
        )
    if not source.name.endswith(".py"):
        value = source.value()
        if not isinstance(value, dict):
            raise source.refuse(0, "the file must contain a mapping with a prompter's class and arguments")
        word = value.get("class", value.get("prompter"))
        form = WORDS.get(word, word) if isinstance(word, str) else ""
        if form not in LAZYLLM_CLASSES:
            raise source.refuse(0, f"must be one of {', '.join(LAZYLLM_CLASSES)}", "class")
        arguments = {key: one for key, one in value.items() if key not in ("class", "prompter")}
        return [_draft(form, arguments, source.stem, 0, _Model(marks_of), source)]
    file = PythonFile(source)
    found = list(file.find_calls(tuple(LAZYLLM_CLASSES)))
    if not found:
        raise source.refuse(0, f"the file has no call of {' or '.join(LAZYLLM_CLASSES)} with plain values")
    drafts = []
    for name, call in found:
        arguments = dict(zip(LAZYLLM_CLASSES[call.last][1], call.args, strict=False)) | dict(call.keywords)
        for key, argument in arguments.items():
            if key not in NOT_CARRIED and not (key == "tools" and not isinstance(argument, list)):
                check_plain(argument, f"{key} of {call.last}", source)
        name = name if len(found) > 1 and name else source.stem
        model = _Model(marks_of) if marks_of else _model_of(call, file, source)
        draft = _draft(call.last, arguments, name, call.line, model, source)
        drafts.append(replace(draft, notes=(*draft.notes, *file.notes)))
    return drafts


@dataclass(frozen=True, slots=True)
class _Model:
    """The model with which a prompter is used."""

    marks_of: str = ""
    """The name of a model or of a model family, which decides the special tokens; empty: no special tokens."""
    system: str | None = None
    """The system sentence of a provider's models; None: the default of the model family or of LazyLLM is used."""
    online: bool = False
    notes: tuple[str, ...] = ()


def _model_of(prompter: CallExpression, file: PythonFile, source: Source) -> _Model:
    """Return the model whose method ``prompt`` receives this prompter. Raises ``ConfigError`` for several models."""
    methods = [one for one in file.methods if one.last == "prompt" and one.args[:1] == (prompter,)]
    owners = [one.owner for one in methods if one.owner is not None and one.owner.last in (LOCAL, ONLINE)]
    if len(owners) > 1:
        raise source.refuse(
            owners[1].line,
            f"the prompter of line {prompter.line} is used with several models, and LazyLLM changes the prompter "
            "for each model; choose a model with --marks-of, or write one file for each model",
        )
    if not owners:
        return _Model()
    given = {**owners[0].keywords}
    named = owners[0].args[0] if owners[0].args else given.get("source" if owners[0].last == ONLINE else "base_model")
    shown = f"{owners[0].last}({named!r}) of line {owners[0].line}"
    if owners[0].last == ONLINE:
        system = online_system(named) if isinstance(named, str) else None
        note = f"{shown} adds a system sentence to the prompter; the template file contains this sentence under marks"
        if system is None:
            note = f"LazyLLM does not know the provider of {shown}; write the provider's system sentence under marks"
        return _Model(system=system, online=True, notes=(note,))
    if isinstance(named, str) and family_of_model(named):
        return _Model(named, notes=(f"marks_of is the model of {shown}",))
    return _Model(notes=(f"LazyLLM has no tokens for {shown}",))


def _draft(form: str, arguments: dict[str, Any], name: str, line: int, model: _Model, source: Source) -> Draft:
    word, known = LAZYLLM_CLASSES[form]
    notes: list[str] = list(model.notes)
    for old, new in MISSPELT.items():
        if old in arguments:
            arguments[new] = arguments.pop(old)
            notes.append(f"{old} (the spelling of LazyLLM 0.1) was imported as {new}")
    for key in arguments:
        if key not in (*known, "enable_system"):
            raise source.refuse(line, f"{form} has no argument {str(key)[:40]}; use {', '.join(known)}")
    keys: dict[str, Any] = {
        "kind": "prompter",
        "description": f"Imported from {source.short_name}: LazyLLM's {form}.",
        "class": word,
        **({"marks_of": model.marks_of} if model.marks_of else {}),
        **({"marks": {"system": model.system}} if model.system is not None else {}),
    }
    for key, value in arguments.items():
        if key in NOT_CARRIED:
            if value not in (None, False, [], ()):
                notes.append(f"{key}: {NOT_CARRIED[key]}")
        elif key != "tools" and value not in (None, "", [], ()):
            keys[key] = value
    if any(isinstance(one, dict) for one in keys.get("history", ())):
        if model.marks_of and not model.online:
            raise source.refuse(
                line,
                "history has mappings, which only API models can get: for a model that takes a "
                "string, LazyLLM writes the words role and content; write pairs of texts",
            )
        keys["history_messages"] = list(_history_messages(keys.pop("history")))
        notes.append("history: only API models get these messages; models that take a string are refused")
    _add_tools(arguments.get("tools"), keys, model, notes)
    _add_input_slot(keys, notes)
    if not model.marks_of and not model.online and word != "empty":
        notes.append("special tokens are missing; give the model's family with --marks-of, or write them under marks")
    return Draft(
        name=name.lower().replace(" ", "-"),
        origin=f"the LazyLLM prompter {form} of {source.short_name}" + (f", line {line}" if line else ""),
        sha256=source.sha256,
        keys=keys,
        notes=tuple(notes),
        examples_by="this gateway's own prompter, which was compared with lazyllm 1.4.0",
    )


def _add_tools(tools: Any, keys: dict[str, Any], model: _Model, notes: list[str]) -> None:
    if not tools:
        return
    if keys["class"] == "empty":
        notes.append("tools: not imported, because a prompter of this class sends the user message unchanged")
        return
    family_name = model.marks_of if model.marks_of in family_names() else family_of_model(model.marks_of)
    marks = family(family_name) if family_name else {}
    if all(marks.get(name) for name in CALL_MARKS):
        keys["tools"] = {"parser": "lazyllm"}
    elif not model.online:
        notes.append(
            "tools: only API models get the tools, because the template has no marks for tool calls; for "
            "models that take a string, write marks, and add `tools: {parser: lazyllm}`"
        )
    if isinstance(tools, list):
        keys["default_tools"] = tools
    else:
        notes.append(f"tools: in LazyLLM, {tools} makes the list of tools; clients must send the list themselves")


def _history_messages(history: list[Any]) -> Iterator[Any]:
    """Yield the messages of a history with mappings, as LazyLLM sends them: a pair of texts is two messages."""
    for item in history:
        if isinstance(item, (list, tuple)):
            yield from (
                {"role": role, "content": text} for role, text in zip(("user", "assistant"), item, strict=False)
            )
        else:
            yield item


def _add_input_slot(keys: dict[str, Any], notes: list[str]) -> None:
    """Let the user message fill the slot ``input`` if there are several slots, as in LazyLLM's own examples.

    In a prompter of class ``alpaca`` it fills the only slot of the instruction, if the other slots are extra keys.
    """
    instruction, extra = keys.get("instruction", ""), keys.get("extra_keys", [])
    texts = [instruction] if isinstance(instruction, str) else list(instruction.values())
    found = slots_of("".join([one for one in texts if isinstance(one, str)]))
    own = [slot for slot in found if slot != TOOL_NAMES]  # LazyLLM fills this slot
    extra = [extra] if isinstance(extra, str) else list(extra)
    slots = tuple(dict.fromkeys([*own, *extra]))
    only = [slot for slot in own if slot not in extra] if keys["class"] == "alpaca" else []
    slot = INPUT if INPUT in slots else only[0] if len(only) == 1 else ""
    others = [one for one in slots if one != slot]
    if slot and others:
        keys["input_slot"] = slot
        notes.append(
            f"input_slot: the user message fills {slot}; gateway.variables fills the other slots: {', '.join(others)}"
        )
