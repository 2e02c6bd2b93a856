"""The part of an error message that names the word which was probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

MAX_WORD = 128
"""A longer word gets no suggestion, because the comparison takes time."""

MANY = 20
"""The largest size of a list of known names in a message. Longer lists are left out."""


def suggest(word: object, known: Iterable[object]) -> str:
    """Return a phrase such as `` (did you mean "default"?)``, a short list of known names, or an empty string."""
    wrong, names = str(word), sorted(set(map(str, known)))
    close = difflib.get_close_matches(wrong, names, n=3) if len(wrong) <= MAX_WORD else []
    if close:
        # Among equally close names, prefer a name with two letters swapped.
        meant = next((name for name in close if sorted(name) == sorted(wrong)), close[0])
        return f' (did you mean "{_shown(meant)}"?)'
    if 0 < len(names) <= MANY:
        return f" (known: {', '.join(map(_shown, names))})"
    return ""


def _shown(name: str) -> str:
    return name if name.isprintable() else ascii(name)[1:-1]
