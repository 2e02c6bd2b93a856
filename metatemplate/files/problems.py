"""Reads the values of a template file and collects the mistakes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic_core import ErrorDetails

from metatemplate.errors import TemplateFailure
from metatemplate.files.file_types import json_schema, read
from metatemplate.templates.spec import SpecProblem
from metatemplate.values.json_values import (
    REMOVED,
    UNKNOWN,
    KeyPath,
    not_one_of,
    part,
    problem_text,
    type_words,
)
from metatemplate.values.kinds import REFUSED_TEXT
from metatemplate.values.words import suggest


class SpecError(TemplateFailure):
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
        self.add(path, f"must be a mapping of keys, not {type_words(value)}")
        return {}

    def keys(self, value: Mapping[Any, Any], known: Iterable[str], path: KeyPath) -> None:
        """Add a problem for every unknown key."""
        names = tuple(known)
        for key in value:
            if key not in names:
                self.add((*path, str(key)), f"unknown key{suggest(key, names)}")

    def choice(self, value: Any, path: KeyPath, choices: tuple[str, ...]) -> str:
        """Return the value if it is one of ``choices``. Otherwise add a problem and return the first choice."""
        if value in choices:
            return str(value)
        self.add(path, not_one_of(choices, value))
        return choices[0]

    def read(self, type_: Any, value: Any, path: KeyPath = ()) -> Any:
        """Read a value of the given type, and add a problem for each mistake. A null means that the key is missing.

        A wrong value is replaced by an empty value, the first choice, or 0.
        """

        return read(
            type_,
            value,
            lambda place, errors: _explain(type_, place, errors),
            lambda place, message: self.add((*path, *place), message),
        )


WHOLE = "a whole number of 0 or more"
EXPECTED: Mapping[str, tuple[str, Any]] = {
    # Pydantic's type of the error → the expected type, and the value that replaces the wrong one.
    "bool_type": ("true or false", False),
    "int_type": (WHOLE, 0),
    "greater_than_equal": (WHOLE, 0),
    "string_type": ("text", REFUSED_TEXT),
    "string_too_short": ("", REFUSED_TEXT),
    "tuple_type": ("a list", []),
}
"""All other errors are of mappings."""


def _explain(type_: Any, place: KeyPath, errors: list[ErrorDetails]) -> tuple[str, Any]:
    """Return the message for the errors of a value, and the value that replaces it."""
    error = errors[-1]
    kind = error["type"]
    if error["input"] is None and place and isinstance(place[-1], str):
        return "", REMOVED
    if kind in UNKNOWN:
        return problem_text(error, known=part(json_schema(type_), place[:-1])["properties"]), REMOVED
    if kind == "missing":
        words = part(json_schema(type_), place)["anyOf"][0].get("enum")
        hint = f"one of {', '.join(words)}" if words else "it"
        return f"{problem_text(error)}; add {hint}", words[0] if words else REFUSED_TEXT
    if kind == "literal_error":
        return problem_text(error), error["ctx"]["expected"].split("'")[1]
    expected, empty = EXPECTED.get(kind, ("a mapping of keys", {}))
    if len(errors) > 1:
        expected, empty = f"a {'list' if kind == 'tuple_type' else 'mapping'} or a text", REFUSED_TEXT
    return problem_text(error, [expected] if expected else ()) + _remedy(error, place), empty


def _remedy(error: ErrorDetails, place: KeyPath) -> str:
    """Return what to write instead of a value. Empty if the message is enough."""
    value = error["input"]
    match error["type"]:
        case "string_type":
            return f"; {_NO_TEXT.get(type(value), 'put it in quotes')}"
        case "string_too_short":
            return "; write a value, or remove the line"
        case "tuple_type" if isinstance(value, Mapping):
            is_round = place[-1] == "round"
            return "; write each role as an entry such as - {role: HUMAN, begin: …}" if is_round else LIST_REMEDY
    return ""


LIST_REMEDY = '; begin each entry with "- "'
_NO_TEXT: Mapping[type, str] = {
    list: "write one text; decode token ids",
    dict: "write the text itself",
}


def _dotted(path: KeyPath) -> str:
    return f"{'.'.join(str(step) for step in path)}: " if path else ""
