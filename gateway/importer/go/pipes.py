"""What does an action of a Go template say? Words in quotes, fields, variables and calls, joined by pipes."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from itertools import pairwise

from gateway.importer.go.functions import NAMES
from gateway.importer.go.tree import Function, GoError, Literal, Operand, Path, Pipe

MOST_NESTED = 40
"""Brackets in brackets."""

TOKEN = re.compile(
    r"""(?P<space>[ \t\r\n]+)|(?P<text>"(?:[^"\\\n]|\\.)*"|`[^`]*`)|(?P<declare>:=)|(?P<number>-?\d+(?:\.\d+)?)"""
    r"""|(?P<variable>\$\w*(?:\.[A-Za-z_]\w*)*)|(?P<field>(?:\.[A-Za-z_]\w*)+)|(?P<dot>\.)|(?P<word>[A-Za-z_]\w*)"""
    r"""|(?P<mark>[()|,=])""",
    re.ASCII,
)
OPERANDS = frozenset({"text", "number", "variable", "field", "dot", "word"})
"""Blanks part them from each other, and from brackets."""
DIGITS = 20
"""Characters of the longest number of 64 bits."""
ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-7]{3}|.)", re.DOTALL)
PLAIN_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v", "\\": "\\", '"': '"'}


def read_pipe(body: str, line: int, *, variables: int = 1) -> Pipe:
    """The pipe of an action's text, which may set so many variables. Raises ``GoError``."""
    read = list(_tokens(body, line))
    for (group, text), (following, more) in pairwise(read):
        ends, begins = group in OPERANDS or text == ")", following in OPERANDS or more == "("
        if ends and begins and (text, following) != (")", "field"):
            raise GoError(line, f"{text[:20]!r} and {more[:20]!r} touch: a blank parts operands")
    tokens = [token for token in read if token[0] != "space"]
    if not tokens:
        raise GoError(line, "an action is empty")
    pipe, at = _rest_of_pipe(tokens, 0, line, 0, variables)
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


def _rest_of_pipe(tokens: list[tuple[str, str]], at: int, line: int, depth: int, most: int) -> tuple[Pipe, int]:
    if depth > MOST_NESTED:
        raise GoError(line, f"brackets nest deeper than {MOST_NESTED} levels")
    variables, declares, at = _variables(tokens, at)
    if len(variables) > most:
        raise GoError(line, f"sets {len(variables)} variables: `range` sets up to two, anything else one")
    for name in variables:
        if "." in name:
            raise GoError(line, f"{name} is no name of a variable")
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
        inner, end = _rest_of_pipe(tokens, at + 1, line, depth + 1, 1)
        if end >= len(tokens):
            raise GoError(line, "a bracket is never closed")
        if end + 1 < len(tokens) and tokens[end + 1][0] == "field":
            return Path(inner, tuple(tokens[end + 1][1].split(".")[1:]), line), end + 2
        return inner, end + 1
    if group == "text":
        return Literal(_unquoted(text, line), line), at + 1
    if group == "number":
        return Literal(_number(text, line), line), at + 1
    if group == "dot":
        return Path("", (), line), at + 1
    if group == "field":
        return Path("", tuple(text.split(".")[1:]), line), at + 1
    if group == "variable":
        root, *names = text.split(".")
        return Path(root, tuple(names), line), at + 1
    if text in ("true", "false", "nil"):
        return Literal({"true": True, "false": False, "nil": None}[text], line), at + 1
    if text in NAMES:
        if not first:
            raise GoError(line, f"put `{text}` and its arguments in brackets")
        return Function(text, line), at + 1
    if group == "word":
        raise GoError(line, f"the function `{text}` is not read here")
    raise GoError(line, f"{text!r} is not expected here")


def _number(text: str, line: int) -> float | int:
    if re.match(r"-?0\d", text):
        raise GoError(line, f"{text[:DIGITS]} begins with a zero, which Go takes for an octal number: write it decimal")
    if "." in text:
        return float(text)
    if len(text) > DIGITS or not -(2**63) <= int(text) < 2**63:
        raise GoError(line, f"{text[:DIGITS]} is a number beyond 64 bits")
    return int(text)


def _unquoted(text: str, line: int) -> str:
    if text.startswith("`"):
        return text[1:-1].replace("\r", "")  # as Go drops them

    def char(found: re.Match[str]) -> str:
        code = found[1]
        if code in PLAIN_ESCAPES:
            return PLAIN_ESCAPES[code]
        if len(code) > 1:
            wide = code[0] in "uU"
            number = int(code[1:], 16) if wide or code[0] == "x" else int(code, 8)
            if not wide and number > 0x7F:  # a byte there, and no character by itself
                raise GoError(line, f"\\{code} is a part of a character: write the whole one")
            if number <= sys.maxunicode and not 0xD800 <= number < 0xE000:
                return chr(number)
        raise GoError(line, f"\\{code} is no escape in a text")

    return ESCAPE.sub(char, text[1:-1])
