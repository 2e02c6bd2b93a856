"""Checks a parsed settings file against the rows of ``settings``."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from gateway.config.files.yaml import Path, YamlDocument
from gateway.config.schema.names import quote
from gateway.config.schema.settings import ALIASES, ROWS, Row
from gateway.core.suggestions import suggest


class Invalid:
    """Replaces a refused value, or a refused mapping with all its values. Later checks do not report it again."""

    def __bool__(self) -> bool:
        return False

    def __getitem__(self, key: str) -> Invalid:
        return self


INVALID: Final = Invalid()

ANY_NAME, ENTRY = "<name>", "[]"


@cache
def schema_of(file: str) -> dict[str, Any]:
    """Return the rows of one kind of file as nested mappings.

    The key ``<name>`` means any name, and the key ``[]`` means each entry of a list.
    """
    root: dict[str, Any] = {}
    for row in ROWS:
        if row.file == file:
            *steps, last = row.name.replace("[]", ".[]").split(".")
            node = root
            for step in steps:
                node = node.setdefault(step, {})
            node[last] = row
    return root


def check(document: YamlDocument, file: str) -> Any:
    """Check a document against the rows of ``file`` (such as ``settings.GATEWAY``), and add problems to it.

    Returns the values with defaults, and ``INVALID`` for refused values.
    """
    return _value(document, schema_of(file), document.value, ())


def _value(document: YamlDocument, node: Row | dict[str, Any], value: Any, path: Path) -> Any:
    if isinstance(node, Row):
        return _setting(document, node, value, path)
    if ENTRY in node:
        if value is None or isinstance(value, list):
            return [_value(document, node[ENTRY], entry, (*path, at)) for at, entry in enumerate(value or ())]
        hint = 'put "- " before the entry' if isinstance(value, dict) else 'write each entry on its own line after "- "'
        document.refuse(path, f"expected a list; {hint}")
        return INVALID
    if value is None or isinstance(value, dict):
        return _mapping(document, node, value or {}, path)
    expected = "mapping of names to settings" if ANY_NAME in node else f"mapping with the settings {', '.join(node)}"
    document.refuse(path, f"expected a {expected}")
    return INVALID


def _setting(document: YamlDocument, row: Row, value: Any, path: Path) -> Any:
    if value is None and row.default is None:
        return None
    try:
        if value is None:
            raise ValueError("is empty; write a value, or remove the line")
        return row.kind.read(value)
    except ValueError as error:
        document.refuse(path, str(error))
        return INVALID


def _mapping(document: YamlDocument, node: dict[str, Any], value: dict[str, Any], path: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, entry in value.items():
        if (child := node.get(key, node.get(ANY_NAME))) is not None:
            found[key] = _value(document, child, entry, (*path, key))
        else:
            meant = ALIASES.get(key)
            hint = f" (did you mean {quote(meant)}?)" if meant in node else suggest(key, node)
            document.refuse((*path, key), f"unknown key{hint}")
    for key, child in node.items():
        if key in found or key == ANY_NAME:
            continue
        if not isinstance(child, Row):
            found[key] = _value(document, child, None, (*path, key))
        elif child.required:
            document.refuse((*path, key), f"is missing. {child.description}")
            found[key] = INVALID
        else:
            found[key] = child.default_value
    return found
