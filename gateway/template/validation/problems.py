"""Reads the values of a template file and collects the mistakes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from gateway.core.errors import TemplateError
from gateway.core.json_values import REMOVED, KeyPath, corrected, part
from gateway.core.words import closest, shown, suggest
from gateway.template.spec import SpecProblem
from gateway.template.validation import file_types
from gateway.template.validation.file_types import UNKNOWN, json_schema, validator


class SpecError(TemplateError):
    """A template file cannot be used. The error message contains all problems of the file."""

    def __init__(self, problems: Iterable[SpecProblem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(f"{_dotted(problem.path)}{problem.message}" for problem in self.problems))


class Problems:
    """Collects the mistakes in a file. A method that finds a mistake adds a problem and returns a default value."""

    def __init__(self) -> None:
        self.found: list[SpecProblem] = []

    def add(self, path: KeyPath, message: str) -> None:
        """Add a mistake. The message describes what is wrong and what to do."""
        self.found.append(SpecProblem(path, message))

    def has(self, path: KeyPath) -> bool:
        """Return whether there is a mistake at this path."""
        return any(one.path == path for one in self.found)

    def mapping(self, value: Any, path: KeyPath) -> Mapping[str, Any]:
        """Return the mapping without null entries. A null means that the key is missing."""
        if isinstance(value, Mapping):
            return {key: entry for key, entry in value.items() if entry is not None}
        self.add(path, f"must be a mapping of keys, not {kind_of(value)}")
        return {}

    def keys(self, value: Mapping[Any, Any], known: Iterable[str], path: KeyPath) -> None:
        """Add a problem for every unknown key."""
        names = tuple(known)
        for key in value:
            if key not in names:
                self.add((*path, str(key)), f"unknown key {shown(key)}{suggest(key, names)}")

    def choice(self, value: Any, path: KeyPath, choices: tuple[str, ...]) -> str:
        """Return the value if it is one of ``choices``. Otherwise add a problem and return the first choice."""
        if value in choices:
            return str(value)
        self.add(path, _not_a_choice(value, choices))
        return choices[0]

    def read(self, type_: Any, value: Any, path: KeyPath = ()) -> Any:
        """Read a value of the given type, as ``file_types`` describes it.

        Adds a problem for each mistake. A wrong value is replaced by an empty value, the first choice, or 0.
        """
        try:
            return validator(type_).validate_python((value,))[0]
        except ValidationError as error:
            refused = sorted(error.errors(include_url=False), key=lambda one: one["type"] not in UNKNOWN)
        empty: dict[KeyPath, Any] = {}
        for one in refused:
            place = one["loc"][1:]
            message, empty[place] = _explain(one, type_)
            self.add((*path, *(place[:-1] if one["type"] == "missing" else place)), message)
        return validator(type_, relaxed=True).validate_python((corrected(value, empty),))[0]


def _explain(error: ErrorDetails, type_: Any) -> tuple[str, Any]:
    """Return the message for one of pydantic's errors, and the value that replaces the wrong value."""
    value, kind, key = error["input"], error["type"], str(error["loc"][-1])
    match kind:
        case _ if kind in UNKNOWN:
            known = part(json_schema(type_), error["loc"][1:-1])["properties"]
            return f"unknown key {shown(key)}{suggest(key, known)}", REMOVED
        case "missing":
            forms = part(json_schema(type_), error["loc"][1:])["anyOf"]
            words = forms[0].get("enum")
            return f"has no `{key}`: add {'one of ' + ', '.join(words) if words else 'it'}", REMOVED
        case "literal_error":
            words = tuple(re.findall("'([^']*)'", error["ctx"]["expected"]))
            return _not_a_choice(value, words), words[0]
        case "bool_type":
            return f"must be true or false, not {kind_of(value)}", False
        case "int_type" | "greater_than_equal":
            return f"must be a whole number of 0 or more, not {shown(value)}", 0
        case "string_type":
            return f"must be text, not {kind_of(value)}: {_NO_TEXT.get(type(value), 'put it in quotes')}", ""
        case "string_too_short":
            return "must not be empty: write a value", ""
        case "tuple_type":
            hint = '; begin each entry with "- "' if isinstance(value, Mapping) else ""
            if hint and key == "round":
                hint = "; write each role as an entry such as - {role: HUMAN, begin: …}"
            return f"must be a list, not {kind_of(value)}{hint}", []
        case file_types.MAPPING_OR_TEXT:
            return f"must be a mapping or a text, not {kind_of(value)}", ""
    return f"must be a mapping of keys, not {kind_of(value)}", {}


def _not_a_choice(value: object, choices: tuple[str, ...]) -> str:
    near = closest(str(value), choices)
    hint = f' (did you mean "{near}"?)' if near is not None else ""
    return f"{shown(value)} is not one of {', '.join(choices)}{hint}"


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


def _dotted(path: KeyPath) -> str:
    return f"{'.'.join(str(step) for step in path)}: " if path else ""
