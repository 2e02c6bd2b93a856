"""What may a thing be called, and what did you probably mean?"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

FILE_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
"""Templates and policies: a name is a file name, so it cannot climb out of its folder."""

MODEL_NAME = re.compile(r"[!-~]{1,128}")
"""Models: graphic ASCII, because the name travels in headers, paths and metric labels; slashes are fine inside."""

KEY_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
"""Client keys: shown in logs."""

LONG = 60
"""A longer word is cut in messages."""

MANY = 12
"""A longer list of known names is no help in a message."""


def suggest(word: str, known: Iterable[str]) -> str:
    """`` (did you mean "default"?)``, else the short list of what there is, else nothing; begins with a space."""
    names = sorted(known)
    close = difflib.get_close_matches(word, names, n=3)
    if close:
        # Of names about as close, the one with two letters swapped is what was meant.
        meant = next((name for name in close if sorted(name) == sorted(word)), close[0])
        return f' (did you mean "{meant}"?)'
    if 0 < len(names) <= MANY:
        return f" (there is: {', '.join(names)})"
    return ""


def shown(word: str) -> str:
    """A name for a message: quoted, escaped, and not too long."""
    return f'"{escaped(word if len(word) <= LONG else word[: LONG - 1] + "…")}"'


def escaped(text: str) -> str:
    """Text that stays on its line, whatever it holds."""
    return "".join([char if char.isprintable() else f"\\x{ord(char):02x}" for char in text])
