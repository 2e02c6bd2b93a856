"""Reads the file of client keys. The file contains a digest of each key, and not the key."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal

from gateway.config.schema.kinds import KEY_NAME
from gateway.config.schema.settings import KEYS_FILE
from gateway.config.schema.validation import check
from gateway.config.snapshot import KeySpec
from metatemplate.files.reader import AddProblem, Files, digest
from metatemplate.values.words import quoted, suggest, utc

NO_KEY = digest(b"")
"""The digest of the empty string."""
EXPIRES_SOON = 14 * 24 * 3600.0
"""Seconds before the end of a key or certificate from which the operator is warned (as in ``deploy/alerts.yml``)."""


def read_keys(files: Files, path: Path, models: Collection[str], add_problem: AddProblem) -> tuple[KeySpec, ...]:
    """Return the client keys of a file. ``models``: the model names that the patterns of a key can match."""
    before = len(files.problems)
    document = files.document(path, add_problem)
    if document is None:
        return ()
    if not document.value:
        document.refuse((), "contains no key; add one, or remove keys.file from gateway.yaml")
    below = document.value.get("keys") if isinstance(document.value, dict) else None
    if isinstance(below, dict) and "sha256" not in below:
        message = 'the names of keys are at the top level of this file; remove the line "keys:", and indent less'
        document.refuse(("keys",), message)
        return ()
    entries: Mapping[str, KeySpec] = check(document, KEYS_FILE) or {}
    seen: dict[object, str] = {}
    for name, entry in entries.items():
        if not KEY_NAME.fullmatch(name):
            message = 'is not a valid name for a key; use up to 64 letters, digits, ".", "_", "@" and "-"'
            document.refuse((name,), message)
        key = entry.sha256
        if key == NO_KEY:
            document.refuse((name, "sha256"), "is the SHA-256 of an empty text; write the SHA-256 of the key")
        elif key in seen:
            other = quoted(seen[key])
            document.refuse((name, "sha256"), f"is the same key as {other}; use a different key for every entry")
        elif key:
            seen[key] = name
        for pattern in entry.models or ():
            if not set(pattern) & set("*?[") and pattern not in models:
                document.refuse((name, "models"), f"no model {quoted(pattern)}{suggest(pattern, models)}")
    if len(files.problems) > before:
        return ()
    return tuple(replace(entry, name=name) for name, entry in entries.items())


def expiry_state(key: KeySpec, now: float) -> Literal["valid", "expires soon", "expired"]:
    """Return whether a key has expired at the time ``now``, or expires within ``EXPIRES_SOON``."""
    if key.expires is None or key.expires > now + EXPIRES_SOON:
        return "valid"
    return "expired" if key.expires <= now else "expires soon"


def expiry_notes(keys: Collection[KeySpec], now: float) -> Iterator[str]:
    """Yield a note about each key that has expired or expires soon."""
    for key in keys:
        if (state := expiry_state(key, now)) != "valid":
            yield expiry_note(key, state)


def expiry_note(key: KeySpec, state: Literal["expires soon", "expired"]) -> str:
    """Return the note about a key that has expired or expires soon."""
    verb = "expired at" if state == "expired" else "expires soon, at"
    return (
        f"the client key {key.name} {verb} {utc(key.expires or 0.0)}; set a later expires in the key file, make a new "
        f"key (gateway keys new NAME --write), or remove this one (gateway keys revoke {key.name})"
    )
