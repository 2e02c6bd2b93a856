"""Rules for names, and suggestions for misspelled ones."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

FILE_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
"""Templates and policies: the name is a file name and cannot leave its folder."""

MODEL_NAME = re.compile(r"[!-~]{1,128}")
"""Models: printable ASCII, because the name is used in headers, paths and metric labels; inner slashes are allowed."""

KEY_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
"""Client keys; the names appear in logs."""

LONG = 60
"""Longer words are cut in messages."""

MANY = 12
"""Longer lists of known names are left out of messages."""


def suggest(word: str, known: Iterable[str]) -> str:
    """Return `` (did you mean "default"?)``, or a short list of known names, or nothing."""
    names = sorted(known)
    close = difflib.get_close_matches(word, names, n=3)
    if close:
        # Among equally close names, prefer the one with two letters swapped.
        meant = next((name for name in close if sorted(name) == sorted(word)), close[0])
        return f' (did you mean "{meant}"?)'
    if 0 < len(names) <= MANY:
        return f" (known: {', '.join(names)})"
    return ""


def quote(word: str) -> str:
    """Return a name for a message: quoted, escaped, shortened."""
    return f'"{escaped(word if len(word) <= LONG else word[: LONG - 1] + "…")}"'


def escaped(text: str) -> str:
    """Return text with line breaks and control characters escaped."""
    return "".join([char if char.isprintable() else f"\\x{ord(char):02x}" for char in text])
