"""Reads GBNF, the grammars of llama.cpp: recognises a text, and makes random texts."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf

ESCAPES = {"t": "\t", "r": "\r", "n": "\n", "\\": "\\", '"': '"', "[": "[", "]": "]", "-": "-"}
HEX = {"x": 2, "u": 4, "U": 8}
NAME = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-")
SAMPLES = [*map(chr, range(32, 127)), "\t", "\n", "\x7f", "ä", "ß", "字", "\u2028", "\uffff", "😀", "\U0010ffff"]
"""The characters that random texts have."""
DEPTH = 60
"""The depth of rules from which a random text is ended as soon as possible."""


@dataclass(frozen=True, eq=False)
class Node:
    """A part of a grammar. Equal parts at two places are different nodes."""


@dataclass(frozen=True, eq=False)
class Literal(Node):
    text: str


@dataclass(frozen=True, eq=False)
class Characters(Node):
    ranges: tuple[tuple[str, str], ...]
    negated: bool

    def has(self, character: str) -> bool:
        return any(low <= character <= high for low, high in self.ranges) != self.negated


@dataclass(frozen=True, eq=False)
class Rule(Node):
    name: str


@dataclass(frozen=True, eq=False)
class Sequence(Node):
    parts: tuple[Node, ...]


@dataclass(frozen=True, eq=False)
class Alternatives(Node):
    parts: tuple[Node, ...]


@dataclass(frozen=True, eq=False)
class Repetition(Node):
    part: Node
    least: int
    most: float


class Grammar:
    """A grammar with the rule ``root``."""

    def __init__(self, text: str) -> None:
        self.rules: Mapping[str, Node] = _Reader(text).grammar()
        self._depths = self._least_depths()

    # ------------------------------------------------------------------ recognising

    def accepts(self, text: str) -> bool:
        """Return whether the whole text is one of the grammar."""
        known: dict[tuple[Node, int], frozenset[int]] = {}

        def ends(node: Node, start: int) -> frozenset[int]:
            """Return the positions at which a text of the node can end."""
            if (found := known.get((node, start))) is None:
                found = known[node, start] = self._ends(node, start, text, ends)
            return found

        return len(text) in ends(self.rules["root"], 0)

    def _ends(self, node: Node, start: int, text: str, ends: Callable[[Node, int], frozenset[int]]) -> frozenset[int]:
        match node:
            case Literal(literal):
                return frozenset({start + len(literal)} if text.startswith(literal, start) else ())
            case Characters():
                return frozenset({start + 1} if start < len(text) and node.has(text[start]) else ())
            case Rule(name):
                return ends(self.rules[name], start)
            case Alternatives(parts):
                return frozenset().union(*[ends(part, start) for part in parts])
            case Sequence(parts):
                found = frozenset({start})
                for part in parts:
                    found = frozenset().union(*[ends(part, at) for at in found])
                return found
            case Repetition(part, least, most):
                reached, found, times = frozenset({start}), frozenset[int](), 0
                while reached - found or times < least:
                    found |= reached if times >= least else frozenset()
                    times += 1
                    reached = frozenset().union(*[ends(part, at) for at in reached]) if times <= most else frozenset()
                return found
        raise AssertionError(node)

    # ------------------------------------------------------------------ making texts

    def random_text(self, rng: random.Random) -> str:
        """Return a random text of the grammar."""
        written: list[str] = []
        self._write(self.rules["root"], rng, written, 0)
        return "".join(written)

    def _write(self, node: Node, rng: random.Random, written: list[str], depth: int) -> None:
        match node:
            case Literal(literal):
                written.append(literal)
            case Characters():
                ends = [character for pair in node.ranges for character in pair]
                written.append(rng.choice([one for one in (*SAMPLES, *ends) if node.has(one)]))
            case Rule(name):
                self._write(self.rules[name], rng, written, depth + 1)
            case Alternatives(parts):
                least = min(map(self._depth, parts))
                short = [part for part in parts if depth < DEPTH or self._depth(part) == least]
                self._write(rng.choice(short), rng, written, depth)
            case Sequence(parts):
                for part in parts:
                    self._write(part, rng, written, depth)
            case Repetition(part, least, most):
                more = 0 if depth >= DEPTH else min(most - least, rng.choice((0, 0, 1, 2, 5)))
                for _ in range(least + int(more)):
                    self._write(part, rng, written, depth)

    def _least_depths(self) -> dict[str, float]:
        """Return the smallest depth of rules in a text of each rule."""
        depths: dict[str, float] = dict.fromkeys(self.rules, inf)
        self._depths = depths
        for _ in self.rules:
            changed = {name: 1 + self._depth(node) for name, node in self.rules.items()}
            if changed == depths:
                break
            depths.update(changed)
        return depths

    def _depth(self, node: Node) -> float:
        match node:
            case Rule(name):
                return self._depths[name]
            case Alternatives(parts):
                return min(map(self._depth, parts))
            case Sequence(parts):
                return max(map(self._depth, parts), default=0)
            case Repetition(part, least, _):
                return self._depth(part) if least else 0
        return 0


class _Reader:
    """Reads the text of a grammar. Raises ``ValueError`` for a text that is not GBNF."""

    def __init__(self, text: str) -> None:
        self.text = text + "\0"
        self.at = 0
        self.names: set[str] = set()
        """The names of the rules that other rules use."""

    def grammar(self) -> dict[str, Node]:
        rules: dict[str, Node] = {}
        while self.space(lines=True) != "\0":
            name = self.name()
            self.space()
            self.expect("::=")
            self.space(lines=True)
            if name in rules:
                raise ValueError(f"two rules {name}")
            rules[name] = self.alternatives(nested=False)
            if self.text[self.at] not in "\n\0":
                raise ValueError(f"expecting the end of the rule at {self.text[self.at : self.at + 20]!r}")
        for name in self.names - rules.keys() | {"root"} - rules.keys():
            raise ValueError(f"no rule {name}")
        return rules

    def alternatives(self, *, nested: bool) -> Node:
        parts = [self.sequence(nested=nested)]
        while self.text[self.at] == "|":
            self.at += 1
            self.space(lines=True)
            parts.append(self.sequence(nested=nested))
        return parts[0] if len(parts) == 1 else Alternatives(tuple(parts))

    def sequence(self, *, nested: bool) -> Node:
        parts: list[Node] = []
        while (found := self.text[self.at]) not in "|)\n\0":
            if found in "*+?{":
                parts[-1] = Repetition(parts[-1], *self.times())
            else:
                parts.append(self.item())
            self.space(lines=nested)
        return Sequence(tuple(parts))

    def item(self) -> Node:
        match self.text[self.at]:
            case '"':
                self.at += 1
                letters = []
                while self.text[self.at] != '"':
                    letters.append(self.character())
                self.at += 1
                return Literal("".join(letters))
            case "[":
                return self.characters()
            case "(":
                self.at += 1
                self.space(lines=True)
                node = self.alternatives(nested=True)
                self.expect(")")
                return node
        return Rule(self.name(used=True))

    def characters(self) -> Node:
        self.at += 1
        if negated := self.text[self.at] == "^":
            self.at += 1
        ranges = []
        while self.text[self.at] != "]":
            low = high = self.character()
            if self.text[self.at] == "-" and self.text[self.at + 1] != "]":
                self.at += 1
                high = self.character()
            ranges.append((low, high))
        self.at += 1
        return Characters(tuple(ranges), negated)

    def character(self) -> str:
        found = self.text[self.at]
        self.at += 1
        if found in "\0\n":
            raise ValueError("a literal has no end")
        if found != "\\":
            return found
        kind = self.text[self.at]
        self.at += 1
        if kind not in HEX:
            return ESCAPES[kind]
        self.at += HEX[kind]
        return chr(int(self.text[self.at - HEX[kind] : self.at], 16))

    def times(self) -> tuple[int, float]:
        sign = self.text[self.at]
        self.at += 1
        if sign != "{":
            return {"*": (0, inf), "+": (1, inf), "?": (0, 1)}[sign]
        end = self.text.index("}", self.at)
        low, comma, high = self.text[self.at : end].partition(",")
        self.at = end + 1
        least, most = int(low), float(high) if high else (inf if comma else int(low))
        if not least <= most or max(least, 0 if most == inf else most) >= 2000:
            raise ValueError(f"{{{low}{comma}{high}}} is not a number of repetitions")
        return least, most

    def name(self, *, used: bool = False) -> str:
        start = self.at
        while self.text[self.at] in NAME:
            self.at += 1
        if start == self.at:
            raise ValueError(f"expecting a name at {self.text[start : start + 20]!r}")
        name = self.text[start : self.at]
        if used:
            self.names.add(name)
        return name

    def expect(self, text: str) -> None:
        if not self.text.startswith(text, self.at):
            raise ValueError(f"expecting {text} at {self.text[self.at : self.at + 20]!r}")
        self.at += len(text)

    def space(self, *, lines: bool = False) -> str:
        """Skip white space. Returns the next character."""
        while self.text[self.at] in (" \t\r\n" if lines else " \t\r"):
            self.at += 1
        return self.text[self.at]
