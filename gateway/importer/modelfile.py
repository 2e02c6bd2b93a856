"""Reads the instructions of an Ollama Modelfile.

``INSTRUCTION value``, where a value may be in ``"…"`` or, over several lines, in three double quotes, without escapes.
``#`` begins a comment where an instruction could begin.
"""

from __future__ import annotations

from dataclasses import dataclass

from gateway.importer.source import Source

INSTRUCTIONS = (
    "FROM", "PARAMETER", "TEMPLATE", "SYSTEM", "ADAPTER", "LICENSE", "MESSAGE", "REQUIRES", "RENDERER", "PARSER",
    "DRAFT",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction, of one or several lines."""

    word: str
    """In capitals."""
    name: str
    """Of a parameter, or the role of a message; else empty."""
    value: str
    line: int
    """The first line of the instruction; its value begins on the same line."""


def read_modelfile(source: Source) -> list[Instruction]:
    """The instructions in order. Raises ``ConfigError`` with the line."""
    found: list[Instruction] = []
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
        found.append(Instruction(word=word, name=name, value=value if quote else value.strip(), line=number))
    return found


def _split(line: str) -> tuple[str, str]:
    """The first word, and the text behind the blanks that follow it."""
    word, *rest = line.strip().split(None, 1) or [""]
    return word, rest[0] if rest else ""
