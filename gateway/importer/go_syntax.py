"""What does a Go template say? The part of Go's ``text/template`` that prompts are written in, as a tree.

Text, ``{{ .Field }}``, ``$variables``, ``if``/``else if``/``else``, ``range``, ``with``, ``break``, ``continue``,
calls of the functions below, pipes, comments and the trimming ``{{-`` and ``-}}``. Anything else is refused with its
line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gateway.core.errors import TemplateError

FUNCTIONS = frozenset({
    "and", "or", "not", "eq", "ne", "lt", "le", "gt", "ge", "len", "index", "slice", "json", "print", "printf",
})  # fmt: skip
KEYWORDS = frozenset({
    "if", "else", "end", "range", "with", "break", "continue", "define", "template", "block",
})  # fmt: skip
MOST_NESTED = 40
MOST_SOURCE = 64 * 1024
"""Characters, as for our own chat templates."""

SPACE = " \t\r\n"
TOKEN = re.compile(
    r"""(?P<space>[ \t\r\n]+)|(?P<text>"(?:[^"\\\n]|\\.)*"|`[^`]*`)|(?P<declare>:=)|(?P<number>-?\d+(?:\.\d+)?)"""
    r"""|(?P<variable>\$\w*(?:\.\w+)*)|(?P<field>(?:\.\w+)+)|(?P<dot>\.)|(?P<word>[A-Za-z_]\w*)|(?P<mark>[()|,=])"""
)
ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-7]{3}|.)", re.DOTALL)
PLAIN_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v", "\\": "\\", '"': '"'}


class GoError(TemplateError):
    """A Go template that cannot be read or rendered here; carries its line."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line


# ---------------------------------------------------------------- the tree


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


# ---------------------------------------------------------------- reading


@dataclass(frozen=True, slots=True)
class _Piece:
    """Text, or what stands between ``{{`` and ``}}``."""

    text: str
    line: int
    action: bool


def parse(source: str) -> tuple[Node, ...]:
    """The tree. Raises ``GoError`` with the line."""
    if len(source) > MOST_SOURCE:
        raise GoError(1, f"the template has {len(source)} characters; {MOST_SOURCE} are the most")
    return _Parser(list(_pieces(source))).document()


def _pieces(source: str) -> Iterator[_Piece]:
    """Text and actions, the blanks taken away that ``{{-`` and ``-}}`` take away."""
    at, trims = 0, False
    while True:
        start = source.find("{{", at)
        text = source[at:] if start < 0 else source[at:start]
        line = source.count("\n", 0, at) + 1
        if trims:
            text = text.lstrip(SPACE)
        if start < 0:
            yield _Piece(text, line, False)
            return
        line = source.count("\n", 0, start) + 1
        inner = start + 2
        if source[inner : inner + 1] == "-" and source[inner + 1 : inner + 2] in tuple(SPACE):
            text, inner = text.rstrip(SPACE), inner + 2
        yield _Piece(text, line, False)
        end = _action_end(source, inner, line)
        body, at = source[inner:end], end + 2
        trims = body.endswith("-") and body[-2:-1] in tuple(SPACE)
        yield _Piece(body[:-1] if trims else body, line, True)


def _action_end(source: str, at: int, line: int) -> int:
    """Where the ``}}`` of an action begins; those inside quotes and comments are none."""
    if source[at:].lstrip(SPACE).startswith("/*"):
        closed = source.find("*/", at)
        end = source.find("}}", closed) if closed >= 0 else -1
        if end < 0:
            raise GoError(line, "a comment is never closed: write */}}")
        return end
    quote = ""
    while at < len(source):
        char = source[at]
        if quote:
            if char == "\\" and quote == '"':
                at += 1
            elif char == quote:
                quote = ""
        elif char in "\"`'":
            quote = char
        elif source.startswith("}}", at):
            return at
        at += 1
    raise GoError(line, "an action is never closed: write }}")


class _Parser:
    """Makes a tree of the pieces."""

    def __init__(self, pieces: list[_Piece]) -> None:
        self._pieces = pieces
        self._at = 0

    def document(self) -> tuple[Node, ...]:
        nodes, ended_by, line = self._list(0)
        if ended_by:
            raise GoError(line, f"{{{{ {ended_by} }}}} without anything that it belongs to")
        return nodes

    def _list(self, depth: int) -> tuple[tuple[Node, ...], str, int]:
        """Nodes up to ``end`` or ``else``, the word that ended them (``else if …`` with its rest), and its line."""
        if depth > MOST_NESTED:
            raise GoError(self._pieces[self._at - 1].line, f"nests deeper than {MOST_NESTED} levels")
        nodes: list[Node] = []
        while self._at < len(self._pieces):
            piece = self._pieces[self._at]
            self._at += 1
            if not piece.action:
                if piece.text:
                    nodes.append(Text(piece.text))
                continue
            body = piece.text.strip(SPACE)
            if body.startswith("/*"):
                continue
            word = re.match(r"[a-z]+", body)
            name = word[0] if word and word[0] in KEYWORDS else ""
            rest = body[len(name) :].strip(SPACE)
            if name in ("end", "else"):
                return tuple(nodes), f"{name} {rest}".strip(), piece.line
            if name in ("if", "range", "with"):
                nodes.append(self._branch(name, rest, piece.line, depth))
            elif name in ("break", "continue"):
                nodes.append(Jump(name, piece.line))
            elif name:
                raise GoError(piece.line, f"`{name}` is not read here: write its text where it is used")
            else:
                nodes.append(Action(_pipe(body, piece.line)))
        return tuple(nodes), "", 0

    def _branch(self, word: str, rest: str, line: int, depth: int) -> Branch:
        pipe = _pipe(rest, line)
        body, ended_by, at = self._list(depth + 1)
        other: tuple[Node, ...] = ()
        if ended_by.startswith("else ") and word in ("if", "with"):
            again = re.match(r"(if|with)\s+(.*)", ended_by.removeprefix("else ").strip(), re.DOTALL)
            if again is None:
                raise GoError(at, f"`{ended_by}` is not read: write else, or else if with a condition")
            return Branch(word, pipe, body, (self._branch(again[1], again[2], at, depth + 1),))
        if ended_by == "else":
            other, ended_by, at = self._list(depth + 1)
        if ended_by != "end":
            raise GoError(at or line, f"`{word}` is never closed: write {{{{ end }}}}")
        return Branch(word, pipe, body, other)


# ---------------------------------------------------------------- pipes


def _pipe(body: str, line: int) -> Pipe:
    tokens = [token for token in _tokens(body, line) if token[0] != "space"]
    if not tokens:
        raise GoError(line, "an action is empty")
    pipe, at = _read_pipe(tokens, 0, line, 0)
    if at < len(tokens):
        raise GoError(line, f"{tokens[at][1]!r} is not expected here")
    return pipe


def _tokens(body: str, line: int) -> Iterator[tuple[str, str]]:
    at = 0
    while at < len(body):
        found = TOKEN.match(body, at)
        if found is None:
            raise GoError(line, f"{body[at : at + 20]!r} is not read here")
        yield found.lastgroup or "", found[0]
        at = found.end()


def _read_pipe(tokens: list[tuple[str, str]], at: int, line: int, depth: int) -> tuple[Pipe, int]:
    if depth > MOST_NESTED:
        raise GoError(line, f"brackets nest deeper than {MOST_NESTED} levels")
    variables, declares, at = _variables(tokens, at)
    commands: list[tuple[Operand, ...]] = []
    operands: list[Operand] = []
    while at < len(tokens) and tokens[at][1] != ")":
        group, text = tokens[at]
        if group == "mark" and text == "|":
            commands.append(tuple(operands))
            operands, at = [], at + 1
            continue
        operand, at = _operand(tokens, at, line, depth, first=not operands)
        operands.append(operand)
    commands.append(tuple(operands))
    if not all(commands):
        raise GoError(line, "a command is missing between two |, or at the end")
    return Pipe(tuple(commands), variables, declares, line), at


def _variables(tokens: list[tuple[str, str]], at: int) -> tuple[tuple[str, ...], bool, int]:
    """``$a :=``, ``$a =`` or ``$a, $b :=`` at the front of a pipe."""
    names, here = [], at
    while here + 1 < len(tokens) and tokens[here][0] == "variable":
        names.append(tokens[here][1])
        following = tokens[here + 1][1]
        if following in (":=", "="):
            return tuple(names), following == ":=", here + 2
        if following != ",":
            break
        here += 2
    return (), False, at


def _operand(tokens: list[tuple[str, str]], at: int, line: int, depth: int, *, first: bool) -> tuple[Operand, int]:
    group, text = tokens[at]
    if text == "(":
        inner, end = _read_pipe(tokens, at + 1, line, depth + 1)
        if end >= len(tokens):
            raise GoError(line, "a bracket is never closed")
        if end + 1 < len(tokens) and tokens[end + 1][0] == "field":
            return Path(inner, tuple(tokens[end + 1][1].split(".")[1:]), line), end + 2
        return inner, end + 1
    if group == "text":
        return Literal(_unquoted(text, line), line), at + 1
    if group == "number":
        return Literal(float(text) if "." in text else int(text[:18]), line), at + 1
    if group == "dot":
        return Path("", (), line), at + 1
    if group == "field":
        return Path("", tuple(text.split(".")[1:]), line), at + 1
    if group == "variable":
        root, *names = text.split(".")
        return Path(root, tuple(names), line), at + 1
    if text in ("true", "false", "nil"):
        return Literal({"true": True, "false": False, "nil": None}[text], line), at + 1
    if text in FUNCTIONS:
        if not first:
            raise GoError(line, f"put `{text}` and its arguments in brackets")
        return Function(text, line), at + 1
    if group == "word":
        raise GoError(line, f"the function `{text}` is not read here")
    raise GoError(line, f"{text!r} is not expected here")


def _unquoted(text: str, line: int) -> str:
    if text.startswith("`"):
        return text[1:-1]

    def char(found: re.Match[str]) -> str:
        code = found[1]
        if code in PLAIN_ESCAPES:
            return PLAIN_ESCAPES[code]
        if code[0] in "xuU" and len(code) > 1 and int(code[1:], 16) < 0x110000:
            return chr(int(code[1:], 16))
        if len(code) == 3:
            return chr(int(code, 8))
        raise GoError(line, f"\\{code} is no escape in a text")

    return ESCAPE.sub(char, text[1:-1])
