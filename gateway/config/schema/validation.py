"""Checking a parsed settings file against the rows of ``settings``."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

from gateway.config.files.yaml import Path, YamlDocument
from gateway.config.schema.names import quote, suggest
from gateway.config.schema.settings import ALIASES, ROWS, Row
from gateway.core.errors import Problem


class Invalid:
    """Replaces a refused value, so that later checks do not report it again."""

    __slots__ = ()

    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return "INVALID"


INVALID: Final = Invalid()


@dataclass(slots=True)
class SchemaNode:
    """The allowed content at one place: a setting (``row``), a mapping (``keys``, ``any_key``) or a list (``item``)."""

    row: Row | None = None
    keys: dict[str, SchemaNode] = field(default_factory=dict)
    any_key: SchemaNode | None = None
    item: SchemaNode | None = None

    def grow(self, name: str) -> SchemaNode:
        """Return the node at a dotted name, created if necessary."""
        branch = self
        for step in name.replace("[]", ".[]").split("."):
            if step == "<name>":
                branch.any_key = branch = branch.any_key or SchemaNode()
            elif step == "[]":
                branch.item = branch = branch.item or SchemaNode()
            else:
                branch = branch.keys.setdefault(step, SchemaNode())
        return branch


@cache
def schema_of(file: str) -> SchemaNode:
    """Return the rows of one kind of file as a tree."""
    root = SchemaNode()
    for row in ROWS:
        if row.file == file:
            root.grow(row.name).row = row
    return root


@dataclass(frozen=True, slots=True)
class Checked:
    """Values with defaults, ``INVALID`` for refused values, and the problems."""

    values: Any
    problems: tuple[Problem, ...]


def check(document: YamlDocument, file: str) -> Checked:
    """Check a document against the rows of ``file`` (such as ``settings.GATEWAY``)."""
    walk = _Validator(document)
    values = walk.value(schema_of(file), document.value, ())
    return Checked(values, tuple(walk.problems))


def default(row: Row) -> Any:
    """Return a row's default as a converted value."""
    return row.default if row.default is None else row.kind.read(row.default)


class _Validator:
    """One pass over a document."""

    def __init__(self, document: YamlDocument) -> None:
        self.document = document
        self.problems: list[Problem] = []

    def refuse(self, path: Path, message: str) -> None:
        self.problems.append(self.document.problem(path, message))

    def value(self, branch: SchemaNode, value: Any, path: Path) -> Any:
        if branch.row is not None:
            return self.leaf(branch.row, value, path)
        if branch.item is not None:
            return self.list(branch.item, value, path)
        return self.mapping(branch, value, path)

    def leaf(self, row: Row, value: Any, path: Path) -> Any:
        if value is None and row.default is None:
            return None
        try:
            if value is None:
                raise ValueError("is empty: write a value, or leave the line out")
            return row.kind.read(value)
        except ValueError as error:
            self.refuse(path, str(error))
            return INVALID

    def list(self, item: SchemaNode, value: Any, path: Path) -> Any:
        if value is None:
            return []
        if not isinstance(value, list):
            hint = 'put "- " before the entry' if isinstance(value, dict) else "write one entry per line after a dash"
            self.refuse(path, f"expected a list: {hint}")
            return INVALID
        return [self.value(item, entry, (*path, position)) for position, entry in enumerate(value)]

    def mapping(self, branch: SchemaNode, value: Any, path: Path) -> Any:
        if value is not None and not isinstance(value, dict):
            self.refuse(path, f"expected a mapping of settings{_known_keys(branch)}")
            return _invalid_mapping(branch)
        found: dict[str, Any] = {}
        for key, entry in (value or {}).items():
            child = self.child(branch, key, (*path, key))
            if child is not None:
                found[key] = self.value(child, entry, (*path, key))
        for key, child in branch.keys.items():
            if key not in found:
                found[key] = self.absent(child, (*path, key))
        return found

    def child(self, branch: SchemaNode, key: str, path: Path) -> SchemaNode | None:
        """Return the node of a written key; None, and a problem, for an unknown key."""
        child = branch.keys.get(key, branch.any_key)
        if child is None:
            self.refuse(path, f"unknown key{_suggestion(branch, key)}")
        return child

    def absent(self, branch: SchemaNode, path: Path) -> Any:
        """Return the defaults of an absent node; add a problem if it is required."""
        if branch.row is not None and branch.row.required:
            self.refuse(path, f"is missing. {branch.row.description}")
            return INVALID
        if branch.row is not None:
            return default(branch.row)
        return self.value(branch, None, path)


def _invalid_mapping(branch: SchemaNode) -> Any:
    """Return a mapping of ``INVALID`` values."""
    return {
        key: _invalid_mapping(child) if child.keys or child.any_key else INVALID for key, child in branch.keys.items()
    }


def _suggestion(branch: SchemaNode, key: str) -> str:
    if ALIASES.get(key) in branch.keys:
        return f" (did you mean {quote(ALIASES[key])}?)"
    return suggest(key, branch.keys)


def _known_keys(branch: SchemaNode) -> str:
    return f": {', '.join(branch.keys)}" if branch.keys else ", each under its name"
