"""Words in messages: quoting, escaping and shortening, and the known name that was probably meant."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime

MAX_WORD = 128
"""The maximum length of a word that gets a suggestion. Comparing longer words takes too long."""

MAX_NAMES = 256
"""The maximum number of known names that are compared. Each comparison takes about 0.1 ms."""

MANY = 20
"""The maximum number of known names that a message lists. Longer lists are left out."""

MAX_QUOTED = 64
"""The maximum number of characters of a word in a message. Longer words are cut."""

EXCERPT = 24
"""The number of characters shown on each side of the first difference of two texts."""


def printable(text: str) -> str:
    """Return a text in which characters that are not printable, such as line breaks, are escaped as in Python."""
    if text.isprintable():
        return text
    return "".join([character if character.isprintable() else ascii(character)[1:-1] for character in text])


def escape(text: str) -> str:
    """Return a text as one line. Backslashes and characters that are not printable are escaped as in Python."""
    return printable(text.replace("\\", "\\\\"))


def excerpts(a: str, b: str, at: int) -> tuple[str, str, str]:
    """Return three lines about the first difference of two texts: its place, and the texts around it.

    ``at``: the number of equal characters at the start of both texts.
    """
    before = a[:at]
    byte, line = len(before.encode("utf-8", "surrogatepass")), before.count("\n") + 1
    place = f"first difference: byte {byte} (line {line}, column {at - before.rfind(chr(10))})"
    return place, f"  - {_excerpt(a, at)}", f"  + {_excerpt(b, at)}"


def _excerpt(text: str, at: int) -> str:
    """Return the text around a position, and mark the position with ``⟨here⟩``."""
    start, end = max(0, at - EXCERPT), at + EXCERPT
    before, after = "…" if start else "", "…" if end < len(text) else ""
    return f'{before}"{escape(text[start:at])}⟨here⟩{escape(text[at:end])}"{after}'


def listed(texts: Iterable[str]) -> str:
    """Return texts, each escaped, as one text separated by commas."""
    return ", ".join(map(printable, texts))


def quoted(text: str, limit: int = MAX_QUOTED) -> str:
    """Return a text in quotes, escaped, with at most ``limit`` of its characters."""
    short = text if len(text) <= limit else f"{text[:limit]}…"
    return '"' + printable(short.replace("\\", "\\\\").replace('"', '\\"')) + '"'


def shown(value: object) -> str:
    """Return a value as Python writes it, with at most ``MAX_QUOTED`` characters."""
    text = ""
    for piece in _written(value):
        text += piece
        if len(text) > MAX_QUOTED:
            return f"{text[:MAX_QUOTED]}…"
    return text


def _written(value: object) -> Iterator[str]:
    """Yield the pieces of ``repr(value)``. The whole text may be too long, because a list can occur many times."""
    if isinstance(value, list):
        for number, one in enumerate(value):
            yield ", " if number else "["
            yield from _written(one)
        yield "]" if value else "[]"
    elif type(value) is dict:
        for number, (key, one) in enumerate(value.items()):
            yield f"{', ' if number else '{'}{key!r}: "
            yield from _written(one)
        yield "}" if value else "{}"
    else:
        yield repr(value)


def changes(old: Mapping[str, object], new: Mapping[str, object]) -> list[str]:
    """Return a text ``name old → new`` for each value that differs. A missing value is ``absent``."""
    names = [name for name in dict.fromkeys([*old, *new]) if old.get(name) != new.get(name)]
    values = [[printable(shown(one[name])) if name in one else "absent" for one in (old, new)] for name in names]
    return [f"{name} {before} → {after}" for name, (before, after) in zip(names, values, strict=True)]


def counted(number: int, noun: str) -> str:
    """Return a number and its noun, such as ``1 model`` or ``2 models``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def install_extra(name: str) -> str:
    """Return the commands that install an optional part of the gateway."""
    return f"pip install 'meta-gateway[{name}]' (in a checkout: make extras)"


def in_ascii(text: object, limit: int | None = None) -> str:
    """Return a text, or its first ``limit`` characters, in ASCII for a header. Other characters are escaped."""
    return ascii(str(text)[:limit])[1:-1]


def plain(key: str, limit: int = 64) -> str:
    """Return a client's key for ``param``. Characters except ASCII letters and digits, ``_-$``, become ``?``."""
    return "".join(c if c.isascii() and (c.isalnum() or c in "_-$") else "?" for c in key[:limit])


def utc(seconds: float) -> str:
    """Return a Unix time as text, such as ``2027-06-30T12:00:00Z``."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def closest(word: str, known: Collection[str], likeness: float = 0.6) -> str | None:
    """Return the known name that was probably meant: a similar name, or a name with which the word begins; else None.

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


def suggest(word: object, known: Iterable[object], label: str = "known") -> str:
    """Return a phrase such as `` (did you mean "default"?)``, a short list of known names, or an empty string.

    ``label``: what the names in the list are.
    """
    names = sorted(set(map(str, known)))
    if (meant := closest(str(word), names)) is not None:
        return f' (did you mean "{printable(meant)}"?)'
    return f" ({label}: {listed(names)})" if 0 < len(names) <= MANY else ""
