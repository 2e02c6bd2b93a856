"""Adds entries to the file of client keys, and removes them. All other lines stay as they are."""

from __future__ import annotations

import fcntl
import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

from metatemplate.files import yaml
from metatemplate.values.words import quoted, suggest

MODE = 0o600
"""The permissions of an edited file, because only the gateway has to read it."""


class CannotEdit(Exception):
    """The file is written in a form in which a single entry cannot be added or removed safely."""


def with_entry(text: str, name: str, entry: str) -> str:
    """Return the text of a key file with a new entry at its end. Raises ``CannotEdit``."""
    before, added = _entries(text), _entries(entry)
    if name in before:
        raise CannotEdit(f"has an entry {name} already; choose another name, or revoke that key first")
    separator = "" if not text or text.endswith("\n") else "\n"
    return _checked(f"{text}{separator}{entry}", {**before, **added})


def without_entry(text: str, name: str) -> str:
    """Return the text of a key file without an entry and the comments inside it. Raises ``CannotEdit``."""
    names = _entries(text).keys()
    if name not in names:
        raise CannotEdit(f"has no key {quoted(name)}{suggest(name, names)}")
    if len(names) == 1:
        raise CannotEdit(
            f"has only the key {name}, and a gateway does not load an empty key file; first make another key: "
            "gateway keys new NAME --write"
        )
    document = yaml.parse(text.encode("utf-8"), "")
    lines = text.splitlines(keepends=True)
    start = document.line((name,)) - 1
    following = [document.line((other,)) - 1 for other in document.value]
    end = min([line for line in following if line > start], default=len(lines))
    while end > start + 1 and (lines[end - 1].startswith("#") or not lines[end - 1].strip()):
        end -= 1  # comments in the first column and blank lines belong to the next entry
    expected = {other: value for other, value in document.value.items() if other != name}
    return _checked("".join(lines[:start] + lines[end:]), expected)


def _entries(text: str) -> dict[str, object]:
    value = yaml.parse(text.encode("utf-8"), "").value
    return value if isinstance(value, dict) else {}


def _checked(text: str, expected: dict[str, object]) -> str:
    """Return the text if it has exactly the expected entries, in this order. Raises ``CannotEdit``."""
    document = yaml.parse(text.encode("utf-8"), "")
    if document.problems or list((document.value or {}).items()) != list(expected.items()):
        raise CannotEdit(
            "has a form that this command cannot edit; begin each entry on its own line, without braces around the file"
        )
    return text


def edit(path: Path, change: Callable[[str], str]) -> int | None:
    """Replace a file by ``change(text)``, completely or not at all, with the permissions ``MODE`` and the same owner.

    Another ``edit`` in the same folder waits. A link stays a link. Returns the former permissions; None for a new
    file. Raises ``OSError``, and every error of ``change``.
    """
    path = path.resolve()
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        before = path.stat() if path.exists() else None
        _replace(path, change(path.read_bytes().decode("utf-8") if before else ""), before)
        os.fsync(folder)
    finally:
        os.close(folder)
    return None if before is None else stat.S_IMODE(before.st_mode)


def _replace(path: Path, text: str, before: os.stat_result | None) -> None:
    descriptor, draft = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # with the permissions ``MODE``
    try:
        with open(descriptor, "w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            if before is not None:
                os.fchown(descriptor, before.st_uid, before.st_gid)
            os.fsync(descriptor)
        os.replace(draft, path)
    except BaseException:
        os.unlink(draft)
        raise
