"""Rules for names, and suggestions for misspelled ones."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

FILE_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
"""The names of templates and policies. Such a name is a file name and cannot lead out of the folder."""

MODEL_NAME = re.compile(r"[!-~]{1,128}")
"""The names of models: printable ASCII, because headers, URL paths and metric labels contain the name."""

KEY_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
"""The names of client keys, which appear in logs."""

LONG = 60
"""The largest number of characters of a word in a message. Longer words are cut."""

MANY = 12
"""The largest size of a list of known names in a message. Longer lists are left out."""


def suggest(word: str, known: Iterable[str]) -> str:
    """Return a phrase such as `` (did you mean "default"?)``, a short list of known names, or an empty string."""
    names = sorted(known)
    close = difflib.get_close_matches(word, names, n=3)
    if close:
        # Among equally close names, prefer a name with two letters swapped.
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
