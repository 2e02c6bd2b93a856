"""The file of client keys; each key is stored as its digest."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from gateway.config.files.reader import Files, ProblemMaker, digest
from gateway.config.files.yaml import YamlDocument
from gateway.config.schema.names import KEY_NAME, quote, suggest
from gateway.config.schema.settings import KEYS
from gateway.config.schema.validation import check
from gateway.config.snapshot import KeySpec

NO_KEY = digest(b"")
"""The digest of an empty string."""


def read_keys(files: Files, path: Path, models: Collection[str], blame: ProblemMaker) -> tuple[KeySpec, ...]:
    """Return the keys of a file. ``models``: the names that patterns can match."""
    before = len(files.problems)
    document = files.document(path, blame)
    if document is None:
        return ()
    if not document.value:
        files.problems.append(document.problem((), "holds no key: add one, or take keys.file out of gateway.yaml"))
        return ()
    checked = check(document, KEYS)
    files.problems.extend(checked.problems)
    _names(files, document, checked.values)
    _digests(files, document, checked.values)
    _patterns(files, document, checked.values, models)
    if len(files.problems) > before:
        return ()
    return tuple(KeySpec(name=name, **entry) for name, entry in checked.values.items())


def _names(files: Files, document: YamlDocument, entries: dict[str, dict[str, object]]) -> None:
    for name in entries:
        if not KEY_NAME.fullmatch(name):
            message = 'is not a valid name for a key: use up to 64 letters, digits, ".", "_", "@" and "-"'
            files.problems.append(document.problem((name,), message))


def _digests(files: Files, document: YamlDocument, entries: dict[str, dict[str, object]]) -> None:
    seen: dict[object, str] = {}
    for name, entry in entries.items():
        value = entry["sha256"]
        if value == NO_KEY:
            message = "is the digest of an empty text: hash the key itself"
        elif value and value in seen:
            message = f"is the same key as {quote(seen[value])}: use a different key for every entry"
        else:
            seen[value] = name
            continue
        files.problems.append(document.problem((name, "sha256"), message))


def _patterns(
    files: Files,
    document: YamlDocument,
    entries: dict[str, dict[str, object]],
    models: Collection[str],
) -> None:
    """Refuse a pattern without wildcards that matches no model."""
    for name, entry in entries.items():
        patterns = entry["models"]
        for pattern in patterns if isinstance(patterns, tuple) else ():
            if not set(pattern) & set("*?[") and pattern not in models:
                message = f"no model {quote(pattern)}{suggest(pattern, models)}"
                files.problems.append(document.problem((name, "models"), message))
