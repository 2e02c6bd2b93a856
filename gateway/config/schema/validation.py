"""Does a file hold what the rows allow? The one checker for every settings file."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

from gateway.config.files.yaml import Document, Path
from gateway.config.schema.names import shown, suggest
from gateway.config.schema.settings import MEANT, NOT_YET, ROWS, Row
from gateway.core.errors import Problem

NOT_AVAILABLE = "not available in this version (see the table in README.md)"


class Invalid:
    """Stands where a value was refused, so that later checks do not complain about it again."""

    __slots__ = ()

    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return "INVALID"


INVALID: Final = Invalid()


@dataclass(slots=True)
class Branch:
    """What may stand at one place: a leaf (``row``), a mapping (``keys``, ``any_key``) or a list (``item``)."""

    row: Row | None = None
    keys: dict[str, Branch] = field(default_factory=dict)
    any_key: Branch | None = None
    item: Branch | None = None
    not_yet: bool = False

    def available(self) -> dict[str, Branch]:
        """The keys that may be written."""
        return {key: child for key, child in self.keys.items() if not child.not_yet}

    def grow(self, name: str) -> Branch:
        """The branch at a dotted name, made when it is not there."""
        branch = self
        for step in name.replace("[]", ".[]").split("."):
            if step == "<name>":
                branch.any_key = branch = branch.any_key or Branch()
            elif step == "[]":
                branch.item = branch = branch.item or Branch()
            else:
                branch = branch.keys.setdefault(step, Branch())
        return branch


@cache
def tree(file: str) -> Branch:
    """The rows of one kind of file as a tree."""
    root = Branch()
    for row in ROWS:
        if row.file == file:
            root.grow(row.name).row = row
    for where, name in NOT_YET:
        if where == file:
            root.grow(name).not_yet = True
    return root


@dataclass(frozen=True, slots=True)
class Checked:
    """Parsed values with defaults filled in, ``INVALID`` where a value was refused, and the problems."""

    values: Any
    problems: tuple[Problem, ...]


def check(document: Document, file: str) -> Checked:
    """Check a document against the rows of ``file`` (``settings.GATEWAY`` and the like)."""
    walk = _Walk(document)
    values = walk.value(tree(file), document.value, ())
    return Checked(values, tuple(walk.problems))


def default(row: Row) -> Any:
    """A row's default as the gateway uses it."""
    return row.default if row.default is None else row.kind.read(row.default)


class _Walk:
    """One pass over one document."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.problems: list[Problem] = []

    def refuse(self, path: Path, message: str) -> None:
        self.problems.append(self.document.problem(path, message))

    def value(self, branch: Branch, value: Any, path: Path) -> Any:
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

    def list(self, item: Branch, value: Any, path: Path) -> Any:
        if value is None:
            return []
        if not isinstance(value, list):
            hint = 'put "- " before the entry' if isinstance(value, dict) else "write one entry per line after a dash"
            self.refuse(path, f"wants a list: {hint}")
            return INVALID
        return [self.value(item, entry, (*path, position)) for position, entry in enumerate(value)]

    def mapping(self, branch: Branch, value: Any, path: Path) -> Any:
        if value is not None and not isinstance(value, dict):
            self.refuse(path, f"wants a mapping of settings{_known(branch)}")
            return _blank(branch)
        found: dict[str, Any] = {}
        for key, entry in (value or {}).items():
            child = self.child(branch, key, (*path, key))
            if child is not None:
                found[key] = self.value(child, entry, (*path, key))
        for key, child in branch.available().items():
            if key not in found:
                found[key] = self.absent(child, (*path, key))
        return found

    def child(self, branch: Branch, key: str, path: Path) -> Branch | None:
        """What may stand under a key that was written; None, and a problem, when nothing may."""
        child = branch.keys.get(key, branch.any_key)
        if child is None:
            self.refuse(path, f"unknown key{_meant(branch, key)}")
        elif child.not_yet:
            self.refuse(path, NOT_AVAILABLE)
            return None
        return child

    def absent(self, branch: Branch, path: Path) -> Any:
        """The defaults of something that is not written; complains where it has to be."""
        if branch.row is not None and branch.row.required:
            self.refuse(path, f"is missing. {branch.row.says}")
            return INVALID
        if branch.row is not None:
            return default(branch.row)
        return self.value(branch, None, path)


def _blank(branch: Branch) -> Any:
    """A mapping in which nothing is known."""
    known = branch.available().items()
    return {key: _blank(child) if child.keys or child.any_key else INVALID for key, child in known}


def _meant(branch: Branch, key: str) -> str:
    known = branch.available()
    if MEANT.get(key) in known:
        return f" (did you mean {shown(MEANT[key])}?)"
    return suggest(key, known)


def _known(branch: Branch) -> str:
    known = branch.available()
    return f": {', '.join(known)}" if known else ", each under its name"
