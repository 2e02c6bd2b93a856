"""A text as HTML that shows its white space, invisible characters and special tokens, and that can be copied exactly.

A mark is an attribute of an element around the characters, and the style sheet shows it. So it is not copied.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape

from markupsafe import Markup

MAX_MARKED = 20_000
"""The number of characters of a page that get marks. Each mark is an element, and many elements make a page slow."""
UNSEEN = r"\n| +|\t|\r|[^\S ]|[\x00-\x08\x0e-\x1f\x7f\xad\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff]"
SYMBOLS = {"\n": "↵", "\t": "→", "\r": "CR"}


def exact(text: str, marked: int = MAX_MARKED, special_tokens: Sequence[str] = ()) -> Markup:
    """Return a text as HTML, with marks in its first ``marked`` characters. A template must write it in a ``pre``."""
    head, tail = text[:marked], text[marked:]
    names = "".join([f"|{re.escape(one)}" for one in sorted(special_tokens, key=len, reverse=True)])
    parts: list[str] = []
    end = 0
    for found in re.finditer(UNSEEN + names, head):
        parts += _escaped(head[end : found.start()]), _element(found[0])
        end = found.end()
    return Markup("".join([*parts, _escaped(head[end:]), _escaped(tail)]))


def _element(text: str) -> str:
    if text.strip(" ") == "":
        mark = "·" * len(text)
    elif len(text) == 1:
        mark = SYMBOLS.get(text, f"U+{ord(text):04X}")
    else:
        return f"<b>{_escaped(text)}</b>"
    return f'<i data-mark="{mark}">{_escaped(text)}</i>'


def _escaped(text: str) -> str:
    """Return a text as HTML. A browser would read a plain carriage return as a line feed."""
    return escape(text).replace("\r", "&#13;")
