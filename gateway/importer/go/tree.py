"""What is a Go template made of? Text and actions, as a tree; ``go_syntax`` makes it and ``go_render`` walks it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gateway.core.errors import TemplateError


class GoError(TemplateError):
    """A Go template that cannot be read or rendered here; carries its line."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line


@dataclass(frozen=True, slots=True)
class Literal:
    """A text, a number, true, false or nil."""

    value: Any
    line: int


@dataclass(frozen=True, slots=True)
class Path:
    """``.A.B``, ``$.A``, ``$name.A`` or ``(…).A``: fields of the dot, of a variable or of a value."""

    root: str | Pipe
    """Empty: the dot."""
    fields: tuple[str, ...]
    line: int


@dataclass(frozen=True, slots=True)
class Function:
    """The name of a function, the first word of a command."""

    name: str
    line: int


Operand = Any
"""``Literal``, ``Path``, ``Function`` or, in brackets, ``Pipe``."""


@dataclass(frozen=True, slots=True)
class Pipe:
    """Commands, each given the result of the one before; and the variables that take the last one's."""

    commands: tuple[tuple[Operand, ...], ...]
    variables: tuple[str, ...]
    declares: bool
    line: int


@dataclass(frozen=True, slots=True)
class Text:
    """Text as it stands."""

    text: str


@dataclass(frozen=True, slots=True)
class Action:
    """``{{ pipe }}``: prints, unless it sets a variable."""

    pipe: Pipe


@dataclass(frozen=True, slots=True)
class Branch:
    """``if``, ``range`` or ``with``, what stands inside, and what stands behind ``else``."""

    word: str
    pipe: Pipe
    body: tuple[Node, ...]
    other: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Jump:
    """``break`` or ``continue``."""

    word: str
    line: int


Node = Text | Action | Branch | Jump
