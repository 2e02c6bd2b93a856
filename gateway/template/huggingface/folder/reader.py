"""What lies in a model's folder? Its files as they are asked for, read once and complained of once.

The file system is handed in: a template is read from beside its YAML, a reference from anywhere.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from posixpath import basename, dirname, join
from typing import Any

from gateway.core.errors import TemplateError
from gateway.template.validation.problems import Problems, as_name, shown

Fetch = Callable[[str], bytes | None]
"""A file's bytes, by its path beside the template; None: there is none. Raises ``TemplateError`` if it may not be."""
Names = Callable[[str], Sequence[str]]
"""The names of the files in a folder beside the template; none: there is no such folder. Raises ``TemplateError``."""

NAMED = "additional_chat_templates"
JINJA = ".jinja"

MOST_BYTES = 1024 * 1024
"""Of one file; a tokenizer's configuration with thousands of added tokens has a third of that."""


class FolderReader:
    """Files as they are asked for, each complained of once."""

    def __init__(self, fetch: Fetch, names: Names, problems: Problems) -> None:
        self._fetch = fetch
        self._names = names
        self._problems = problems
        self._read: dict[str, bytes | None] = {}
        self._objects: dict[str, Mapping[str, Any]] = {}
        self.notes: list[str] = []

    def data(self, name: str, *, needed: bool = False) -> bytes | None:
        """A file's bytes; None: there is none, or it cannot be used."""
        if name not in self._read:
            self._read[name] = self._file(name, needed=needed)
        return self._read[name]

    def named(self, folder: str) -> tuple[str, ...]:
        """The names of the templates in ``additional_chat_templates/``."""
        try:
            return names_in(self._names(join(folder, NAMED)))
        except TemplateError as error:
            self.complain(error.message)
            return ()

    def text(self, name: str) -> str:
        """A template's text."""
        try:
            return (self.data(name) or b"").decode("utf-8")
        except UnicodeDecodeError as error:
            self.complain(f"{as_name(name)} is not UTF-8 at byte {error.start}")
            return ""

    def object(self, name: str) -> Mapping[str, Any]:
        """A JSON object; empty: there is none."""
        if name not in self._objects:
            data = self.data(name)
            self._objects[name] = {} if data is None else self._parsed(name, data)
        return self._objects[name]

    def complain(self, message: str) -> None:
        """A problem with the files."""
        self._problems.add(("file",), message)

    def _file(self, name: str, *, needed: bool) -> bytes | None:
        try:
            data = self._fetch(name)
        except TemplateError as error:
            self.complain(error.message)
            return None
        if data is None and needed:
            self.complain(f"there is no {name} beside the template: the path begins at its folder")
        if data is not None and len(data) > MOST_BYTES:
            self.complain(f"{as_name(name)} has more than {MOST_BYTES} bytes: copy what is needed into another")
            return None
        return data

    def _parsed(self, name: str, data: bytes) -> Mapping[str, Any]:
        try:
            value = json.loads(data)
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            self.complain(f"{name} holds {error.object[error.start]!a}, half of a character: write the whole one")
            return {}
        except (ValueError, RecursionError) as error:
            self.complain(f"{name} is no JSON: {error}")
            return {}
        if not isinstance(value, dict):
            self.complain(f"{name} holds no JSON object")
            return {}
        return value


def folder_of(name: str) -> str:
    """The model's folder of a template's file, which may be one of the named templates in it."""
    folder = dirname(name)
    return dirname(folder) if basename(folder) == NAMED else folder


def names_in(files: Sequence[str]) -> tuple[str, ...]:
    """The names of the templates among files. Raises ``TemplateError`` for one that is not UTF-8."""
    names = sorted([file.removesuffix(JINJA) for file in files if file.endswith(JINJA)])
    for name in names:
        try:
            name.encode()
        except UnicodeEncodeError:
            raise TemplateError(f"{NAMED}/ holds {shown(name + JINJA)}, a name that is not UTF-8: rename it") from None
    return tuple(names)
