"""Parses strict YAML into plain values, with the line of each value.

Tags, merge keys, duplicate keys, more than ``MAX_ALIASES`` aliases and more than one document are refused.
Plain scalars follow the core schema of YAML 1.2, so ``no``, ``012`` and ``12:30``
are strings (``docs/spec/reliability.md`` F13).
The builder reads libyaml's events and not its nodes. Only events show whether a tag is written in the file, and they
allow the builder to refuse nested aliases before they are expanded.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import yaml

from metatemplate.errors import Problem
from metatemplate.values.json_values import KeyPath
from metatemplate.values.words import printable

MAX_BYTES = 1024 * 1024
MAX_DEPTH = 32
MAX_ALIASES = 20
MAX_VALUES = 100_000
"""The largest number of scalars, lists and mappings after alias expansion. Nested aliases multiply the number."""

"""The keys that lead to a value, such as ``("models", "my-model", "targets", 0, "url")``."""

# An integer has at most 18 digits. Longer digit strings are digests or ids, which are text.
INT = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,17})")
FLOAT = re.compile(r"[-+]?(?:(?:0|[1-9][0-9]*)?\.[0-9]+(?:[eE][-+]?[0-9]{1,3})?|(?:0|[1-9][0-9]*)[eE][-+]?[0-9]{1,3})")
PYTHON = re.compile(r"^\w+ *= *(dict\(|\[|\{)", re.MULTILINE)
"""Matches a statement of a Python config."""
WORDS: Mapping[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}

# Phrase in libyaml's message → how to correct the file.
HINTS = {
    "mapping values are not allowed": "check the indent and the blank after each colon, here and in the line above; "
    'put a value that contains ": " in quotes',
    "cannot start any token": "indent with spaces, not tabs; put a value that begins with @, % or ` in quotes",
    "could not find expected ':'": 'write ": " after each key, on this line and the line above',
    "did not find expected key": "start this line in the same column as its neighbours; escape a quote inside quotes",
    "did not find expected '-'": "start all entries of the list in the same column",
    "did not find expected ',' or": 'close the bracket; put a value that contains , or ": " in quotes',
    "did not find expected node content": "write a value after the bracket, or remove an extra comma",
    "unexpected end of stream": "close every quote and bracket, and check that the file is complete",
    "unknown escape character": "use single quotes, or write each backslash twice",
    "control characters are not allowed": 'write the character as an escape such as "\\x01", in double quotes',
}


@dataclass(slots=True)
class YamlDocument:
    """A parsed YAML file: its values, their line numbers, and the list of its problems."""

    file: str
    problems: list[Problem]
    """The syntax errors, and the problems that later checks add. All files of one load share this list."""
    value: Any = None
    lines: dict[KeyPath, int] = field(default_factory=dict)

    def line(self, path: KeyPath) -> int:
        """Return the line of a key or list entry, from 1. A missing entry has the line of its nearest parent."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 0)

    def has(self, path: KeyPath) -> bool:
        """Return whether the file gives a value at ``path``."""
        value = self.value
        for key in path:
            found = (isinstance(value, dict) and key in value) or (isinstance(value, list) and key in range(len(value)))
            value = value[key] if found else None
        return value is not None

    def problem(self, path: KeyPath, message: str) -> Problem:
        """Return a problem with the value at ``path``."""
        return Problem(self.file, self.line(path), dotted(path), message)

    def refuse(self, path: KeyPath, message: str) -> None:
        """Add a problem with the value at ``path``."""
        self.problems.append(self.problem(path, message))


def dotted(path: KeyPath) -> str:
    """Return a path in dotted form, such as ``models.my-model.targets[0].url``."""
    text = "".join([f"[{key}]" if isinstance(key, int) else f".{key}" for key in path])
    return printable(text.removeprefix("."))


def parse_scalar(text: str) -> str | int | float | bool | None:
    """Return the value of an unquoted scalar: a number, boolean or null by the rules of YAML 1.2, otherwise text."""
    if text in WORDS:
        return WORDS[text]
    if INT.fullmatch(text):
        return int(text)
    if FLOAT.fullmatch(text) and math.isfinite(number := float(text)):
        return number
    return text


def parse(data: bytes, file: str, problems: list[Problem] | None = None) -> YamlDocument:
    """Parse one YAML document. Syntax errors are added to ``problems`` and never raised.

    ``file``: the name shown in problems.
    """
    document = YamlDocument(file, [] if problems is None else problems)
    try:
        if len(data) > MAX_BYTES:
            raise _Refused(0, f"the file is larger than {MAX_BYTES // 1024} KiB; make it smaller")
        text = data.decode("utf-8-sig")
        document.value = _Builder(document, yaml.parse(text, Loader=yaml.CSafeLoader)).document()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        document.problems.append(Problem(file, line, "", "the file is not UTF-8; save it as UTF-8"))
    except _Refused as error:
        document.problems.append(Problem(file, error.line, "", str(error)))
    except yaml.YAMLError as error:
        document.problems.append(Problem(file, *_explain(error, text)))
    return document


def _explain(error: yaml.YAMLError, text: str) -> tuple[int, str, str]:
    """Return the line, the key and the message of a syntax error. The message contains no text of the file."""
    if isinstance(error, yaml.MarkedYAMLError):
        what = error.problem or "cannot be read"
        line = error.problem_mark.line + 1 if error.problem_mark else 0
        line = min(line, max(1, text.count("\n")))  # an error at the end belongs to the last line
    else:
        what = str(getattr(error, "reason", "cannot be read"))
        line = text.count("\n", 0, int(getattr(error, "position", 0))) + 1
    hint = next((hint for phrase, hint in HINTS.items() if phrase in what), "check indentation and quotes")
    begin = getattr(error, "context_mark", None)
    if begin is not None and hint.startswith("close the bracket") and begin.line + 1 != line:
        hint = hint.replace("bracket", f"bracket that opens in line {begin.line + 1}", 1)
    if isinstance(error, yaml.MarkedYAMLError) and (quote := _open_quote(error, text)):
        line, hint = quote
    if text.lstrip().startswith(("{%", "{{", "{#")):
        hint = "this is Jinja: save it as chat_template.jinja, and convert it with gateway import chat_template.jinja"
    if PYTHON.search(text):
        hint = "this is Python: save it as config.py, and convert it with gateway import config.py"
    return line, "", f"not valid YAML ({what}); {hint}"


def _open_quote(error: yaml.MarkedYAMLError, text: str) -> tuple[int, str] | None:
    """Return the line of a quote that is not closed, and a hint; None if the error has another cause."""
    begin, at = error.context_mark, error.problem_mark
    if begin is not None and "quoted" in (error.context or "") and "found unexpected" in (error.problem or ""):
        return begin.line + 1, "the quote that begins here is not closed; close it on this line"
    events: list[Any] = []
    with suppress(yaml.YAMLError):
        events.extend(yaml.parse(text, Loader=yaml.CSafeLoader))
    last = events[-1]
    if at is None or getattr(last, "style", None) not in ("'", '"'):
        return None
    line, end = _line(last), last.end_mark.line + 1
    if line == end or end != at.line + 1:
        return None
    return line, f"the quote that begins here is closed only by the next quote, on line {end}; close it on this line"


class _Refused(Exception):
    """Raised to stop reading a file that exceeds a limit or is not a single document of plain values."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line


class _Builder:
    """Builds values and their line numbers from libyaml's events."""

    def __init__(self, document: YamlDocument, events: Iterator[Any]) -> None:
        self._document = document
        self._lines = document.lines
        self._events = events
        self._anchors: dict[str, tuple[Any, int]] = {}
        """Name of an anchor → the anchor's value, and the number of values inside that value."""
        self._aliases = 0
        self._values = 0

    def document(self) -> Any:
        """Return the value of the document. Raises ``_Refused`` if the file contains a second document."""
        next(self._events)  # stream start
        if isinstance(next(self._events), yaml.StreamEndEvent):
            return None
        value = self._node(next(self._events), ())
        next(self._events)  # document end
        following = next(self._events)
        if isinstance(following, yaml.DocumentStartEvent):
            raise _Refused(_line(following), 'a second document begins here ("---"); keep only one')
        return value

    def _node(self, event: Any, path: KeyPath) -> Any:
        line = _line(event)
        self._lines.setdefault(path, line)
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event, path)
        if len(path) > MAX_DEPTH:
            raise _Refused(line, f"the value is nested deeper than {MAX_DEPTH} levels; use fewer levels")
        if event.tag is not None:
            self._complain(line, path, 'YAML tags ("!…") are not supported; write the plain value')
        before = self._values
        self._count(1, line)
        if isinstance(event, yaml.MappingStartEvent):
            value: Any = self._mapping(path)
        elif isinstance(event, yaml.SequenceStartEvent):
            value = []
            while not isinstance(entry := next(self._events), yaml.SequenceEndEvent):
                value.append(self._node(entry, (*path, len(value))))
        else:
            value = parse_scalar(event.value) if event.implicit[0] or event.tag else event.value
        if event.anchor is not None:
            self._anchors[event.anchor] = (value, self._values - before)
        return value

    def _mapping(self, path: KeyPath) -> dict[str, Any]:
        """Read and return a mapping. Keys are always text, so ``no: 1`` has the key "no"."""
        found: dict[str, Any] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            line = _line(event)
            if not isinstance(event, yaml.ScalarEvent):
                raise _Refused(line, "a key must be plain text; put a value that begins with { [ or * in quotes")
            self._count(1, line)
            key, here = event.value, (*path, event.value)
            self._lines.setdefault(here, line)
            value = self._node(next(self._events), here)
            if key == "<<" and event.implicit[0]:
                self._complain(line, here, 'merge keys ("<<") are not supported; write the keys in full')
            elif key in found:
                self._complain(line, here, f"this key occurs twice, first on line {self._lines[here]}; keep only one")
            else:
                found[key] = value
        return found

    def _alias(self, event: Any, path: KeyPath) -> Any:
        line = _line(event)
        self._aliases += 1
        if self._aliases > MAX_ALIASES:
            raise _Refused(line, f'the file has more than {MAX_ALIASES} aliases ("*name"); write the values in full')
        if event.anchor not in self._anchors:
            self._complain(line, path, "this alias refers to no complete value above it; write the value in full")
            return None
        value, size = self._anchors[event.anchor]
        self._count(size, line)
        return value

    def _count(self, size: int, line: int) -> None:
        self._values += size
        if self._values > MAX_VALUES:
            raise _Refused(line, f"the file has more than {MAX_VALUES} values; make it smaller")

    def _complain(self, line: int, path: KeyPath, message: str) -> None:
        self._document.problems.append(Problem(self._document.file, line, dotted(path), message))


def _line(event: Any) -> int:
    return int(event.start_mark.line) + 1
