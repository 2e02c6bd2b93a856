"""Reads the files of a model's folder, each of them once.

The file system is passed in: a template is read from beside its YAML, a reference from anywhere.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from posixpath import basename, dirname, join
from typing import Any

from gateway.core.errors import TemplateError
from gateway.template.validation.problems import Problems, as_name, shown

Fetch = Callable[[str], bytes | None]
"""A file's bytes, by its path beside the template; None if there is no file. Raises ``TemplateError``."""
Names = Callable[[str], Sequence[str]]
"""The names of the files in a folder beside the template; empty if there is no folder. Raises ``TemplateError``."""

NAMED = "additional_chat_templates"
JINJA = ".jinja"

MOST_BYTES = 1024 * 1024
"""Of one file; a tokenizer's configuration with thousands of added tokens has a third of that."""


class FolderReader:
    """Files by their paths. What is wrong with a file is added to the problems once."""

    def __init__(self, fetch: Fetch, names: Names, problems: Problems) -> None:
        self._fetch = fetch
        self._names = names
        self._problems = problems
        self._files: dict[str, bytes | None] = {}
        self._objects: dict[str, Mapping[str, Any]] = {}
        self.notes: list[str] = []
        """Decisions between files that the operator should know."""

    def data(self, name: str, *, required: bool = False) -> bytes | None:
        """A file's bytes; None if the file does not exist or cannot be used."""
        if name not in self._files:
            self._files[name] = self._read(name, required=required)
        return self._files[name]

    def named(self, folder: str) -> tuple[str, ...]:
        """The names of the templates in ``additional_chat_templates/``."""
        try:
            return names_in(self._names(join(folder, NAMED)))
        except TemplateError as error:
            self.add_problem(error.message)
            return ()

    def text(self, name: str) -> str:
        """A file's text."""
        try:
            return (self.data(name) or b"").decode("utf-8")
        except UnicodeDecodeError as error:
            self.add_problem(f"{as_name(name)} is not UTF-8 at byte {error.start}")
            return ""

    def object(self, name: str) -> Mapping[str, Any]:
        """A file's JSON object; empty if there is no file."""
        if name not in self._objects:
            data = self.data(name)
            self._objects[name] = {} if data is None else self._parse(name, data)
        return self._objects[name]

    def add_problem(self, message: str) -> None:
        """Add a problem with the files."""
        self._problems.add(("file",), message)

    def _read(self, name: str, *, required: bool) -> bytes | None:
        try:
            data = self._fetch(name)
        except TemplateError as error:
            self.add_problem(error.message)
            return None
        if data is None and required:
            self.add_problem(f"there is no {name} beside the template: the path begins at its folder")
        if data is not None and len(data) > MOST_BYTES:
            self.add_problem(f"{as_name(name)} has more than {MOST_BYTES} bytes: copy the needed keys to another file")
            return None
        return data

    def _parse(self, name: str, data: bytes) -> Mapping[str, Any]:
        try:
            value = json.loads(data)
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            self.add_problem(
                f"{name} contains {error.object[error.start]!a}, half of a character: write the whole character"
            )
            return {}
        except (ValueError, RecursionError) as error:
            self.add_problem(f"{name} is not JSON: {error}")
            return {}
        if not isinstance(value, dict):
            self.add_problem(f"{name} must contain a JSON object")
            return {}
        return value


def folder_of(name: str) -> str:
    """The model's folder of a template's file, which may be one of its named templates."""
    folder = dirname(name)
    return dirname(folder) if basename(folder) == NAMED else folder


def names_in(files: Sequence[str]) -> tuple[str, ...]:
    """The names of the templates among files. Raises ``TemplateError`` for a name that is not UTF-8."""
    names = sorted([file.removesuffix(JINJA) for file in files if file.endswith(JINJA)])
    for name in names:
        try:
            name.encode()
        except UnicodeEncodeError:
            raise TemplateError(
                f"{NAMED}/ contains {shown(name + JINJA)}, a name that is not UTF-8: rename it"
            ) from None
    return tuple(names)
