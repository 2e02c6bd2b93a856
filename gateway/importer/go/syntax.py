"""What does a Go template say? The part of Go's ``text/template`` that prompts are written in, as a tree.

Text, ``{{ .Field }}``, ``$variables``, ``if``/``else if``/``else``, ``range``, ``with``, ``break``, ``continue``,
comments and the trimming ``{{-`` and ``-}}``; pipes are read by ``go_pipes``. Anything else is refused with its line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from gateway.importer.go.pipes import read_pipe
from gateway.importer.go.tree import Action, Branch, GoError, Jump, Node, Text

KEYWORDS = frozenset({
    "if", "else", "end", "range", "with", "break", "continue", "define", "template", "block",
})  # fmt: skip
MOST_NESTED = 40
"""Blocks in blocks."""
MOST_SOURCE = 64 * 1024
"""Characters, as for our own chat templates."""

SPACE = " \t\r\n"
ENDS_WORD = ("", *SPACE, ".", ",", "|", ":", ")", "(")
"""What may follow a keyword."""


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
    if source.startswith("/*", at):
        closed = source.find("*/", at + 2)
        end = source.find("}}", closed) if closed >= 0 else -1
        if end < 0:
            raise GoError(line, "a comment is never closed: write */}}")
        if not re.fullmatch(rf"(?:[{SPACE}]-)?", source[closed + 2 : end]):
            raise GoError(line, "something stands between a comment and }}: give the comment an action of its own")
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
            if piece.text.startswith("/*"):
                continue
            body = piece.text.strip(SPACE)
            word = re.match(r"\w+", body)
            name = word[0] if word and word[0] in KEYWORDS else ""
            if name and body[len(name) : len(name) + 1] not in ENDS_WORD:
                raise GoError(piece.line, f"{body[:20]!r} is not read here: a blank follows `{name}`")
            rest = body[len(name) :].strip(SPACE)
            if name in ("end", "else"):
                return tuple(nodes), f"{name} {rest}".strip(), piece.line
            if name in ("if", "range", "with"):
                nodes.append(self._branch(name, rest, piece.line, depth))
            elif name in ("break", "continue"):
                if rest:
                    raise GoError(piece.line, f"`{name}` stands alone: {rest[:20]!r} is not expected behind it")
                nodes.append(Jump(name, piece.line))
            elif name:
                raise GoError(piece.line, f"`{name}` is not read here: write its text where it is used")
            else:
                nodes.append(Action(read_pipe(body, piece.line)))
        return tuple(nodes), "", 0

    def _branch(self, word: str, rest: str, line: int, depth: int) -> Branch:
        pipe = read_pipe(rest, line, variables=2 if word == "range" else 1)
        body, ended_by, at = self._list(depth + 1)
        other: tuple[Node, ...] = ()
        if ended_by.startswith("else ") and word in ("if", "with"):
            again = re.match(rf"{word}\s+(.*)", ended_by.removeprefix("else ").strip(), re.DOTALL)
            if again is None:
                raise GoError(at, f"`{ended_by}` is not read: write else, or else {word} with a condition")
            return Branch(word, pipe, body, (self._branch(word, again[1], at, depth + 1),))
        if ended_by == "else":
            other, ended_by, at = self._list(depth + 1)
        if ended_by.startswith("else"):
            raise GoError(at, f"`{ended_by}` does not belong to the `{word}` before it")
        if ended_by != "end":
            raise GoError(at or line, f"`{word}` is never closed: write {{{{ end }}}}")
        return Branch(word, pipe, body, other)
