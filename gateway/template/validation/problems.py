"""The mistakes of a template file, and readers of its values that collect them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from difflib import get_close_matches
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from gateway.core.errors import TemplateError
from gateway.template.spec.template import SpecProblem

Path = tuple[str | int, ...]
Spec = TypeVar("Spec")

MAX_SHOWN = 40
"""Characters of a wrong value that a message repeats."""


class SpecError(TemplateError):
    """A template file cannot be used. Holds every problem found."""

    def __init__(self, problems: Iterable[SpecProblem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(f"{_dotted(problem.path)}{problem.message}" for problem in self.problems))


class Problems:
    """The mistakes found so far. Readers add to them instead of raising, and return a default."""

    def __init__(self) -> None:
        self.found: list[SpecProblem] = []

    def add(self, path: Path, message: str) -> None:
        """Add a mistake; the message gives what is wrong and what to do."""
        self.found.append(SpecProblem(path, message))

    def mapping(self, value: Any, path: Path, what: str) -> Mapping[str, Any]:
        """The mapping without null entries, because null means absent."""
        if isinstance(value, Mapping):
            return {key: entry for key, entry in value.items() if entry is not None}
        self.add(path, f"{what} must be a mapping of keys, not {kind_of(value)}")
        return {}

    def keys(self, value: Mapping[Any, Any], known: Iterable[str], path: Path) -> None:
        """Add a problem for every unknown key."""
        names = tuple(known)
        for key in value:
            if key not in names:
                self.add((*path, str(key)), f"unknown key {shown(key)}{suggestion(key, names)}")

    def items(self, value: Any, path: Path) -> list[Any]:
        """The list."""
        if isinstance(value, (list, tuple)):
            return list(value)
        self.add(path, f"must be a list, not {kind_of(value)}")
        return []

    def text(self, value: Any, path: Path) -> str:
        """The text."""
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

    def record(self, cls: type[Spec], value: Any, path: Path) -> Spec:
        """A dataclass read from a mapping: its fields are the keys, their types decide what each may hold.

        Types are text, true or false, whole numbers from 0 up, ``Literal`` words, tuples, and further dataclasses. A
        key without default is required.
        """
        entry = self.mapping(value, path, f"`{path[-1]}`" if isinstance(path[-1], str) else "an entry")
        types = get_type_hints(cls)
        self.keys(entry, types, path)
        values = {name: self._typed(types[name], entry[name], (*path, name)) for name in types if name in entry}
        for field in fields(cls):  # type: ignore[arg-type]  # a dataclass
            if field.name not in entry and field.default is MISSING:
                words = get_args(types[field.name])
                self.add(path, f"has no `{field.name}`: write {'one of ' + ', '.join(words) if words else 'it'}")
                values[field.name] = words[0] if words else ""
        return cls(**values)

    def _typed(self, type_: Any, value: Any, path: Path) -> Any:
        options = get_args(type_) if get_origin(type_) in (Union, UnionType) else (type_,)
        for option in options:
            if is_dataclass(option):
                return self.record(option, value, path)  # type: ignore[arg-type]  # no instance
            if get_origin(option) is tuple:
                listed = enumerate(self.items(value, path))
                return tuple([self._typed(get_args(option)[0], item, (*path, number)) for number, item in listed])
        words = tuple([word for option in options if get_origin(option) is Literal for word in get_args(option)])
        if value in words:
            return value
        if bool in options:
            return self.flag(value, path)
        if int in options:
            return self.number(value, path)
        return self.choice(value, path, words, words[0]) if words else self.text(value, path)

    def number(self, value: Any, path: Path) -> int:
        """A whole number from 0 up."""
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
        self.add(path, f"must be a whole number from 0 up, not {shown(value)}")
        return 0

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
    """The kind of a value, in plain words."""
    return _KINDS.get(type(value), type(value).__name__)


def shown(value: Any) -> str:
    """A value for a message: escaped and short."""
    text = ascii(value)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"


def as_name(text: str) -> str:
    """A name for a message: unchanged, or escaped if it has unprintable characters."""
    return text if text.isprintable() else shown(text)


def as_names(texts: Iterable[str]) -> str:
    """Names for a message, separated by commas."""
    return ", ".join([as_name(text) for text in texts])


def suggestion(value: Any, known: Iterable[str]) -> str:
    """`` (did you mean "round"?)`` for a word close to a known one, else the known ones."""
    names = tuple(known)
    near = get_close_matches(str(value), names, n=1)
    return f' (did you mean "{as_name(near[0])}"?)' if near else f"; known: {as_names(names)}"


def _dotted(path: Path) -> str:
    return f"{'.'.join(str(step) for step in path)}: " if path else ""
