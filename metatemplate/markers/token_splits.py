"""The disguised forms of a marker that a tokenizer still reads as the marker."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from metatemplate.markers.marker_set import JOINER
from metatemplate.tokenizer import Tokenizer

FULL_WIDTH = {code: code + 0xFEE0 for code in range(0x21, 0x7F)}
"""Code point of an ASCII character → code point of its full-width form."""
DISGUISES: tuple[Callable[[str], str], ...] = (
    lambda marker: marker[0] + JOINER + marker[1:],
    lambda marker: marker.translate(FULL_WIDTH),
    str.upper,
    str.lower,
    lambda marker: re.sub("([A-Za-z])", "\\1\u0301", marker, count=1),
)
"""The changes after which a tokenizer that normalizes texts may still read a marker. The last adds an accent."""


def disguised(tokenizer: Tokenizer, markers: Sequence[str]) -> str:
    """Return the first changed form of a marker that the tokenizer still reads as this marker, or an empty string.

    Some tokenizers normalize texts: they remove invisible characters, including the character that ``escape`` inserts,
    or replace characters by their plain forms.
    """
    added = tokenizer.added_ids()
    for marker in markers:
        for change in DISGUISES if marker in added else ():
            form = change(marker)
            found = form != marker and added[marker] in tokenizer.tokenize(form, False)
            if found and added[marker] != tokenizer.unknown_id():  # the token of all characters without a token
                return form
    return ""
