"""How does an Ollama Modelfile become a meta template? Its TEMPLATE is rendered, and the turns are found by probing.

Who renders is a small evaluator of Go templates, with what Ollama does around it (``template/template.go`` of Ollama):
neighbours of one role are joined by a blank line; a template that knows ``.Messages`` is given them at once, any other
one is rendered once for each exchange and cut behind ``.Response`` for the last.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gateway.core.dialogue import Dialogue
from gateway.core.errors import InvalidValue
from gateway.importer.draft import (
    CONTINUED,
    EMPTY,
    ENDS_EARLY,
    NEIGHBOURS,
    ODD_SYSTEM,
    STARTS_LATE,
    SUBSETS,
    TOOLS,
    Draft,
    Exclusion,
    Reference,
)
from gateway.importer.go import render as go_render
from gateway.importer.go.functions import Struct
from gateway.importer.go.syntax import parse
from gateway.importer.go.tree import Action, Branch, GoError, Literal, Node, Path, Pipe
from gateway.importer.modelfile import Instruction, read_modelfile
from gateway.importer.source import Source
from gateway.importer.turns import NotTurns, infer

JOINT = "\n\n"
"""Between neighbours of one role, and between system messages."""

PARAMETERS: Mapping[str, str] = {
    "num_ctx": "the engine's context length: start the engine with it",
    "num_predict": "in a policy, `params: {{default: {{max_tokens: {value}}}}}`",
    "temperature": "in a policy, `params: {{default: {{temperature: {value}}}}}`",
    "top_p": "in a policy, `params: {{default: {{top_p: {value}}}}}`",
    "seed": "in a policy, `params: {{default: {{seed: {value}}}}}`",
}
"""Where a parameter has its place here; any other is the engine's."""


def read_ollama(source: Source, *, subset: Iterable[str] = ()) -> Draft:
    """The draft. Raises ``ConfigError`` with the line of what cannot be carried over."""
    instructions = read_modelfile(source)
    subset = tuple(subset)
    template = _template(instructions, source)
    stops = [one.value for one in instructions if one.word == "PARAMETER" and one.name == "stop"]
    try:
        reference = reference_of(parse(template.value), subset=subset)
        turns = infer(_saying(reference), system="system" not in subset, closes=False)
    except GoError as error:
        line = template.value_line + max(error.line, 1) - 1
        raise source.refuse(line, error.message, "TEMPLATE") from None
    except NotTurns as error:
        hint = "" if "system" in subset else "; --without system leaves system messages out"
        raise source.refuse(template.line, f"begin and end of roles cannot say it: {error.message}{hint}",
                            "TEMPLATE") from None  # fmt: skip
    keys: dict[str, Any] = {
        "kind": "meta",
        "description": f"Imported from the Ollama file {source.short}.",
        **turns.keys(),
        **({"stop": list(dict.fromkeys(stops))} if stops else {}),
        "bos": "engine",
    }
    return Draft(
        name=source.stem.lower(),
        origin=f"the Ollama file {source.short}, TEMPLATE on line {template.line}",
        digest=source.digest,
        keys=keys,
        notes=(*_notes(instructions, template), *turns.unended(stops)),
        reference=reference,
        subset=subset,
    )


def _template(instructions: Sequence[Instruction], source: Source) -> Instruction:
    for one in instructions:
        if one.word == "RENDERER":
            raise source.refuse(one.line, f"Ollama's own code renders this model ({one.value}), not a template: "
                                "import the model's tokenizer folder instead")  # fmt: skip
    found = [one for one in instructions if one.word == "TEMPLATE"]
    if not found:
        raise source.refuse(0, "no TEMPLATE: Ollama takes the one inside the model, which `ollama show --modelfile` "
                            "prints; or import the model's tokenizer folder")  # fmt: skip
    return found[-1]


def _notes(instructions: Sequence[Instruction], template: Instruction) -> list[str]:
    notes = ["bos: engine, because Ollama's engine puts the model's BOS before the text"]
    for one in instructions:
        where = f"line {one.line}"
        match one.word:
            case "TEMPLATE" if one is not template:
                notes.append(f"{where}: an earlier TEMPLATE, which the last one replaces")
            case "SYSTEM":
                notes.append(f"{where}: SYSTEM {one.value!r} is sent by Ollama when a request brings no system "
                             "message; a template has no such default: let clients send it")  # fmt: skip
            case "PARAMETER" if one.name != "stop":
                told = PARAMETERS.get(one.name, "an engine's setting: write it there")
                notes.append(f"{where}: PARAMETER {one.name} {one.value}: {told.format(value=one.value)}")
            case "FROM":
                notes.append(f"{where}: FROM {one.value}: name the model in gateway.yaml")
            case "ADAPTER" | "DRAFT" | "MESSAGE" | "REQUIRES" | "PARSER":
                what = f"{one.name} {one.value}".strip()
                notes.append(f"{where}: {one.word} {what!r} has no place in a template")
    return notes


# ---------------------------------------------------------------- Ollama's way with a template


def reference_of(nodes: tuple[Node, ...], *, subset: Iterable[str] = ()) -> Reference:
    """Renders dialogues as Ollama would. Raises ``GoError`` for what it cannot cut."""
    knows_messages = "messages" in {name.lower() for name in _names(nodes)}
    if not knows_messages and "response" not in {name.lower() for name in _names(nodes)}:
        nodes = (*nodes, Action(Pipe(((Path("", ("Response",), 0),),), (), False, 0)))
    last = nodes if knows_messages else _cut(nodes)[0]

    def text(dialogue: Dialogue) -> str:
        messages = _collated(dialogue)
        try:
            return _at_once(nodes, messages) if knows_messages else _by_exchange(nodes, last, messages)
        except GoError as error:
            raise InvalidValue(error.message, param="messages") from None

    always: tuple[Exclusion, ...] = (TOOLS, EMPTY, NEIGHBOURS, ODD_SYSTEM, STARTS_LATE, ENDS_EARLY, CONTINUED)
    excluded = (*[SUBSETS[word] for word in subset], *always)
    return Reference(
        "this gateway's reader of Go templates, with Ollama's rules", text, None, "engine", excluded=excluded
    )


def _saying(reference: Reference) -> Any:
    from gateway.template.registry import dialogue_of
    from gateway.template.spec.template import Example

    def say(messages: Sequence[Mapping[str, str]], open_turn: bool) -> str:
        return reference.render(dialogue_of(Example(tuple(messages))))

    return say


def _collated(dialogue: Dialogue) -> list[Struct]:
    found: list[Struct] = []
    for message in dialogue.messages:
        if found and found[-1]["Role"] == message.role != "tool":
            found[-1]["Content"] += JOINT + message.text
        else:
            found.append(Struct(Role=message.role, Content=message.text, Thinking="", Images=[], ToolCalls=[],
                                ToolName="", ToolCallID=""))  # fmt: skip
    return found


def _at_once(nodes: Sequence[Node], messages: list[Struct]) -> str:
    system = JOINT.join([one["Content"] for one in messages if one["Role"] == "system"])
    data = {"System": system, "Messages": messages, "Tools": [], "Response": "", "Think": False, "IsThinkSet": False}
    return go_render.render(nodes, data)


def _by_exchange(nodes: Sequence[Node], last: Sequence[Node], messages: list[Struct]) -> str:
    out: list[str] = []
    said = dict.fromkeys(("System", "Prompt", "Response"), "")

    def finish(shape: Sequence[Node]) -> None:
        out.append(go_render.render(shape, {**said, "Think": False, "IsThinkSet": False}))
        said.update(dict.fromkeys(said, ""))

    for message in messages:
        role = message["Role"]
        if (role == "system" and (said["Prompt"] or said["Response"])) or (role == "user" and said["Response"]):
            finish(nodes)
        name = {"system": "System", "user": "Prompt", "assistant": "Response"}.get(role)
        if name:
            said[name] = message["Content"]
    finish(last)
    return "".join(out)


def _names(value: Any) -> set[str]:
    """Every name of a field or variable in a tree."""
    if isinstance(value, Path):
        inner = set() if isinstance(value.root, str) else _names(value.root)
        return inner | set(value.fields)
    if isinstance(value, Literal):
        return set()
    if isinstance(value, Pipe):
        return {name for command in value.commands for operand in command for name in _names(operand)}
    if isinstance(value, Action):
        return _names(value.pipe)
    if isinstance(value, Branch):
        return _names(value.pipe) | _names(value.body) | _names(value.other)
    return {name for one in value for name in _names(one)} if isinstance(value, tuple) else set()


def _cut(nodes: Sequence[Node]) -> tuple[tuple[Node, ...], bool]:
    """The nodes up to the one that prints ``.Response``, and whether it was among them."""
    kept: list[Node] = []
    for node in nodes:
        if isinstance(node, Branch):
            body, found = _cut(node.body)
            if found and node.other:
                raise GoError(node.pipe.line, "`.Response` inside an `if` with `else`, behind which Ollama cannot cut")
            other, late = (node.other, False) if found else _cut(node.other)
            kept.append(replace(node, body=body, other=other))
            if found or late:
                return tuple(kept), True
            continue
        kept.append(node)
        if isinstance(node, Action) and "Response" in _names(node):
            return tuple(kept), True
    return tuple(kept), False
