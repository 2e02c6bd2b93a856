"""Makes a meta template from an Ollama Modelfile, by probing a renderer of the TEMPLATE in the file.

The file contains instructions of the form ``INSTRUCTION value``. A value may be in ``"…"``, or over several lines
in three double quotes. Values have no escape sequences. A line that begins with ``#`` is a comment, except in a value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gateway.workshop.importer.draft import EMPTY, STRICT_TURNS, SUBSETS, Draft, Reference
from gateway.workshop.importer.go_template import GoTemplateError, parse
from gateway.workshop.importer.source import Source
from gateway.workshop.importer.turns import NotTurns, infer
from gateway.workshop.parity.sides import Side
from metatemplate.values.prompt import Prompt, PromptMetadata

INSTRUCTIONS = (
    "FROM",
    "PARAMETER",
    "TEMPLATE",
    "SYSTEM",
    "ADAPTER",
    "LICENSE",
    "MESSAGE",
    "REQUIRES",
    "RENDERER",
    "PARSER",
    "DRAFT",
)

PARAMETERS: Mapping[str, str] = {
    "num_ctx": "set this context length when you start the engine",
    "num_predict": "write in a policy `params: {{default: {{max_tokens: {value}}}}}`",
    "temperature": "write in a policy `params: {{default: {{temperature: {value}}}}}`",
    "top_p": "write in a policy `params: {{default: {{top_p: {value}}}}}`",
    "seed": "write in a policy `params: {{default: {{seed: {value}}}}}`",
}
"""Parameter of Ollama → where to set it in the gateway. Any other parameter is a setting of the engine."""


@dataclass(frozen=True, slots=True)
class ModelfileInstruction:
    """One instruction of a Modelfile, on one or several lines."""

    word: str
    """The instruction's keyword in capitals."""
    name: str
    """The name of a parameter, or the role of a message; empty for other instructions."""
    value: str
    line: int
    """The number of the instruction's first line, on which the value also begins."""


def read_ollama(source: Source, *, subset: tuple[str, ...] = ()) -> Draft:
    """Return a template draft made from a Modelfile. Raises ``ConfigError`` with the line that cannot be imported."""
    instructions = read_modelfile(source)
    template = _template(instructions, source)
    stops = [one.value for one in instructions if one.word == "PARAMETER" and one.name == "stop"]
    try:
        reference = reference_of(template.value, subset=subset)
    except GoTemplateError as error:
        raise source.refuse(template.line + error.line - 1, str(error), "TEMPLATE") from None
    try:
        turns = infer(reference.side, system="system" not in subset)
    except NotTurns as error:
        raise error.refuse(source, template.line, "TEMPLATE", subset) from None
    keys: dict[str, Any] = {
        "kind": "meta",
        "description": f"Imported from the Ollama file {source.short_name}.",
        **turns.keys(),
        **({"stop": list(dict.fromkeys(stops))} if stops else {}),
        "bos": "engine",
    }
    return Draft(
        name=source.stem.lower(),
        origin=f"the Ollama file {source.short_name}, TEMPLATE on line {template.line}",
        sha256=source.sha256,
        keys=keys,
        notes=(*_notes(instructions, template), *turns.notes(stops)),
        reference=reference,
    )


def reference_of(template: str, *, subset: tuple[str, ...] = ()) -> Reference:
    """Return a reference that renders as Ollama does. Raises ``GoTemplateError`` for a template that is not plain."""
    parsed, metadata = parse(template), PromptMetadata(bos="engine")
    return Reference(
        name="this gateway's reader of Go templates, with Ollama's rules",
        side=Side(lambda dialogue: Prompt(parsed.render(dialogue), metadata)),
        excluded=(*[SUBSETS[word] for word in subset], EMPTY, *STRICT_TURNS),
    )


def _template(instructions: Sequence[ModelfileInstruction], source: Source) -> ModelfileInstruction:
    for one in instructions:
        if one.word == "RENDERER":
            raise source.refuse(
                one.line,
                f"Ollama renders this model by its own code ({one.value}), not a template; "
                "import the model's tokenizer folder instead",
            )
    found = [one for one in instructions if one.word == "TEMPLATE"]
    if not found:
        raise source.refuse(
            0,
            "the Modelfile has no TEMPLATE; import the output of "
            "`ollama show --modelfile MODEL`, or the tokenizer folder",
        )
    return found[-1]


def _notes(instructions: Sequence[ModelfileInstruction], template: ModelfileInstruction) -> list[str]:
    notes = ["bos: engine, because Ollama's engine puts the model's BOS before the text"]
    for one in instructions:
        where = f"line {one.line}: {one.word}"
        match one.word:
            case "TEMPLATE" if one is not template:
                notes.append(f"{where} was not imported, because the file has a later TEMPLATE")
            case "SYSTEM":
                notes.append(
                    f"{where}: Ollama sends {one.value!r} if a request has no system message; "
                    "a template cannot do this, so clients must send this text"
                )
            case "PARAMETER" if one.name != "stop":
                place = PARAMETERS.get(one.name, "this is a setting of the engine; set it in the engine")
                notes.append(f"{where} {one.name} {one.value}: {place.format(value=one.value)}")
            case "FROM":
                notes.append(f"{where} {one.value}: write the model in gateway.yaml")
            case "ADAPTER" | "DRAFT" | "MESSAGE" | "REQUIRES" | "PARSER":
                value = f"{one.name} {one.value}".strip()
                notes.append(f"{where} {value!r} was not imported, because a template cannot contain it")
    return notes


# ---------------------------------------------------------------- instructions


def read_modelfile(source: Source) -> list[ModelfileInstruction]:
    """Return the instructions of a Modelfile in order. Raises ``ConfigError`` for an invalid instruction."""
    found: list[ModelfileInstruction] = []
    lines = iter(enumerate(source.text().split("\n"), 1))
    for number, line in lines:
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        word, value = _split(line)
        word, name = word.upper(), ""
        if word not in INSTRUCTIONS:
            known = ", ".join(INSTRUCTIONS)
            raise source.refuse(number, f"{word[:40]!r} is not an instruction of a Modelfile; known: {known}")
        if word in ("PARAMETER", "MESSAGE"):
            name, value = _split(value)
            if not value:
                raise source.refuse(number, f"{word} needs a name and a value")
        if quote := next((one for one in ('"""', '"') if value.startswith(one)), ""):
            parts = [value]
            is_closed = len(value.strip()) >= 2 * len(quote) and value.rstrip().endswith(quote)
            while not is_closed:
                _, part = next(lines, (0, None))
                if part is None:
                    raise source.refuse(number, f"the value of {word} is not closed: write {quote} at its end")
                parts.append(part)
                is_closed = part.rstrip().endswith(quote)
            value = "\n".join(parts).strip()[len(quote) : -len(quote)]
        found.append(ModelfileInstruction(word=word, name=name, value=value if quote else value.strip(), line=number))
    return found


def _split(line: str) -> tuple[str, str]:
    """Return the first word of a line, and the rest of the line without white space at its start and end."""
    word, *rest = line.strip().split(None, 1) or [""]
    return word, rest[0] if rest else ""
