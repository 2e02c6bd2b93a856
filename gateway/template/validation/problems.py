"""How are the mistakes of a template file gathered and worded?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from gateway.core.errors import TemplateError
from gateway.template.spec.template import SpecProblem

Path = tuple[str | int, ...]

MAX_SHOWN = 40
"""Characters of a wrong value that a message repeats."""


class SpecError(TemplateError):
    """A template file cannot be used; carries every problem found."""

    def __init__(self, problems: Iterable[SpecProblem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(f"{_dotted(problem.path)}{problem.message}" for problem in self.problems))


class Problems:
    """The mistakes found so far, and readers that add to them instead of raising."""

    def __init__(self) -> None:
        self.found: list[SpecProblem] = []

    def add(self, path: Path, message: str) -> None:
        """Note a mistake: what it is, and what to do."""
        self.found.append(SpecProblem(path, message))

    def mapping(self, value: Any, path: Path, what: str) -> Mapping[str, Any]:
        """The value with null entries taken out, because null means absent; empty when it is no mapping."""
        if isinstance(value, Mapping):
            return {key: entry for key, entry in value.items() if entry is not None}
        self.add(path, f"{what} must be a mapping of keys, not {kind_of(value)}")
        return {}

    def keys(self, value: Mapping[Any, Any], known: Iterable[str], path: Path) -> None:
        """Every key that is not known, with the nearest one that is."""
        names = tuple(known)
        for key in value:
            if key not in names:
                self.add((*path, str(key)), f"unknown key {shown(key)}{suggestion(key, names)}")

    def items(self, value: Any, path: Path) -> list[Any]:
        """The list, or nothing and a problem."""
        if isinstance(value, (list, tuple)):
            return list(value)
        self.add(path, f"must be a list, not {kind_of(value)}")
        return []

    def text(self, value: Any, path: Path) -> str:
        """The text, or ``""`` and a problem that tells why lists and mappings do not do."""
        if isinstance(value, str):
            return value
        hint = _NO_TEXT.get(type(value), "put it in quotes")
        self.add(path, f"must be text, not {kind_of(value)}: {hint}")
        return ""

    def word(self, value: Any, path: Path) -> str:
        """Text that must not be empty."""
        text = self.text(value, path)
        if isinstance(value, str) and not text:
            self.add(path, "must not be empty: write a value or leave the key out")
        return text

    def flag(self, value: Any, path: Path) -> bool:
        """True or false."""
        if not isinstance(value, bool):
            self.add(path, f"must be true or false, not {kind_of(value)}")
        return value is True

    def choice(self, value: Any, path: Path, choices: tuple[str, ...], default: str) -> str:
        """One of a few words."""
        if value in choices:
            return str(value)
        listed = ", ".join(choices)
        self.add(path, f"{shown(value)} is not one of {listed}{suggestion(value, choices)}")
        return default


_NO_TEXT: Mapping[type, str] = {
    list: "lists of tokens or items are not supported; decode them yourself and write the resulting text",
    dict: "write the text itself",
}

_KINDS: Mapping[type, str] = {
    type(None): "null",
    bool: "true or false",
    int: "a number",
    float: "a number",
    str: "text",
    list: "a list",
    tuple: "a list",
    dict: "a mapping",
}


def kind_of(value: Any) -> str:
    """The value's kind in a reader's words."""
    return _KINDS.get(type(value), type(value).__name__)


def shown(value: Any) -> str:
    """A value as a message repeats it: escaped and short."""
    text = ascii(value)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"


def as_name(text: str) -> str:
    """A name as it stands, or escaped if it would not stay on its line."""
    return text if text.isprintable() else shown(text)


def as_names(texts: Iterable[str]) -> str:
    """Several of them in a row."""
    return ", ".join([as_name(text) for text in texts])


def suggestion(value: Any, known: Iterable[str]) -> str:
    """`` (did you mean "round"?)``, or which ones there are."""
    names = tuple(known)
    near = get_close_matches(str(value), names, n=1)
    return f' (did you mean "{as_name(near[0])}"?)' if near else f"; known: {as_names(names)}"


def _dotted(path: Path) -> str:
    return f"{'.'.join(str(step) for step in path)}: " if path else ""
