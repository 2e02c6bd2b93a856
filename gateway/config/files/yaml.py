"""Parsing strict YAML into plain values, with the line of each value.

Refused: tags, merges, duplicate keys, more than a few aliases, more than one document.
Plain scalars follow the core schema of YAML 1.2, so ``no``, ``012`` and ``12:30``
are strings (``docs/spec/reliability.md`` F13).
The builder reads libyaml's events instead of nodes: events distinguish written tags from resolved
ones, and an alias bomb is refused before it is expanded.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from gateway.config.schema.names import escaped
from gateway.core.errors import Problem

MAX_BYTES = 1024 * 1024
MAX_DEPTH = 32
MAX_ALIASES = 20
MAX_VALUES = 100_000
"""Limit for scalars, lists and mappings after alias expansion; nested aliases multiply."""

Path = tuple[str | int, ...]
"""The keys that lead to a value: ``("models", "my-model", "targets", 0, "url")``."""

# At most 18 digits: longer digit strings are digests or ids, which are text.
INT = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,17})")
FLOAT = re.compile(
    r"[-+]?(?:(?:0|[1-9][0-9]*)?\.[0-9]+(?:[eE][-+]?[0-9]{1,3})?|(?:0|[1-9][0-9]*)[eE][-+]?[0-9]{1,3})",
)
WORDS: Mapping[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}

# Message of libyaml → what to look for.
HINTS = {
    "mapping values are not allowed": 'a second ": " in one line? Put the value in quotes',
    "cannot start any token": "a tab in the indentation, or a value that begins with @, % or `? "
    "Indent with spaces, put such values in quotes",
    "could not find expected ':'": 'a key without ": " after it? Look at this line and the one above',
    "did not find expected key": "does this line start in the same column as its neighbours? "
    "Is a quote inside quotes escaped?",
    "did not find expected '-'": "does each entry of the list start in the same column?",
    "did not find expected ',' or": 'a bracket that is not closed, or a value with , or ": " inside? Put it in quotes',
    "did not find expected node content": "a bracket without a value, or a stray comma?",
    "unexpected end of stream": "a quote or bracket that is never closed, or a file cut short?",
    "unknown escape character": "a backslash inside double quotes? Use single quotes, or write \\\\",
    "control characters are not allowed": 'write it as "\\x01" inside double quotes',
}


@dataclass(frozen=True, slots=True)
class YamlDocument:
    """A parsed YAML file: values, line numbers and syntax problems."""

    file: str
    value: Any = None
    lines: Mapping[Path, int] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()

    def line(self, path: Path) -> int:
        """Return the 1-based line of a key or list entry; for an absent one the line of its nearest parent."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 0)

    def at(self, path: Path) -> Any:
        """Return the value at ``path``, or None."""
        value = self.value
        for key in path:
            if isinstance(value, dict):
                value = value.get(str(key))
            elif isinstance(value, list) and isinstance(key, int) and key < len(value):
                value = value[key]
            else:
                return None
        return value

    def problem(self, path: Path, message: str) -> Problem:
        """Return a problem with the value at ``path``."""
        return Problem(self.file, self.line(path), dotted(path), message)


def dotted(path: Path) -> str:
    """Return a path in dotted form: ``models.my-model.targets[0].url``."""
    text = ""
    for key in path:
        text += f"[{key}]" if isinstance(key, int) else f".{key}" if text else key
    return escaped(text)


def parse_scalar(text: str) -> str | int | float | bool | None:
    """Return the value of an unquoted scalar by the rules of YAML 1.2; anything else is text."""
    if text in WORDS:
        return WORDS[text]
    if INT.fullmatch(text):
        return int(text)
    if FLOAT.fullmatch(text):
        number = float(text)
        return number if math.isfinite(number) else text
    return text


def parse(data: bytes, file: str) -> YamlDocument:
    """Parse one YAML document. Never raises: syntax errors are in ``problems``.

    ``file``: the name shown in problems.
    """
    if len(data) > MAX_BYTES:
        return _refused(file, 0, f"larger than {MAX_BYTES // 1024} KiB; configuration files are small")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        return _refused(file, data.count(b"\n", 0, error.start) + 1, "not UTF-8; save the file as UTF-8")
    builder = _Builder(file, yaml.parse(text, Loader=yaml.CSafeLoader))
    try:
        value = builder.document()
    except _TooMuch as error:
        return YamlDocument(file, None, {}, (*builder.problems, Problem(file, error.line, "", str(error))))
    except yaml.YAMLError as error:
        return _refused(file, *_explain(error, text))
    return YamlDocument(file, value, builder.lines, tuple(builder.problems))


def _refused(file: str, line: int, message: str) -> YamlDocument:
    return YamlDocument(file, problems=(Problem(file, line, "", message),))


def _explain(error: yaml.YAMLError, text: str) -> tuple[int, str]:
    """Return line and message of a syntax error; libyaml's messages contain no text of the file."""
    if isinstance(error, yaml.MarkedYAMLError):
        what = error.problem or "cannot be read"
        line = error.problem_mark.line + 1 if error.problem_mark else 0
        line = min(line, max(1, text.count("\n")))  # an error at the end belongs to the last line
    else:
        what = str(getattr(error, "reason", "cannot be read"))
        line = text.count("\n", 0, int(getattr(error, "position", 0))) + 1
    hint = next((hint for phrase, hint in HINTS.items() if phrase in what), "check indentation and quotes")
    return line, f"not valid YAML ({what}): {hint}"


class _TooMuch(Exception):
    """The file exceeds a limit; the rest of it is not read."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line


class _Builder:
    """Builds values and their line numbers from libyaml's events."""

    def __init__(self, file: str, events: Iterator[Any]) -> None:
        self.file = file
        self.events = events
        self.lines: dict[Path, int] = {}
        self.problems: list[Problem] = []
        self.anchors: dict[str, tuple[Any, int]] = {}
        self.aliases = 0
        self.values = 0

    def document(self) -> Any:
        next(self.events)  # stream start
        if isinstance(next(self.events), yaml.StreamEndEvent):
            return None
        value = self.node(next(self.events), ())
        next(self.events)  # document end
        following = next(self.events)
        if isinstance(following, yaml.DocumentStartEvent):
            raise _TooMuch(_line(following), 'a second document begins here ("---"); a file holds one')
        return value

    def node(self, event: Any, path: Path) -> Any:
        line = _line(event)
        self.lines.setdefault(path, line)
        if isinstance(event, yaml.AliasEvent):
            return self.alias(event, path)
        if len(path) > MAX_DEPTH:
            raise _TooMuch(line, f"nested deeper than {MAX_DEPTH} levels")
        if event.tag is not None:
            self.complain(line, path, 'YAML tags ("!…") are not read; write the plain value')
        before = self.values
        self.count(1, line)
        value = self.content(event, path)
        if event.anchor is not None:
            self.anchors[event.anchor] = (value, self.values - before)
        return value

    def content(self, event: Any, path: Path) -> Any:
        if isinstance(event, yaml.MappingStartEvent):
            return self.mapping(path)
        if isinstance(event, yaml.SequenceStartEvent):
            return self.sequence(path)
        return parse_scalar(event.value) if event.implicit[0] or event.tag else event.value

    def sequence(self, path: Path) -> list[Any]:
        items: list[Any] = []
        while not isinstance(event := next(self.events), yaml.SequenceEndEvent):
            items.append(self.node(event, (*path, len(items))))
        return items

    def mapping(self, path: Path) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while not isinstance(event := next(self.events), yaml.MappingEndEvent):
            key = self.key(event, path)
            here = (*path, key)
            first = self.lines.get(here) if key in found else None
            self.lines.setdefault(here, _line(event))
            value = self.node(next(self.events), here)
            if key == "<<" and event.implicit[0]:
                self.complain(_line(event), here, 'merges ("<<") are not read; write the keys out')
            elif first is not None:
                self.complain(_line(event), here, f"given twice, first on line {first}; keep one")
            else:
                found[key] = value
        return found

    def key(self, event: Any, path: Path) -> str:
        """Return a key; keys are always text: ``no: 1`` has the key "no"."""
        if not isinstance(event, yaml.ScalarEvent):
            raise _TooMuch(_line(event), "a key must be plain text; put a value that begins with { [ or * in quotes")
        self.count(1, _line(event))
        return str(event.value)

    def alias(self, event: Any, path: Path) -> Any:
        line = _line(event)
        self.aliases += 1
        if self.aliases > MAX_ALIASES:
            raise _TooMuch(line, f'more than {MAX_ALIASES} aliases ("*name"); write the values out')
        if event.anchor not in self.anchors:
            self.complain(line, path, "this alias names no finished anchor; write the value out")
            return None
        value, size = self.anchors[event.anchor]
        self.count(size, line)
        return value

    def count(self, size: int, line: int) -> None:
        self.values += size
        if self.values > MAX_VALUES:
            raise _TooMuch(line, f"holds more than {MAX_VALUES} values")

    def complain(self, line: int, path: Path, message: str) -> None:
        self.problems.append(Problem(self.file, line, dotted(path), message))


def _line(event: Any) -> int:
    return int(event.start_mark.line) + 1
