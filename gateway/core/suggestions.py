"""The part of an error message that names the word which was probably meant."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable

MAX_WORD = 128
"""A longer word gets no suggestion, because the comparison takes time."""

MAX_NAMES = 256
"""No name of a longer list is suggested: the comparison takes about 0.1 ms for each name."""

MANY = 20
"""The largest size of a list of known names in a message. Longer lists are left out."""


def closest(word: str, known: Collection[str], likeness: float = 0.6) -> str | None:
    """Return the known name that was probably meant: a similar one, or one with which the word begins.

    ``likeness``: how much a similar name must have in common with the word, from 0 to 1.
    """
    if len(word) > MAX_WORD or len(known) > MAX_NAMES:
        return None
    lowered = {name.lower(): name for name in known}
    # A name with other digits is another thing: version 1.5 is not what was meant by version 2.5.
    same_digits = [name for name in lowered if re.findall(r"\d", name) == re.findall(r"\d", word)]
    close = difflib.get_close_matches(word.lower(), same_digits, n=3, cutoff=likeness)
    if close:
        # Among equally close names, prefer a name with two letters swapped.
        return lowered[next((name for name in close if sorted(name) == sorted(word.lower())), close[0])]
    begins = [name for name in lowered if re.match(rf"{re.escape(name)}(?![a-z0-9])", word.lower()) and len(name) > 2]
    return lowered[max(begins, key=len)] if begins else None


def suggest(word: object, known: Iterable[object]) -> str:
    """Return a phrase such as `` (did you mean "default"?)``, a short list of known names, or an empty string."""
    names = sorted(set(map(str, known)))
    if (meant := closest(str(word), names)) is not None:
        return f' (did you mean "{_shown(meant)}"?)'
    if 0 < len(names) <= MANY:
        return f" (known: {', '.join(map(_shown, names))})"
    return ""


def _shown(name: str) -> str:
    return name if name.isprintable() else ascii(name)[1:-1]
