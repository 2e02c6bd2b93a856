"""What does an Ollama Modelfile say? Its instructions in order, each with its line.

``INSTRUCTION value``, where a value may stand in ``"…"`` or, over several lines, in three double quotes; nothing inside
is escaped. ``#`` begins a comment where an instruction could begin.
"""

from __future__ import annotations

from dataclasses import dataclass

from gateway.importer.source import Source

INSTRUCTIONS = (
    "FROM", "PARAMETER", "TEMPLATE", "SYSTEM", "ADAPTER", "LICENSE", "MESSAGE", "REQUIRES", "RENDERER", "PARSER",
    "DRAFT",
)  # fmt: skip
LONG_QUOTE = '"""'


@dataclass(frozen=True, slots=True)
class Instruction:
    """One line of the file, or several."""

    word: str
    """In capitals."""
    name: str
    """Of a parameter, or who speaks a message; else empty."""
    value: str
    line: int
    value_line: int
    """Where the value's text begins."""


def read_modelfile(source: Source) -> list[Instruction]:
    """The instructions. Raises ``ConfigError`` with the line."""
    lines = source.text().split("\n")
    found: list[Instruction] = []
    at = 0
    while at < len(lines):
        line, number = lines[at], at + 1
        at += 1
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        word, rest = _split(line)
        word = word.upper()
        if word not in INSTRUCTIONS:
            raise source.refuse(number, f"{word[:40]!r} is no instruction of a Modelfile: {', '.join(INSTRUCTIONS)}")
        name, rest = _named(word, rest, number, source)
        quote = LONG_QUOTE if rest.startswith(LONG_QUOTE) else '"' if rest.startswith('"') else ""
        if quote:
            texts = [rest]
            closed = len(rest.strip()) >= 2 * len(quote) and rest.rstrip().endswith(quote)
            while not closed:
                if at >= len(lines):
                    raise source.refuse(number, f"the value of {word} is never closed: write {quote} behind it")
                texts.append(lines[at])
                closed = lines[at].rstrip().endswith(quote)
                at += 1
            rest = "\n".join(texts).strip()[len(quote) : -len(quote)]
        found.append(Instruction(word, name, rest if quote else rest.strip(), number, number))
    return found


def _named(word: str, rest: str, number: int, source: Source) -> tuple[str, str]:
    if word not in ("PARAMETER", "MESSAGE"):
        return "", rest
    name, value = _split(rest) if rest else ("", "")
    if not value:
        raise source.refuse(number, f"{word} needs a name and a value")
    return name, value


def _split(line: str) -> tuple[str, str]:
    """The first word, and what follows the blanks behind it."""
    word, *rest = line.strip().split(None, 1)
    return word, rest[0] if rest else ""
