"""Reads the values of a template file and collects the mistakes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from gateway.core.answer_markers import NonEmpty
from gateway.core.errors import TemplateError
from gateway.core.words import shown, suggest
from gateway.template.spec import SpecProblem

Path = tuple[str | int, ...]
Spec = TypeVar("Spec")


class SpecError(TemplateError):
    """A template file cannot be used. The error message contains all problems of the file."""

    def __init__(self, problems: Iterable[SpecProblem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(f"{_dotted(problem.path)}{problem.message}" for problem in self.problems))


class Problems:
    """Collects the mistakes in a file. A method that finds a mistake adds a problem and returns a default value."""

    def __init__(self) -> None:
        self.found: list[SpecProblem] = []

    def add(self, path: Path, message: str) -> None:
        """Add a mistake. The message describes what is wrong and what to do."""
        self.found.append(SpecProblem(path, message))

    def mapping(self, value: Any, path: Path) -> Mapping[str, Any]:
        """Return the mapping without null entries. A null means that the key is missing."""
        if isinstance(value, Mapping):
            return {key: entry for key, entry in value.items() if entry is not None}
        self.add(path, f"must be a mapping of keys, not {kind_of(value)}")
        return {}

    def keys(self, value: Mapping[Any, Any], known: Iterable[str], path: Path) -> None:
        """Add a problem for every unknown key."""
        names = tuple(known)
        for key in value:
            if key not in names:
                self.add((*path, str(key)), f"unknown key {shown(key)}{suggest(key, names)}")

    def choice(self, value: Any, path: Path, choices: tuple[str, ...]) -> str:
        """Return the value if it is one of ``choices``. Otherwise add a problem and return the first choice."""
        if value in choices:
            return str(value)
        self.add(path, f"{shown(value)} is not one of {', '.join(choices)}{suggest(value, choices)}")
        return choices[0]

    def record(self, cls: type[Spec], value: Any, path: Path) -> Spec:
        """Read a dataclass from a mapping whose keys are the fields. A field without a default is required."""
        entry = self.mapping(value, path)
        types = get_type_hints(cls, include_extras=True)
        self.keys(entry, types, path)
        values = self.values(cls, entry, path)
        for field in fields(cls):  # type: ignore[arg-type]  # a dataclass
            if field.name not in entry and field.default is MISSING:
                words = get_args(types[field.name]) if get_origin(types[field.name]) is Literal else ()
                if isinstance(value, Mapping):
                    self.add(path, f"has no `{field.name}`: add {'one of ' + ', '.join(words) if words else 'it'}")
                values[field.name] = words[0] if words else ""
        return cls(**values)

    def values(
        self, cls: type[Any], entry: Mapping[str, Any], path: Path = (), names: Iterable[str] | None = None
    ) -> dict[str, Any]:
        """Return the values of the keys that are fields of ``cls``. If ``names`` is given, return only these fields."""
        types = get_type_hints(cls, include_extras=True)
        wanted = [name for name in (types if names is None else names) if name in types and name in entry]
        return {name: self.value(types[name], entry[name], (*path, name)) for name in wanted}

    def value(self, type_: Any, value: Any, path: Path) -> Any:
        """Read a value of the given type.

        Possible types are texts, ``NonEmpty``, booleans, integers from 0 up, ``Literal`` words, tuples, mappings,
        dataclasses, and unions of such types. A tuple of ``NonEmpty`` may be written as a single text.
        """
        options = get_args(type_) if get_origin(type_) in (Union, UnionType) else (type_,)
        words = tuple([word for option in options if get_origin(option) is Literal for word in get_args(option)])
        if value in words or (str in options and isinstance(value, str)):
            return value
        for option in options:
            origin, arguments = get_origin(option), get_args(option)
            if origin is tuple:
                listed = [value] if arguments[0] is NonEmpty and isinstance(value, str) else value
                if not isinstance(listed, (list, tuple)):
                    self.add(path, f"must be a list, not {kind_of(value)}")
                    return ()
                return tuple([self.value(arguments[0], item, (*path, number)) for number, item in enumerate(listed)])
            if is_dataclass(option) or origin is Mapping:
                if str in options and not isinstance(value, Mapping):
                    self.add(path, f"must be a mapping or a text, not {kind_of(value)}")
                    return ""
                if is_dataclass(option):
                    return self.record(option, value, path)  # type: ignore[arg-type]  # no instance
                entry = self.mapping(value, path)
                if arguments[1] is Any:
                    return value
                return {str(key): self.value(arguments[1], item, (*path, str(key))) for key, item in entry.items()}
        return self._single(options, words, value, path)

    def _single(self, options: tuple[Any, ...], words: tuple[str, ...], value: Any, path: Path) -> Any:
        if bool in options:
            if not isinstance(value, bool):
                self.add(path, f"must be true or false, not {kind_of(value)}")
            return value is True
        if int in options:
            if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
                return value
            self.add(path, f"must be a whole number of 0 or more, not {shown(value)}")
            return 0
        if words:
            return self.choice(value, path, words)
        if not isinstance(value, str):
            self.add(path, f"must be text, not {kind_of(value)}: {_NO_TEXT.get(type(value), 'put it in quotes')}")
            return ""
        if not value and NonEmpty in options:
            self.add(path, "must not be empty: write a value")
        return value


_NO_TEXT: Mapping[type, str] = {
    list: "write one text; decode token ids",
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
    """Return the type of a value in plain words."""
    return _KINDS.get(type(value), type(value).__name__)


def _dotted(path: Path) -> str:
    return f"{'.'.join(str(step) for step in path)}: " if path else ""
