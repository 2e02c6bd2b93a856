"""Checks a parsed settings file against the rows of ``settings``."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from gateway.config.files.yaml import Path, YamlDocument
from gateway.config.schema.settings import ALIASES, ROWS, Row
from gateway.core.words import quoted, suggest
from gateway.wire.request_fields import FORBIDDEN, STRUCTURAL, ChatRequest


class Invalid:
    """Replaces a value that was refused, or a whole mapping that was refused. Later checks ignore this value."""

    def __bool__(self) -> bool:
        return False

    def __getitem__(self, key: str) -> Invalid:
        return self


INVALID: Final = Invalid()

ANY_NAME, ENTRY = "<name>", "[]"
PARAMETERS: Final = ChatRequest.model_fields.keys() - STRUCTURAL - FORBIDDEN
"""The request parameters that a policy may set."""


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
    """Check a document against the schema rows of ``file`` (such as ``settings.GATEWAY``). Problems go to the document.

    Returns the values. A missing value is replaced by its default, and a refused value by ``INVALID``.
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
    document.refuse(path, _expected_mapping(node, value))
    return INVALID


def _expected_mapping(node: dict[str, Any], value: Any) -> str:
    """Return the message for a value that is not a mapping."""
    if ANY_NAME in node:
        instead = 'write the name as a key, "my-name:" instead of "- name: my-name"' if isinstance(value, list) else ""
        return "expected a mapping of names to settings" + (f"; {instead}" if instead else "")
    name, first = next(iter(node.items()))
    about, example = "", "…"
    if isinstance(first, Row):
        if first.required:
            about = f" ({first.description})"
        elif type(first.default) in (str, int) and first.default:
            example = str(first.default)
    return f"expected a mapping with the settings {', '.join(node)}, such as {{{name}: {example}}}{about}"


def _setting(document: YamlDocument, row: Row, value: Any, path: Path) -> Any:
    if value is None and row.default is None:
        return None
    try:
        if value is None:
            raise ValueError("is empty; write a value, or remove the line")
        return row.kind.read(value)
    except ValueError as error:
        about = f". {row.description}" if "(known: " in str(error) else ""  # a word unlike every accepted one
        document.refuse(path, f"{error}{about}")
        return INVALID


def _hint(key: str, node: dict[str, Any]) -> str:
    """Return the text with a suggestion for an unknown key. Empty if there is no suggestion."""
    meant = ALIASES.get(key)
    if meant in node:
        return f" (did you mean {quoted(meant)}?)"
    if key in PARAMETERS:
        policy = f"write params: {{default: {{{key}: …}}}} in the policy file of the model"
        return f"; {key} is a request parameter: {policy}"
    return suggest(key, node)


def _mapping(document: YamlDocument, node: dict[str, Any], value: dict[str, Any], path: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, entry in value.items():
        if (child := node.get(key, node.get(ANY_NAME))) is not None:
            found[key] = _value(document, child, entry, (*path, key))
        else:
            document.refuse((*path, key), f"unknown key{_hint(key, node)}")
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
